"""A job as a card: one sentence, and the same with a picture as HTML.

Pure functions of a JobView. The HTML survives an untrusted notebook, GitHub and a PDF: no `<svg>`, `<style>` or script,
only inline colours and `<img>` with data URIs. Every card says how old it is. Colour is never alone: icon and word too.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from edt_sdk.formatting.html_table import GREY, left_out, note
from edt_sdk.formatting.number_words import figures, stamp
from edt_sdk.pictures.parts.boxes import progress_bar
from edt_sdk.pictures.parts.embedded import image
from edt_sdk.pictures.parts.sparkline import curve
from edt_sdk.schemas.job import JobState, JobView

# The type of a bundle's part from which a front end that knows it shows the job as it is now, without any kernel.
MIME = "application/vnd.edt.job+json"
# Of a table's cells. Where these are stripped too, the table stays one.
_CELL = 'style="text-align: left"'
_WORD = 'style="text-align: left; white-space: nowrap"'
# (icon, mid-tone colour legible on white and black); the icon tells them apart without colour.
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
    """The job in one line that can be read aloud."""
    parts = [f"Job {view.id} ({view.name}): {view.state.value.lower()}"]
    if not view.state.final:
        parts.append(f"{view.slots} of at most {view.max_workers} slots")
    if progress := progress_words(view):
        parts.append(progress)
    text = ", ".join(parts)
    if why := why_words(view):
        text += f" — {why}"
    return text if text.endswith((".", "!", "?")) else text + "."


def short_line(view: JobView) -> str:
    """The job in a line that fits a terminal; what explains its state only while it does not simply run."""
    parts = [f"{view.name}: {view.state.value.lower()}"]
    if not view.state.final:
        parts.append(f"{view.slots} of {view.max_workers} slots")
    if progress := progress_words(view):
        parts.append(progress)
    explained = view.state.final or not view.slots or view.state is JobState.RECOVERING or being_suspended(view)
    why = why_words(view) if explained else ""
    return ", ".join(parts) + (f" — {why}" if why else "")


def progress_words(view: JobView) -> str:
    """What is known of: update 120 of 200, epoch 3 of 8, loss 0.12, test accuracy 97.2 %."""
    p = view.progress
    if p is None:
        return ""
    step = "test step" if view.validates else "update"
    parts = [f"{step} {p.update} of {p.total_updates}"] if p.total_updates else [f"{step} {p.update}"]
    if p.epochs:
        parts.append(f"epoch {min(p.epoch + 1, p.epochs)} of {p.epochs}")
    if p.not_a_number:
        parts.append("the loss is not a number")
    elif p.loss is not None:
        parts.append(figures(p.loss, p.accuracy))
    if p.test_accuracy is not None or p.test_loss is not None:
        parts.append(f"test {figures(None if p.test_accuracy is not None else p.test_loss, p.test_accuracy)}")
    return ", ".join(parts)


def being_suspended(view: JobView) -> bool:
    """True from the moment somebody suspends it, whether its workers have left or not, until it is resumed."""
    return view.reason is not None and view.reason.code == "suspended"


def why_words(view: JobView) -> str:
    """First line of what explains the state: why a job waits, else what is said about its end or its recovery."""
    recovers = view.state is JobState.RECOVERING and bool(view.message) and not being_suspended(view)
    if not view.state.final and view.reason is not None and not recovers:
        return view.reason.text
    if view.state is not JobState.FINISHED and view.message:
        return view.message.strip().splitlines()[0]
    return ""


def done_share(view: JobView) -> float:
    """Share of updates done, 0 … 1."""
    if view.state is JobState.FINISHED:
        return 1.0
    p = view.progress
    return p.update / p.total_updates if p is not None and p.total_updates else 0.0


def picture(view: JobView) -> str:
    """Progress and slots as an image."""
    share = done_share(view)
    slots = 0 if view.state.final else view.slots
    says = f"{100 * share:.0f} % done" + ("" if view.state.final else f", {slots} of {view.max_workers} slots")
    return image(progress_bar(share, slots, 0 if view.state.final else view.max_workers), says)


def state_html(view: JobView, *, grey: bool = False) -> str:
    """Icon and word of the state, in its colour."""
    icon, colour = LOOKS[view.state]
    return f'<span style="color: {GREY if grey else colour}"><b>{icon} {view.state.value}</b></span>'


def head_html(view: JobView, *, grey: bool = False) -> str:
    """State, name and id."""
    return f"{state_html(view, grey=grey)} &nbsp; <b>{escape(view.name)}</b> &nbsp; <code>{escape(view.id)}</code>"


def facts_html(view: JobView) -> str:
    """Slots and progress, and below them what explains the state."""
    slots = "" if view.state.final else f"{view.slots} of at most {view.max_workers} slots · "
    why = why_words(view)
    text = slots + (progress_words(view).replace(", ", " · ") or "no update yet")
    return escape(text) + (f"<br/>{escape(why)}" if why else "")


def jobs_table(views: Sequence[JobView], *, most: int = 50) -> str:
    """A table of jobs, newest first; the first `most`, and how many more there are."""
    if not views:
        return "<p>No jobs. Submit one: <code>client.submit('folder', main='train.py', max_workers=4)</code></p>"
    rows = "".join(
        f"<tr><td {_WORD}>{state_html(view)}</td><td {_CELL}>{escape(view.name)}</td>"
        f"<td {_WORD}><code>{escape(view.id)}</code></td>"
        f"<td {_WORD}>{'' if view.state.final else f'{view.slots}/{view.max_workers}'}</td>"
        f"<td {_CELL}>{facts_html(view)}</td></tr>"
        for view in views[:most]
    )
    heads = "".join(f"<th {_CELL}>{name}</th>" for name in ("State", "Name", "Id", "Slots", "Progress"))
    return f"<table><tr>{heads}</tr>{rows}</table>{note(left_out(len(views), most))}"


def live_card(view: JobView, taken: float, origin: str) -> dict[str, Any]:
    """What a front end needs to show the job as it is now: the value of `MIME`.

    Args:
        view: the job.
        taken: when the view was fetched, seconds since the epoch.
        origin: base URL of its server.
    """
    snapshot = msgspec.json.decode(msgspec.json.encode(view))
    return {"version": 1, "id": view.id, "taken": taken, "view": snapshot, "origin": origin}


def html_card(view: JobView, taken: float, *, losses: Sequence[tuple[float, float]] = (), trouble: str = "") -> str:
    """The card.

    Args:
        view: the job.
        taken: when the view was fetched, seconds since the epoch.
        losses: (update, loss) points for the little curve.
        trouble: why the view could not be renewed; the card turns grey and says so.
    """
    lines = [head_html(view, grey=bool(trouble)), facts_html(view)]
    if view.validates:
        lines.append(f"validates <code>{escape(view.validates)}</code>")
    if view.warm_start:
        lines.append(f"warm start from <code>{escape(view.warm_start)}</code>")
    pictures = " ".join(filter(None, [picture(view), image(curve(losses), "training loss by update")]))
    lines += [pictures, f'<span style="color: {GREY}">{escape(age_words(view, taken, trouble))}</span>']
    return '<div role="group" aria-label="' + escape(sentence(view), quote=True) + '">' + "<br/>".join(lines) + "</div>"


def age_words(view: JobView, taken: float, trouble: str = "") -> str:
    """How old a picture of the job is. Of one that lives it says that the job went on since."""
    if trouble:
        return f"Last seen {stamp(taken)}. {trouble}"
    if view.state is JobState.FINISHED:
        return f"Snapshot of {stamp(taken)}."
    return f"Snapshot of {stamp(taken)}: what happened since is not in it."


def text_card(view: JobView, taken: float, *, trouble: str = "") -> str:
    """One line, now; when the server is silent it says how old its knowledge is."""
    return f"{sentence(view)} (Last seen {stamp(taken)}. {trouble})" if trouble else sentence(view)


def text_snapshot(view: JobView, taken: float, *, trouble: str = "") -> str:
    """The same to be kept: a line that is read on another day says how old it is."""
    return f"{sentence(view)} ({age_words(view, taken, trouble).rstrip('.')}.)"
