"""Traits for settings that list groups, each by its name or by its fields.

On the command line a group is JSON or a Python dict. Traitlets would take any word of a command line for a name, also
a dict. `jupyter edt` reads a word at once, other commands only when they load the extension. Both ways lead here.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from traitlets import Dict, List, TraitError, Unicode, Union


class GroupSetting(Union):
    """A group in a setting: its name, or a dict of its fields."""

    def __init__(self) -> None:
        super().__init__([Unicode(), Dict()])

    def from_string(self, s: str) -> Any:
        """Return the group that a word of the command line describes."""
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
    """A list of at least one group, by default the one with this name."""

    def __init__(self, name: str, *, help: str) -> None:
        super().__init__(GroupSetting(), [name], minlen=1, help=help)

    def from_string(self, s: str) -> list[Any]:
        """Read the option when it is given once."""
        return self.from_string_list([s])

    def from_string_list(self, s_list: list[str]) -> list[Any]:
        """Read the option when it is given several times."""
        return [self.item_from_string(each) for each in s_list]
