"""Groups in a setting: of each its name, or its fields; on the command line as JSON or as a Python dict.

Traitlets would take any word of a command line for a name, and a dict among them too. A word is read when it is known
which class it is for: at once in `jupyter edt`, later where another command brings the extension; both ways lead here.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from traitlets import Dict, List, TraitError, Unicode, Union


class GroupSetting(Union):
    """A name or a dict."""

    def __init__(self) -> None:
        super().__init__([Unicode(), Dict()])

    def from_string(self, s: str) -> Any:
        """What a word of the command line stands for.

        Raises:
            TraitError: braces around what is neither JSON nor a dict, or several groups in one word.
        """
        text = s.strip()
        if text.startswith("["):
            raise TraitError("Give each group an option of its own, such as --EdtApp.instance_groups=day.")
        if not text.startswith("{"):
            return text
        for read in (json.loads, ast.literal_eval):
            try:
                return read(text)
            except (ValueError, SyntaxError):
                continue
        raise TraitError(f"{text} is neither JSON nor a Python dict; name a group, or write {{'name': 'night'}}.")


class GroupSettings(List[Any]):
    """At least one group.

    Args:
        name: of the one group there is by default.
        help: for the table of settings.
    """

    def __init__(self, name: str, *, help: str) -> None:
        super().__init__(GroupSetting(), [name], minlen=1, help=help)

    def from_string(self, s: str) -> list[Any]:
        """The option was given once."""
        return self.from_string_list([s])

    def from_string_list(self, s_list: list[str]) -> list[Any]:
        """The option was given so many times."""
        return [self.item_from_string(each) for each in s_list]
