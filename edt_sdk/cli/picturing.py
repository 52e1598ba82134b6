"""The verb that draws: `edt picture`, in the terminal as text, into a file or a browser as the server's SVG."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from edt_sdk.cli.session import Verbs, add_verb, client, writing
from edt_sdk.pictures.parts.look import NARROWEST, THEMES, WIDEST
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import given

if TYPE_CHECKING:
    from edt_sdk.client import Client
    from edt_sdk.display.picture import Picture

OF_A_JOB = ("loss", "allocation", "efficiency", "spark")
OF_THE_MACHINE = ("timeline", "slots", "shares")
COMPARE = "compare"
NAMES = (*OF_A_JOB, *OF_THE_MACHINE, COMPARE)
_POINTS = 400
_AXES = ("samples", "updates", "time")


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    says = "Draw a job, several jobs or the machine: as text, or as SVG with -o or --open."
    picture = add_verb(verbs, common, "picture", _run_picture, says)
    picture.add_argument(
        "words",
        metavar="WHAT",
        nargs="+",
        help=f"ids of jobs, and which picture: {', '.join(OF_A_JOB)} of a job (default: loss); {COMPARE} of several; "
        f"{', '.join(OF_THE_MACHINE)} of the machine, in which a job that is named stands out",
    )
    picture.add_argument("-o", "--output", metavar="FILE", help="write the SVG there; - is standard output")
    picture.add_argument("--open", action="store_true", help="show the SVG in the web browser")
    svg = picture.add_argument_group("of the SVG")
    svg.add_argument("--theme", choices=THEMES, help="default: auto, legible on white and on black")
    svg.add_argument("--width", type=int, metavar="PIXELS", help=f"{NARROWEST} to {WIDEST} (default: 720)")
    svg.add_argument("--x", choices=_AXES, help="what losses are drawn over (default: samples)")
    svg.add_argument("--smooth", type=float, metavar="S", help="how much losses are smoothed, 0 to 1")
    svg.add_argument("--log", action="store_true", help="losses on a logarithmic scale")
    window = picture.add_argument_group("of allocation and timeline")
    window.add_argument("--since", metavar="T", help="only since then: 2h (ago), 14:30, 2026-05-01T14:30, or seconds")
    window.add_argument("--until", metavar="T", help="only until then")


def _run_picture(arguments: argparse.Namespace) -> None:
    name, jobs = what_is_asked(arguments.words)
    drawn = bool(arguments.output or arguments.open)
    of_svg = [f"--{option}" for option in ("theme", "width", "x", "smooth", "log") if getattr(arguments, option)]
    if of_svg and not drawn:
        raise InvalidRequest(
            f"{of_svg[0]} is of the SVG; without -o or --open the picture is text.",
            hint=f"Add -o {_file_name(name, jobs)}, or --open.",
        )
    server = client(arguments)
    # From here on ids, where names and beginnings of them were given too.
    jobs = [server.job(each).id for each in jobs]
    # Also for text, because the sentence below the text is the picture's own description.
    picture = _fetch(server, name, jobs, arguments)
    if not drawn:
        text = _text(server, name, jobs, arguments)
        print(f"{text}\n\n{picture.says}" if text else picture.says)
        return
    if arguments.output == "-":
        sys.stdout.write(picture.svg)
    if arguments.output != "-" or arguments.open:
        _keep(picture, name, jobs, arguments)


def what_is_asked(words: list[str]) -> tuple[str, list[str]]:
    """Return the picture's name and the jobs, from words in any order."""
    names, jobs = [word for word in words if word in NAMES], [word for word in words if word not in NAMES]
    jobs = list(dict.fromkeys(jobs))
    if len(names) > 1:
        raise InvalidRequest(f"{' and '.join(names)} are {len(names)} pictures; name one at a time.")
    name = names[0] if names else COMPARE if len(jobs) > 1 else "loss"
    if not jobs and name not in OF_THE_MACHINE:
        raise InvalidRequest(f"{name} is a picture of a job; name one.", hint="edt list shows their ids.")
    if len(jobs) > 1 and name != COMPARE:
        raise InvalidRequest(
            f"{name} shows one job, and {len(jobs)} are named: {', '.join(jobs)}.",
            hint=f"edt picture {COMPARE} {' '.join(jobs)} lays their losses over each other; the pictures are "
            f"{', '.join(NAMES)}.",
        )
    return name, jobs


def _fetch(server: Client, name: str, jobs: list[str], arguments: argparse.Namespace) -> Picture:
    """The picture as the server draws it."""
    look = given(arguments, ("theme", "width"))
    curve, window = given(arguments, ("x", "smooth", "log")), given(arguments, ("since", "until"))
    if name == COMPARE:
        return server.compare(jobs, **curve, **look)
    if name in OF_THE_MACHINE:
        return server.picture(name, job=jobs[0] if jobs else None, **window, **look)
    return server.job(jobs[0]).picture(name, **curve, **window, **look)


def _text(server: Client, name: str, jobs: list[str], arguments: argparse.Namespace) -> str:
    """Return the picture in characters, "" where there is nothing but the sentence yet."""
    from edt_sdk.display import text_pictures as text
    from edt_sdk.display.cluster_view import cluster_text

    width = shutil.get_terminal_size((100, 24)).columns
    if name == "slots":
        return cluster_text(server.cluster(), width=width)
    if name == "shares":
        return text.shares_text(server.cluster(), width=width)
    if name == COMPARE:
        found = [server.job(job) for job in jobs]
        return text.comparison_text([(job.view, job.metrics(points=_POINTS)) for job in found], width=width)
    if name == "timeline":
        told = server.timeline(since=arguments.since, until=arguments.until)
        return text.slots_over_time(told, width=width, mine=jobs[0] if jobs else "")
    job = server.job(jobs[0])
    if name == "allocation":
        told = job.timeline(since=arguments.since, until=arguments.until)
        return text.slots_over_time(told, width=width, mine=job.id)
    metrics = job.metrics(points=_POINTS)
    if name == "efficiency":
        return text.efficiency_text(metrics, width=width)
    return text.spark_text(job.view, metrics, width=width) if name == "spark" else text.loss_text(metrics, width=width)


def _keep(picture: Picture, name: str, jobs: list[str], arguments: argparse.Namespace) -> None:
    """Write the file, print what it shows, and open it where that is requested."""
    with writing(arguments.output or tempfile.gettempdir()):
        if arguments.output not in (None, "-"):
            path = picture.save(arguments.output)
        else:
            # What the browser shows is read after this program has ended.
            with tempfile.NamedTemporaryFile(prefix="edt-", suffix=f"-{_file_name(name, jobs)}", delete=False) as file:
                path = picture.save(file.name)
    print(picture.says, file=sys.stderr)
    if arguments.open and not webbrowser.open(Path(path).resolve().as_uri()):
        print(f"There is no web browser here; the picture is {path}.", file=sys.stderr)


def _file_name(name: str, jobs: list[str]) -> str:
    return f"{'-'.join([*jobs[:1], name])}.svg"
