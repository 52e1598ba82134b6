"""What a change of the plan changed, in words. Pure, from the JSON of both plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_KINDS = (("instance_groups", "instance group"), ("resource_groups", "resource group"))


def plan_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return sentences such as "share of the instance group night is 3 (was 1)". Empty for equal plans."""
    found: list[str] = []
    for key, kind in _KINDS:
        old = {group["name"]: group for group in before.get(key) or ()}
        new = {group["name"]: group for group in after.get(key) or ()}
        found += [f"the {kind} {name} is new" for name in new if name not in old]
        found += [f"the {kind} {name} was removed" for name in old if name not in new]
        for name in new:
            if name in old:
                found += _fields(f"the {kind} {name}", old[name], new[name])
        # The order matters, because a job that names no group belongs to the first.
        if not found and list(old) != list(new):
            found.append(f"the order of the {kind}s is another one")
    return found


def _fields(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for field in new:
        if new[field] != old.get(field):
            yield f"{field} of {what} is {_value(new[field])} (was {_value(old.get(field))})"


def _value(value: Any) -> str:
    match value:
        case None | "":
            return "not set"
        case bool():
            return "on" if value else "off"
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items()) or "empty"
        case list() | tuple():
            return ", ".join(map(str, value)) or "all the others"
        case _:
            return str(value)
