"""Tab completion for the magics: options from their parsers, jobs seen in this session, and files.

Never asks the server: a key press must not wait for a network.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from edt_sdk.schemas.frameworks import OFFERED
from edt_sdk.schemas.job import JobState

if TYPE_CHECKING:
    from edt_sdk.notebook.magics import MagicSession

_MAGIC = re.compile(r"(?:^|=\s*|^\s+)(%{1,2})(edt_\w+)[ \t]+(?P<rest>[^\n]*)\Z", re.MULTILINE)
_SOURCES = (".py", ".ipynb")


def completer(find: Callable[[str], Any], session: MagicSession) -> Callable[[CompletionContext], Any]:
    """Return a matcher for magics. `find` returns a magic's function, and `session` knows jobs and groups."""

    @context_matcher(identifier="edt_sdk")  # type: ignore[untyped-decorator]
    def complete(context: CompletionContext) -> SimpleMatcherResult:
        found = _MAGIC.search(context.text_until_cursor)
        parser = getattr(find(found[2]), "parser", None) if found else None
        if found is None or parser is None:
            return {"completions": [], "suppress": False}
        words = found["rest"].split(" ")
        choices = list(suggestions(parser, words[:-1], words[-1], session))
        return {
            "completions": [SimpleCompletion(text=choice, type="param") for choice in choices],
            "matched_fragment": words[-1],
            "suppress": bool(choices),
        }

    complete.edt_sdk = True  # how unloading recognises it
    return complete  # type: ignore[no-any-return]


def suggestions(
    parser: argparse.ArgumentParser, before: list[str], fragment: str, session: MagicSession
) -> Iterator[str]:
    """What may stand where `fragment` is being typed, after the words `before`."""
    # Words after a lone -- are the script's, and its options are not known here.
    if "--" in before:
        return
    options = {text: action for action in parser._actions for text in action.option_strings}
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0:  # the value of an option
        yield from _values(last, fragment, session, before)
    elif fragment.startswith("-"):
        yield from sorted(text for text in options if text.startswith(fragment) and text.startswith("--"))
    else:
        place = len(_positional(options, before))
        for action in [action for action in parser._actions if not action.option_strings]:
            if place == 0 or action.nargs == "*":
                yield from _values(action, fragment, session, before)


def _positional(options: dict[str, argparse.Action], before: list[str]) -> list[str]:
    found: list[str] = []
    takes = False
    for word in before:
        if takes:
            takes = False
        elif word in options:
            # The next word is then the option's value and no positional argument.
            takes = options[word].nargs != 0
        elif word and not word.startswith("-"):
            found.append(word)
    return found


def _values(action: argparse.Action, fragment: str, session: MagicSession, before: list[str]) -> Iterator[str]:
    match action.dest:
        case "job" | "jobs" | "warm_start":
            choices: Iterable[str] = session.jobs()
        case "instance_group":
            choices = session.groups()
        case "framework":
            choices = list(OFFERED)
        case "state":
            choices = [state.value for state in JobState]
        case "tag":
            choices = ["edt"]
        case "source":
            choices = _files(fragment, _SOURCES)
        case "directory":
            choices = _files(fragment, ())
        case "main":
            choices = _scripts(before)
        case _:
            choices = map(str, action.choices or ())
    yield from (choice for choice in choices if choice.startswith(fragment))


def _files(fragment: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield folders, and files with one of these endings, that match the fragment. Names with blanks are left out."""
    start = fragment.rpartition("/")[2]
    prefix = fragment[: len(fragment) - len(start)]
    place = Path(prefix or ".").expanduser()
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return
    for entry in entries:
        hidden = entry.name.startswith(".") and not start.startswith(".")
        if hidden or not entry.name.startswith(start) or re.search(r"\s", entry.name):
            continue
        if entry.is_dir():
            yield f"{prefix}{entry.name}/"
        elif entry.suffix in endings:
            yield prefix + entry.name


def _scripts(before: list[str]) -> list[str]:
    """Python files at the top of the folder that is being submitted."""
    folders = [Path(word).expanduser() for word in before if word and not word.startswith("-")]
    found = next((folder for folder in folders if folder.is_dir()), None)
    return [] if found is None else sorted(path.name for path in found.glob("*.py"))
