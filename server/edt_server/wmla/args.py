"""Parse the `args` of a submission: one command line that mixes the platform's options with the script's.

Pure. `parse` takes the platform's options out, in any order, as `--option value` or `--option=value`. Unknown words go
to the script in their order, and everything after a bare `--` unchanged. Words are split as a shell splits them, and
`_QUOTE_` is a quote. One client sends its own argument list joined by blanks, after the shell removed the quotes. So a
line with an unmatched quote is split at blanks.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_server.wmla.platform_options import FLAGS, HONOURED, NO_NEWS, SECRET, WITHOUT_MEANING

LEVELS = ("debug", "info", "warn", "error")
_DATA_SOURCE = re.compile(r"(?<!\S)--data-source(?:\s+|=)(?=[\[{])")
_END = re.compile(r"(?<!\S)--(?!\S)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What dlicmd leaves of its own `-o json`: it removes the option from what it sends, and not the value.
_LEAKED = re.compile(r"json\Z|custom-columns=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The parsed `args` line. None and "" stand for options that are not in the line; `_READERS` names most of them.

    Attributes:
        text: the line as it came.
        command: with `--user-cmd` the text after `--`, unchanged, for a shell.
        datastore: `--cs-datastore-meta` as written.
        data_path: its `data_path`.
        max_workers: `maxWorkers` of `--edt-options`.
        devices: devices per worker.
        env: `--msd-env`, later ones win.
        pending_timeout: seconds.
        script: the script's own arguments.
        behind: how many of them, the last ones, stood after `--`.
        remarks: a sentence for each option that has no meaning here.
    """

    text: str
    framework: str = ""
    main: str = ""
    model_dir: str = ""
    command: str = ""
    app_name: str = ""
    consumer: str = ""
    instance_group: str = ""
    datastore: str = ""
    data_path: str = ""
    data_source: Any = None
    max_workers: int | None = None
    workers: int | None = None
    devices: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    priority: int | None = None
    pending_timeout: float | None = None
    debug_level: str = ""
    prebuilt: str = ""
    script: tuple[str, ...] = ()
    behind: int = 0
    remarks: tuple[str, ...] = ()


