"""Tab completion for the magics: options from their parsers, ids of jobs seen in this session, files.

Never asks the server: a key press must not wait for a network.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

_MAGIC = re.compile(r"(?:^|=\s*|^\s+)(%{1,2})(edt_\w+)[ \t]+(?P<rest>[^\n]*)\Z", re.MULTILINE)


class JobNames:
    """Ids of jobs that this session has seen, newest first."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def remember(self, names: Iterable[str]) -> None:
        """Add ids."""
        self._names.update(dict.fromkeys(names))

    def __iter__(self) -> Iterator[str]:
        return iter(reversed(self._names))


def completer(magics: Any, names: JobNames) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """A matcher for the magics of `magics`."""

    @context_matcher(identifier="edt_sdk")  # type: ignore[untyped-decorator]
    def complete(context: CompletionContext) -> SimpleMatcherResult:
        found = _MAGIC.search(context.text_until_cursor)
        function = getattr(magics, found[2], None) if found else None
        parser = getattr(function, "parser", None)
        if found is None or parser is None:
            return {"completions": [], "suppress": False}
        words = found["rest"].split(" ")
        choices = list(suggestions(parser, words[:-1], words[-1], names))
        return {
            "completions": [SimpleCompletion(text=choice, type="param") for choice in choices],
            "matched_fragment": words[-1],
            "suppress": bool(choices),
        }

    complete.edt_sdk = True  # how unloading recognises it
    return complete  # type: ignore[no-any-return]


def suggestions(
    parser: argparse.ArgumentParser, before: list[str], fragment: str, names: Iterable[str]
) -> Iterator[str]:
    """What may stand where `fragment` is being typed, after the words `before`."""
    if "--" in before:
        return
    options = {text: action for action in parser._actions for text in action.option_strings}
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0:  # the value of an option
        yield from (text for text in map(str, last.choices or ()) if text.startswith(fragment))
    elif fragment.startswith("-"):
        yield from sorted(text for text in options if text.startswith(fragment) and text.startswith("--"))
    elif any(action.dest == "job" for action in parser._actions):
        yield from (name for name in names if name.startswith(fragment))
