"""Display the machine: hosts and their slots, the shares of the groups, and the reason each job waits.

Pure functions of the answers of `/cluster` and `/hosts`, as text for a terminal and as tables for a notebook. In the
bars of slots each job has the same letter as in the table of jobs, readable without colours and by a screen reader.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from edt_sdk.display.jobs_text import DROPPED
from edt_sdk.formatting.number_words import clock, duration, size, stamp, zone
from edt_sdk.formatting.tables import html_table, note, text_table, with_sentences
from edt_sdk.schemas.hosts import HostView

Answer = Mapping[str, Any]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FREE = "·"
_WIDEST_BAR = 96
_GROUP_HEAD = ("GROUP", "POLICY", "OWN", "HELD", "DUE", "OF ALL", "BORROWED", "LENT", "JOBS", "WAIT", "WANT MORE")
_JOB_HEAD = ("", "JOB", "NAME", "OWNER", "GROUP", "PRIORITY", "SLOTS")
_HOST_HEAD = (
    "HOST",
    "STATE",
    "IN USE",
    "CORES",
    "GPUS",
    "LOAD",
    "MEMORY FREE",
    "RTT",
    "VERSION",
    "KIND",
    "STARTED BY",
    "SINCE",
)
_NO_HOSTS = "No hosts: this server offers no slots. `edt host token` lets a machine join."
# Left out first where a terminal is narrow.
_DROPPED_OF_HOSTS = ("KIND", "VERSION", "RTT", "SINCE", "MEMORY FREE", "LOAD", "GPUS", "CORES")
_PROVIDERS = {"machine": "the server", "local": "the server", "joined": "edt host join"}


class Cluster(dict[str, Any]):
    """Holds the server's answer, displayed at the end of a cell or in a terminal.

    Keys: `slots` (id, host, device, resource_group, job), `resource_groups` (name, slots, free), `groups` (what each
    instance group has, owns, borrows and lends, see `/edt/api/spec.yaml`), `jobs` (the live ones: held, entitled,
    asked, and the reason they wait), `threads_per_slot`, `elsewhere` (GPUs in use by jobs of another job store), and
    `warnings` (for admins).
    """

    def __repr__(self) -> str:
        return cluster_text(self)

    def _repr_html_(self) -> str:
        """Return the same as tables, without colours or scripts."""
        letters = letters_of(self)
        parts: list[str] = []
        for resource in self["resource_groups"]:
            size = f"{_slots(resource['slots'])}, {resource['free']} free"
            bars = "<br/>".join(
                f"{escape(host)} <code>{escape(bar)}</code>" for host, bar in _bars(self, resource["name"], letters)
            )
            parts.append(f"<p><b>{escape(resource['name'])}</b>: {size}<br/>{bars}</p>")
            parts.append(html_table(_GROUP_HEAD, _rows(self, resource["name"])))
        parts += [f"<p>{escape(line)}</p>" for line in (*_elsewhere(self), *_warnings(self))]
        jobs = [(*_job(job, letters), job["reason"]) for job in self["jobs"]]
        parts.append(html_table((*_JOB_HEAD, "WHY NO MORE"), jobs, empty="No jobs."))
        return '<div role="group" aria-label="the machine">' + "".join(filter(None, parts)) + "</div>"


def cluster_text(answer: Answer, *, width: int = 110) -> str:
    """Return text for a terminal. Sentences are wrapped at `width` columns, and the table of jobs fits into them."""
    letters = letters_of(answer)
    parts: list[str] = []
    for resource in answer["resource_groups"]:
        lines = _slot_lines(answer, resource, letters)
        groups = _rows(answer, resource["name"])
        if groups:
            lines += ["", textwrap.indent(text_table(_GROUP_HEAD, groups), "  ")]
        parts.append("\n".join(lines))
    # Such slots are used by no job, and an administrator has to notice them.
    astray = [slot for slot in answer["slots"] if slot.get("resource_group") is None]
    if astray:
        hosts = ", ".join(dict.fromkeys(slot["host"] for slot in astray))
        parts.append(f"In no resource group: {_slots(len(astray))} of {hosts}")
    parts += [*_elsewhere(answer), *(textwrap.fill(line, width) for line in _warnings(answer))]
    if answer["jobs"]:
        rows = [_job(job, letters) for job in answer["jobs"]]
        table = text_table(_JOB_HEAD, rows, width=width, dropped=DROPPED)
        parts.append(with_sentences(table, [job["reason"] for job in answer["jobs"]], width))
    else:
        parts.append("No jobs.")
    parts.append(f"Threads per slot: {answer['threads_per_slot']}")
    return "\n\n".join(parts)


def slot_lines(answer: Answer, letters: Mapping[str, str]) -> list[str]:
    """Return the resource groups, and the hosts of each with a letter for each slot."""
    return [line for resource in answer["resource_groups"] for line in _slot_lines(answer, resource, letters)]


def _slot_lines(answer: Answer, resource: Answer, letters: Mapping[str, str]) -> list[str]:
    head = f"{resource['name']}: {_slots(resource['slots'])}, {resource['free']} free"
    return [head, *(f"  {host}  {bar}" for host, bar in _bars(answer, resource["name"], letters))]


def _rows(answer: Answer, resource: str) -> list[tuple[object, ...]]:
    """Return the groups over a resource group, each below its parent."""
    # A single group shares with no other, so that its row would only repeat the slots and the jobs.
    if len(answer["groups"]) < 2:
        return []
    groups = [group for group in answer["groups"] if group["resource_group"] == resource]
    return [_group(group, depth) for group, depth in _tree(groups, "", 0)]


def _tree(groups: Sequence[Answer], parent: str, depth: int) -> Iterator[tuple[Answer, int]]:
    for group in groups:
        if group["parent"] == parent:
            yield group, depth
            yield from _tree(groups, group["name"], depth + 1)


def _group(group: Answer, depth: int) -> tuple[object, ...]:
    # What no group lends comes from slots without an owner.
    nobodys = group["borrowed"] - sum(group["lenders"].values())
    return (
        # HTML collapses plain blanks, and with them the indentation of the tree.
        "\N{NO-BREAK SPACE}" * (2 * depth) + group["name"],
        group["policy"],
        group["own"] or "-",
        group["held"],
        group["entitled"],
        nobodys or "-",
        _whom(group["lenders"], "from") or "-",
        _whom(group["borrowers"], "to") or (group["lent"] or "-"),
        group["jobs"] or "-",
        len(group["waiting"]) or "-",
        # A server of an earlier version has no such list.
        len(group.get("wanting", ())) or "-",
    )


def _whom(slots: Mapping[str, int], word: str) -> str:
    return ", ".join(f"{number} {word} {name}" for name, number in slots.items())


def _job(job: Answer, letters: Mapping[str, str]) -> tuple[object, ...]:
    leaving = f", leaves {job['leaving']}" if job["leaving"] else ""
    # What it may have at most, as `edt list` shows it: before its training begins it asks for one slot. A server of an
    # earlier version has only that.
    most = job.get("max_workers", job["asked"])
    held = f"{job['held']} of {most}" if job["asked"] else f"{job['held']}"
    letter = letters.get(job["id"], "")
    return letter, job["id"], job["name"], job["owner"], job["group"], job["priority"], held + leaving


def letters_of(answer: Answer) -> dict[str, str]:
    """Return a letter for each job that holds a slot, and for a search the one that its trials share."""
    there = dict.fromkeys(slot["job"] for slot in answer["slots"] if slot["job"])
    # A server of an earlier version has no searches.
    rows = {job["id"]: job.get("search") or job["id"] for job in answer["jobs"] if job["id"] in there}
    # A slot can still hold a job that the list no longer has. It needs a letter too.
    rows |= {job: job for job in there if job not in rows}
    letters = {row: _LETTERS[at % len(_LETTERS)] for at, row in enumerate(dict.fromkeys(rows.values()))}
    return letters | {job: letters[row] for job, row in rows.items()}


def _bars(answer: Answer, resource: str, letters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each host of a resource group with a letter for each of its slots."""
    hosts: dict[str, list[Answer]] = {}
    for slot in answer["slots"]:
        if slot.get("resource_group") == resource:
            hosts.setdefault(slot["host"], []).append(slot)
    widest = max(map(len, hosts), default=0)
    for host, slots in hosts.items():
        bar = "".join(letters.get(slot["job"], _FREE) for slot in slots)
        gpus = sum(1 for slot in slots if slot["device"] != "cpu")
        kind = "CPU" if not gpus else "GPU" if gpus == len(slots) else "CPU and GPU"
        # A longer bar would wrap in a terminal, and its letters would no longer be countable.
        if len(bar) > _WIDEST_BAR:
            free = sum(1 for slot in slots if not slot["job"])
            bar = f"{len(slots) - free} of {len(slots)} in use"
        yield f"{host:<{widest}}  {kind}", bar


