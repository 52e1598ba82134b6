"""Word the sentences that a job ends with, and read the last lines of its processes that follow them."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.wire.regular import open_regular

LINES = 20
_BYTES = 32 * 1024
_LINE = 500
_NO_SDK = "No module named 'edt_sdk"
# The last line of argparse.
_WRONG_ARGUMENTS = re.compile(r"^[^\s:]+: error: (.+)$")
# How a stack of `faulthandler` begins.
_STACK = "(most recent call first):"
HUNG = (
    "The stack in its log shows where it hung. Look there for a loop without an end, or for a wait for something that "
    "does not come. Where the code only needs longer than that, the administrator raises hang_timeout."
)


@dataclass(frozen=True, slots=True)
class LastLines:
    """The last lines of a stream. `stream` is the file's name."""

    stream: str
    text: str


def stream_tail(streams: Path, process: str) -> LastLines | None:
    """Return the tail of stderr, or of stdout when stderr is empty. None when both are empty."""
    for stream in ("stderr", "stdout"):
        text = file_tail(streams / f"{process}.{stream}", within=streams.parent)
        if text:
            return LastLines(f"{process}.{stream}", text)
    return None


def file_tail(path: Path, *, within: Path | None = None) -> str:
    """Return the `text_tail` of a file, "" when there is no such file. `within` is as in `open_regular`."""
    try:
        with open_regular(path, within=within) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BYTES))
            data = file.read()
    except OSError:
        return ""
    return text_tail(data.decode("utf-8", errors="replace"))


def text_tail(text: str) -> str:
    """Return the last non-blank `LINES` lines of a text, with long lines cut.

    When it ends with a stack that has the most recent call first, the first lines of that stack are returned.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    kept = [line if len(line) <= _LINE else f"{line[:_LINE]} …" for line in lines if line]
    stack = next((at for at in reversed(range(len(kept))) if not kept[at].startswith("  ")), 0)
    if kept[stack : stack + 1] and kept[stack].endswith(_STACK):
        kept = kept[: stack + LINES]
    return "\n".join(kept[-LINES:])


def how_it_ended(code: int) -> str:
    """Return the predicate for an exited process: "was killed by SIGKILL", "ended with exit code 3"."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def lost_link(why: str) -> str:
    """Return the predicate for a process that closed its link but did not exit."""
    return f"closed its link to the supervisor and did not end by itself ({why})."


def worker_name(worker: int, rank: int | None, slot: int) -> str:
    """Return the subject of a sentence: "Worker 3 (rank 1, slot 7)", without a rank outside a generation."""
    place = f"slot {slot}" if rank is None else f"rank {rank}, slot {slot}"
    return f"Worker {worker} ({place})"


def failure(
    who: str, what: str, words: LastLines | None, traceback: str = "", *, times: int = 1, hint: str = ""
) -> str:
    """Return one sentence and the last lines of the process, or those of its traceback where it wrote none.

    A second sentence gives the number of attempts when there was more than one. `hint` says what to do.
    """
    sentence = f"{who} {what}".rstrip()
    wrong = _WRONG_ARGUMENTS.search(words.text.rpartition("\n")[2]) if words is not None else None
    if wrong and what == how_it_ended(2):
        sentence += f": {wrong[1]}"
    if not sentence.endswith((".", "!", "?")):
        sentence += "."
    if times > 1:
        sentence += f" It was tried {times} times without progress in between."
    if hint:
        sentence += f" {hint}"
    if words is not None:
        return f"{sentence}\nLast lines of {words.stream}:\n{words.text}"
    if traceback.strip():
        return f"{sentence}\n{text_tail(traceback)}"
    return sentence


def never_spoke(who: str, interpreter: str, code: int, words: LastLines | None) -> str:
    """Return why a process that exited before its hello could not start."""
    if words is not None and _NO_SDK in words.text:
        what = f"could not start: {interpreter} has no edt_sdk. Install jupyter-edt in that environment."
    else:
        what = f"could not start: it {how_it_ended(code)} before it could do anything."
    return failure(who, what, words)


def torn_network(times: int) -> str:
    """Return why a job ends when its members lose each other although all of them live."""
    return (
        f"The workers lost the connections to each other {times} times in a row without progress, "
        "and none of them had died. Look at the network between them, and for errors of gloo or NCCL in their logs."
    )


def out_of_turn(training: int, done: int, running: int | None) -> str:
    """Return why a job ends when its script asks for a training that cannot be the next."""
    under_way = "none" if running is None else str(running)
    return (
        f"The driver asked for training {training} where {done} was next (running: {under_way}). "
        "Call train() from one thread, one call after another."
    )


def never_trained(words: LastLines | None) -> str:
    """Return the message of a script that ended well without training."""
    return failure(
        "The main script",
        "ended without calling train(). A job has to train: build a FabricModel and call its train(...). "
        'To run the script as it is, submit it with framework="PyTorch" (in a shell: --framework PyTorch).',
        words,
    )


def finished(trainings: int, updates: int) -> str:
    """Return the message of a finished job. A validation has no updates."""
    if not updates:
        return "Finished: the test data were gone over once."
    what = "1 training" if trainings == 1 else f"{trainings} trainings"
    return f"Finished: {what}, {updates} updates."