def parse(text: str) -> Arguments:
    """Return the parsed `text`. InvalidRequest or Unprocessable for a wrong option, which `field` names."""
    # Before the line is split into words: the rules of a shell would remove the quotes inside its JSON.
    sources, line = _without_data_source(text)
    words, behind, rest = _split(line)
    found = _Found(sources)
    script = list(_platform_options_taken(words, found, ends_at_dashes=behind is not None))
    if found.user_command:
        found.known["command"] = _command(behind, script)
        script, rest = [], []
    return Arguments(
        text=text,
        script=(*script, *rest),
        behind=len(rest),
        env=found.env,
        remarks=tuple(found.remarks),
        **found.known,
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _split(line: str) -> tuple[list[str], str | None, list[str]]:
    """Return the words before a bare `--`, the text after it (None without one), and that text's words."""
    quoted = line.replace("_QUOTE_", '"')
    # An unmatched apostrophe is no quote but part of a text, so the second try knows double quotes only.
    for quotes in ("'\"", '"'):
        try:
            return _as_shell(quoted, quotes)
        except ValueError:
            pass
    end = _END.search(line)
    if end is None:
        return line.split(), None, []
    behind = line[end.end() :].strip()
    return line[: end.start()].split(), behind, behind.split()


def _as_shell(line: str, quotes: str) -> tuple[list[str], str | None, list[str]]:
    """Split as a shell does that knows these quotes only. ValueError for an unmatched one."""
    stream = io.StringIO(line)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", quotes
    words: list[str] = []
    behind: str | None = None
    before = 0
    while (word := lexer.get_token()) is not None:
        if word == "--" and behind is None:
            behind, before = line[stream.tell() :].strip(), len(words)
        else:
            words.append(word)
    return (words, None, []) if behind is None else (words[:before], behind, words[before:])


def _without_data_source(text: str) -> tuple[Any, str]:
    """Return a `--data-source` with its JSON unquoted, and the rest of the line."""
    # What follows `--` belongs to the script, also an option of this name.
    end = _END.search(text)
    match = _DATA_SOURCE.search(text, 0, end.start() if end else len(text))
    if match is None:
        return None, text
    try:
        # The value may contain blanks, so only the decoder knows where it ends.
        value, stop = json.JSONDecoder().raw_decode(text, match.end())
    except ValueError as wrong:
        raise _bad("--data-source", f"is not JSON: {wrong}") from None
    return value, f"{text[: match.start()]} {text[stop:]}"


# --- options ----------------------------------------------------------------------------------------------------------


class _Found:
    """What is collected from one line."""

    def __init__(self, data_source: Any) -> None:
        self.known: dict[str, Any] = {} if data_source is None else {"data_source": data_source}
        self.env: dict[str, str] = {}
        self.remarks: list[str] = []
        self.user_command = False

    def remark(self, sentence: str) -> None:
        if sentence not in self.remarks:
            self.remarks.append(sentence)


def _platform_options_taken(words: list[str], found: _Found, *, ends_at_dashes: bool) -> Iterator[str]:
    """Return the script's words. They are followed by the line's end or by `--`, which dlicmd adds as well."""
    at, after_platform = 0, True
    while at < len(words):
        word = words[at]
        option, equals, value = word.partition("=")
        if option not in HONOURED and option not in WITHOUT_MEANING:
            following = words[at + 1 : at + 2]
            # A script may have the word `json` as an argument of its own. So it is dropped only between words of the
            # platform, or as the last word before `--`, where dlicmd's mistake leaves it.
            leaked = (
                after_platform and _LEAKED.match(word) and (_is_platform(following) if following else ends_at_dashes)
            )
            after_platform = bool(leaked)
            at += 1
            if not leaked:
                yield word
            continue
        after_platform = True
        at += 1
        if option not in FLAGS and not equals:
            # A missing value would otherwise take the next option as its value, silently.
            if at == len(words) or words[at].startswith("--"):
                raise _bad(option, "needs a value")
            value = words[at]
            at += 1
        _take(option, value, found)


def _is_platform(following: list[str]) -> bool:
    return any(word.partition("=")[0] in HONOURED.union(WITHOUT_MEANING) for word in following)


def _take(option: str, value: str, found: _Found) -> None:
    if reader := _READERS.get(option):
        name, read = reader
        found.known[name] = read(option, value)
    elif option == "--user-cmd":
        found.user_command = True
    elif option == "--msd-env":
        name, equals, content = value.partition("=")
        if not equals or not _NAME.match(name):
            raise _bad(option, f"is NAME=VALUE, not {value!r}")
        found.env[name] = content
    elif option == "--edt-options":
        _take_edt_options(value, found)
    elif option == "--cs-datastore-meta":
        _take_datastore(value, found)
    elif option in WITHOUT_MEANING and (option, value) not in NO_NEWS:
        # The remark is shown in the job's story, which must not repeat a secret.
        said = option if option in SECRET or option in FLAGS else f"{option} {value}"
        found.remark(f"{said} has no meaning here: {WITHOUT_MEANING[option]}.")


def _take_edt_options(value: str, found: _Found) -> None:
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, _, number = part.partition("=")
        if name == "maxWorkers":
            found.known["max_workers"] = _count("--edt-options maxWorkers", number)
        else:
            found.remark(f"--edt-options {part} has no meaning here: maxWorkers is the one that has.")


def _take_datastore(value: str, found: _Found) -> None:
    found.known["datastore"] = value
    parts = dict(part.strip().partition("=")[::2] for part in value.split(",") if part.strip())
    kind = parts.get("type", "fs")
    if kind != "fs":
        found.remark(f"--cs-datastore-meta {value} has no meaning here: data are read from the server's data folder.")
        return
    # WMLA's clients mean an absolute path below the data folder: both parts are joined by a slash.
    found.known["data_path"] = parts.get("data_path", "").strip("/")


def _command(behind: str | None, script: list[str]) -> str:
    if not behind:
        raise _bad("--user-cmd", "needs a command behind `--`", hint="Write it as `--user-cmd -- bash train.sh`.")
    if script:
        raise _bad("--user-cmd", f"runs what is behind `--`, but {' '.join(script)} stands before it")
    return behind


# --- values -----------------------------------------------------------------------------------------------------------


def _bad(option: str, what: str, *, hint: str = "") -> InvalidRequest:
    return InvalidRequest(f"{option} {what}.", hint=hint, field=option)


def _text(option: str, value: str) -> str:
    if not value:
        raise _bad(option, "needs a value")
    return value


def _base_name(option: str, value: str) -> str:
    name = PurePosixPath(_text(option, value).replace("\\", "/")).name
    if name in ("", "..", "."):
        raise _bad(option, f"is a file or folder, not {value!r}")
    return name


def _count(option: str, value: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,9}", value):
        raise _bad(option, f"is a whole number, not {value!r}")
    if int(value) < 1:
        raise Unprocessable(f"{option} must be at least 1, not {value}.", field=option)
    return int(value)


def _devices(option: str, value: str) -> int | None:
    """Return None for 0, which means that a worker needs no GPU. It still holds one slot."""
    return None if re.fullmatch(r"0+", value) else _count(option, value)


def _seconds(option: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        raise _bad(option, f"is a number of seconds, not {value!r}") from None
    if not 0 < seconds < float("inf"):
        raise Unprocessable(f"{option} is a number of seconds above 0, not {value}.", field=option)
    return seconds


def _level(option: str, value: str) -> str:
    if value.lower() not in LEVELS:
        raise _bad(option, f"is one of {', '.join(LEVELS)}, not {value!r}")
    return value.lower()


def _json(option: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as wrong:
        raise _bad(option, f"is not JSON: {wrong}") from None


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "--exec-start": ("framework", _text),
    # A client may send a path of its own disk, of which only the last part exists in the package.
    "--model-main": ("main", _base_name),
    "--model-dir": ("model_dir", _base_name),
    "--appName": ("app_name", _text),
    "--consumer": ("consumer", _text),
    "--ig": ("instance_group", _text),
    "--data-source": ("data_source", _json),
    "--numWorker": ("workers", _count),
    # 1.2.x's name, then dlicmd's name for the same number.
    "--gpuPerWorker": ("devices", _devices),
    "--workerDeviceNum": ("devices", _devices),
    "--msd-priority": ("priority", _count),
    "--msd-pending-timeout": ("pending_timeout", _seconds),
    "--debug-level": ("debug_level", _level),
    "--pbmodel-name": ("prebuilt", _text),
}
