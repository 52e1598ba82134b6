"""Present a job as a card: a sentence, and the same with a picture as HTML.

Pure functions of a JobView. The HTML survives an untrusted notebook, GitHub and a PDF: no `<svg>`, `<style>` or script,
only inline colours and `<img>` with data URIs. Every card states its age. Icon and word repeat what a colour means.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import shorten
from typing import Any

import msgspec

from edt_sdk.formatting.number_words import figures, stamp
from edt_sdk.formatting.tables import GREY, left_out, note
from edt_sdk.pictures.parts.card_pictures import curve, progress_bar
from edt_sdk.pictures.parts.paper import image
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobState, JobView

# The MIME type from which our front end shows the current state of the job without a kernel.
MIME = "application/vnd.edt.job+json"
# Inline styles of table cells. Where they are stripped, the table remains readable.
_CELL = 'style="text-align: left"'
_WORD = 'style="text-align: left; white-space: nowrap"'
# (icon, mid-tone colour legible on white and black). The icon distinguishes the states without colour.
LOOKS: dict[JobState, tuple[str, str]] = {
    JobState.SUBMITTED: ("○", GREY),
    JobState.PENDING: ("◔", "#b8860b"),
    JobState.LAUNCHING: ("◔", "#4a8fd4"),
    JobState.RUNNING: ("▶", "#4a8fd4"),
    JobState.RECOVERING: ("↻", "#b8860b"),
    JobState.SUSPENDED: ("⏸", GREY),
    JobState.FINISHED: ("✔", "#2e9e5b"),
    JobState.KILLED: ("■", GREY),
    JobState.FAILED: ("✘", "#d1495b"),
    JobState.ERROR: ("✘", "#d1495b"),
}


def sentence(view: JobView) -> str:
    """Return the job in one line that can be read aloud."""
    text = _line(view, f"Job {view.id} ({view.name})", _slots(view))
    if why := "" if _stopped_by(view) else why_words(view):
        text += f" — {why}"
    return text if text.endswith((".", "!", "?")) else text + "."


def _slots(view: JobView) -> str:
    # Only a priority that was chosen: the default would lengthen every line.
    chosen = "" if view.priority == DEFAULT_PRIORITY else f", priority {view.priority}"
    return f"{view.slots} of at most {view.usable_slots} slots{chosen}"


def short_line(view: JobView, *, ended_why: bool = True) -> str:
    """Return the job in a line that fits a terminal. The reason is left out while the job simply runs."""
    text = _line(view, view.name, f"{view.slots} of {view.usable_slots} slots")
    explained = ended_why if view.state.final else not view.slots or bool(view.message) or being_suspended(view)
    why = why_words(view) if explained and not _stopped_by(view) else ""
    return text + (f" — {why}" if why else "")


def _line(view: JobView, name: str, slots: str) -> str:
    parts = [f"{name}: {view.state.word}{_stopped_by(view)}", "" if view.state.final else slots, progress_words(view)]
    return ", ".join(filter(None, parts))


def _stopped_by(view: JobView) -> str:
    """Return " by ann" for a job that ann stopped, so that "stopped" is there once. "" for any other end."""
    by_user = view.state is JobState.KILLED and view.message.startswith("Stopped by ")
    return view.message.removeprefix("Stopped").rstrip(".") if by_user else ""


def progress_words(view: JobView) -> str:
    """Return the known progress: update 120 of 200, epoch 3 of 8, loss 0.12, test accuracy 97.2 %."""
    p = view.progress
    if p is None:
        return ""
    step = "test step" if view.validates else "update"
    parts = [f"{step} {p.update:,}" + (f" of {p.total_updates:,}" if p.total_updates else "")]
    if p.epochs:
        parts.append(f"epoch {min(p.epoch + 1, p.epochs)} of {p.epochs}")
    if p.not_a_number:
        parts.append("the loss is not a number")
    elif p.loss is not None:
        parts.append(figures(p.loss, p.accuracy))
    if p.inexact:
        parts.append("not exact")
    if p.test_accuracy is not None or p.test_loss is not None:
        parts.append(f"test {figures(None if p.test_accuracy is not None else p.test_loss, p.test_accuracy)}")
    return ", ".join(parts)


def being_suspended(view: JobView) -> bool:
    """Return True from the request to suspend the job until it is resumed, even while workers still run."""
    return view.reason is not None and view.reason.code == "suspended"


def why_words(view: JobView) -> str:
    """Return the first line of the reason: why a job waits, else the message about its end or recovery."""
    # A living job that recovers or is being stopped has a message, which matters more than the number of its slots.
    told = bool(view.message) and not being_suspended(view)
    if not view.state.final and view.reason is not None and not told:
        return view.reason.text
    if view.state is not JobState.FINISHED and view.message:
        return view.message.strip().splitlines()[0]
    return ""


def done_share(view: JobView) -> float:
    """Return the share of updates done, 0 … 1."""
    if view.state is JobState.FINISHED:
        return 1.0
    p = view.progress
    return p.update / p.total_updates if p is not None and p.total_updates else 0.0


def picture(view: JobView) -> str:
    """Return progress and slots as an image."""
    share = done_share(view)
    slots = 0 if view.state.final else view.slots
    says = f"{100 * share:.0f} % done" + ("" if view.state.final else f", {slots} of {view.usable_slots} slots")
    return image(progress_bar(share, slots, 0 if view.state.final else view.usable_slots), says)


def state_html(view: JobView, *, grey: bool = False) -> str:
    """Return icon and word of the state, in its colour."""
    icon, colour = LOOKS[view.state]
    return f'<span style="color: {GREY if grey else colour}"><b>{icon} {view.state.shown}</b></span>'


def facts_html(view: JobView) -> str:
    """Return slots and progress, and below them the reason for the state."""
    slots = "" if view.state.final else f"{_slots(view)}, "
    why = why_words(view)
    text = (slots + (progress_words(view) or "no update yet")).replace(", ", " · ")
    return escape(text) + (f"<br/>{escape(why)}" if why else "")


def jobs_table(views: Sequence[JobView], *, most: int = 50) -> str:
    """Return a table of jobs, newest first: the first `most`, and the number of the others."""
    if not views:
        return "<p>No jobs. Submit one: <code>client.submit('folder', main='train.py', max_workers=4)</code></p>"
    rows = "".join(
        f"<tr><td {_WORD}>{state_html(view)}</td><td {_CELL}>{escape(view.name)}</td>"
        f"<td {_WORD}><code>{escape(view.id)}</code></td>"
        f"<td {_WORD}>{'' if view.state.final else f'{view.slots}/{view.usable_slots}'}</td>"
        f"<td {_CELL}>{facts_html(view)}</td></tr>"
        for view in views[:most]
    )
    heads = "".join(f"<th {_CELL}>{name}</th>" for name in ("State", "Name", "Id", "Slots", "Progress"))
    return f"<table><tr>{heads}</tr>{rows}</table>{note(left_out(len(views), most))}"


def bundle(
    view: JobView,
    taken: float,
    origin: str,
    *,
    losses: Sequence[tuple[float, float]] = (),
    trouble: str = "",
    result: str = "",
) -> dict[str, Any]:
    """Return the card as a MIME bundle, with the value of `MIME`, HTML and text.

    Args:
        view: the job.
        taken: when the view was fetched, seconds since the epoch.
        origin: base URL of its server.
        losses: (update, loss) points for the little curve.
        trouble: why the view could not be renewed. The card turns grey and shows it.
        result: metrics of a validation, which has no curve.
    """
    snapshot = msgspec.json.decode(msgspec.json.encode(view))
    return {
        # The version lets a later front end read cards that old notebooks keep.
        MIME: {"version": 1, "id": view.id, "taken": taken, "view": snapshot, "origin": origin},
        "text/html": html_card(view, taken, losses=losses, trouble=trouble, result=result),
        # Stored text states its age, because it may be read on another day.
        "text/plain": f"{sentence(view)} ({age_words(view, taken, trouble).rstrip('.')}.)",
    }


def html_card(
    view: JobView,
    taken: float,
    *,
    losses: Sequence[tuple[float, float]] = (),
    trouble: str = "",
    result: str = "",
) -> str:
    """Return the card as HTML. The arguments are those of `bundle`."""
    head = f"{state_html(view, grey=bool(trouble))} &nbsp; <b>{escape(view.name)}</b>"
    lines = [f"{head} &nbsp; <code>{escape(view.id)}</code>", facts_html(view)]
    if view.project:
        lines.append(escape(experiment_words(view)))
    if view.tags:
        lines.append(" ".join(f"<code>{escape(tag)}</code>" for tag in view.tags))
    if view.notes:
        # Notes may have 10,000 characters. A card shows their start.
        lines.append(escape(shorten(view.notes, 200, placeholder=" …")))
    if view.validates:
        lines.append(f"validates <code>{escape(view.validates)}</code>")
    if view.warm_start:
        lines.append(f"warm start from <code>{escape(view.warm_start)}</code>")
    pictures = " ".join(filter(None, [picture(view), image(curve(losses), "training loss by update"), escape(result)]))
    lines += [pictures, f'<span style="color: {GREY}">{escape(age_words(view, taken, trouble))}</span>']
    return '<div role="group" aria-label="' + escape(sentence(view), quote=True) + '">' + "<br/>".join(lines) + "</div>"


def experiment_words(view: JobView) -> str:
    """Return the project and the experiment of a job, such as "mnist / rates"; "" for none."""
    return " / ".join(filter(None, (view.project, view.experiment)))


def age_words(view: JobView, taken: float, trouble: str = "") -> str:
    """Return the age of a view. For a job that has not ended it adds that later changes are missing."""
    if trouble:
        return f"Last seen {stamp(taken)}. {trouble}"
    if view.state is JobState.FINISHED:
        return f"Snapshot of {stamp(taken)}."
    return f"Snapshot of {stamp(taken)}: what happened since is not in it."


def text_card(view: JobView, taken: float, *, trouble: str = "") -> str:
    """Return the current job in one line. With `trouble` the line states the age of the view."""
    return f"{sentence(view)} (Last seen {stamp(taken)}. {trouble})" if trouble else sentence(view)