def _elsewhere(answer: Answer) -> list[str]:
    return [f"In use by the job store in {each['data_dir']}: {each['device']}" for each in answer.get("elsewhere", ())]


def _warnings(answer: Answer) -> list[str]:
    return [f"Warning: {each}" for each in answer.get("warnings", ())]


def _slots(number: int) -> str:
    return f"{number} slot" if number == 1 else f"{number} slots"


# --- the table of hosts -----------------------------------------------------------------------------------------------


def hosts_text(hosts: Sequence[HostView], width: int | None = None) -> str:
    """Return the table for a terminal, with what explains a state below its row."""
    if not hosts:
        return _NO_HOSTS
    table = text_table(_HOST_HEAD, [_host_cells(host) for host in hosts], width=width, dropped=_DROPPED_OF_HOSTS)
    return with_sentences(table, [host.why for host in hosts], width or 110)


def hosts_html(hosts: Sequence[HostView], remark: str = "") -> str:
    """Return the table for a notebook. `remark` stands below it."""
    rows = [(*_host_cells(host), host.why) for host in hosts]
    table = html_table((*_HOST_HEAD, "WHY"), rows, empty=_NO_HOSTS)
    return f'<div role="group" aria-label="the hosts">{table}{note(remark)}</div>'


def host_text(host: HostView) -> str:
    """Return everything that is known of one host, a line for each."""
    free = "" if host.memory_free is None else f", {size(host.memory_free)} free"
    rows = [
        ("state", f"{host.state}: {host.why}" if host.why else host.state),
        ("slots", f"{host.used} of {host.slots} in use" if host.slots else _withdrawn(host) or "none"),
        ("my jobs", ", ".join(host.jobs)),
        ("cores", host.cores or ""),
        ("GPUs", ", ".join(map(str, host.gpus))),
        ("load", "" if host.load is None else f"{host.load:.2f}"),
        ("memory", f"{size(host.memory)}{free}" if host.memory else ""),
        ("disk", "" if host.disk_free is None else f"{size(host.disk_free)} free"),
        ("started by", _PROVIDERS.get(host.provider, host.provider)),
        ("address", host.address),
        ("kind", host.kind),
        ("version", host.wheel),
        ("round trip", _round_trip(host)),
        ("since", stamp(host.since) if host.since else ""),
    ]
    told = [(name, value) for name, value in rows if value != ""]
    return text_table((host.name, ""), told)


def hosts_seen(taken: float, why: str = "") -> str:
    """Return the sentence below a table that is not renewed: when it was taken, and why there is no newer one."""
    return f"As last seen at {clock(taken)} {zone()}. {why}".strip()


def _host_cells(host: HostView) -> tuple[object, ...]:
    return (
        host.name,
        host.state.value,
        f"{host.used} of {host.slots}" if host.slots else _withdrawn(host) or "-",
        host.cores or "-",
        len(host.gpus) or "-",
        "-" if host.load is None else f"{host.load:.2f}",
        "-" if host.memory_free is None else size(host.memory_free),
        _round_trip(host) or "-",
        host.wheel or "-",
        host.kind or "-",
        _PROVIDERS.get(host.provider, host.provider),
        stamp(host.since) if host.since else "-",
    )


def _withdrawn(host: HostView) -> str:
    """Return how many slots jobs hold that the host offers no more, "" for none."""
    return f"{host.used} given up" if host.used else ""


def _round_trip(host: HostView) -> str:
    return "" if host.round_trip is None else f"{1000 * host.round_trip:.1f} ms"


def left_words(host: HostView, seconds: float) -> str:
    """Return the sentence about a host that still has jobs after so many seconds of draining."""
    return f"Jobs still hold {_slots(host.used)} of the host {host.name!r} after {duration(seconds)}."
