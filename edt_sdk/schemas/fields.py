"""Describe the fields of a struct, for the command line, for magics and for OpenAPI.

A field has its type and default in the struct, its bounds and metavar in its `msgspec.Meta`, and its words in the
`Attributes` of the docstring. Everything that shows a field to people is made from these three.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

Struct = type[msgspec.Struct]
_PARSERS: dict[type, Callable[[str], Any]] = {msgspec.inspect.IntType: int, msgspec.inspect.FloatType: float}
_ATTRIBUTE = re.compile(r"^    (?P<names>\w+(?:, \w+)*): (?P<text>.*(?:\n {8}.*)*)", re.MULTILINE)
REF = "#/components/schemas/{name}"


@cache
def descriptions(struct: Struct) -> dict[str, str]:
    """Return what the docstrings of a struct and its bases have on each field, without a period at the end."""
    found: dict[str, str] = {}
    # Bases first: a subclass may describe an inherited field in its own words.
    for cls in reversed(struct.__mro__):
        _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
        for match in _ATTRIBUTE.finditer(attributes):
            text = " ".join(match["text"].split()).rstrip(".")
            found |= dict.fromkeys(match["names"].split(", "), text)
    return found


def options(struct: Struct, names: Iterable[str], *, unset: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an option for each of these fields: its flag, and the keyword arguments of argparse's `add_argument`.

    An option that is not given is None (see `given`). `unset` leaves the fields' defaults out of the help, for a
    change, where a field that is not given stays as it is.
    """
    # The struct is the only source: the options of command line and magics are made from it, and so is the OpenAPI
    # component (036).
    (info,) = msgspec.inspect.multi_type_info([struct])
    assert isinstance(info, msgspec.inspect.StructType)
    fields = {field.name: field for field in info.fields}
    for name in names:
        yield f"--{name.replace('_', '-')}", _option(fields[name], descriptions(struct)[name], unset=unset)


def _option(field: msgspec.inspect.Field, words: str, *, unset: bool) -> dict[str, Any]:
    kind, meta = _bare(field.type)
    if not unset and field.default is not False and field.default not in (msgspec.NODEFAULT, None, "", ()):
        words += f" (default {field.default})"
    # argparse formats help texts with %, so that a plain percent sign would be an error.
    option: dict[str, Any] = {"help": words.replace("`", "").replace("%", "%%")}
    extra, choices = meta.extra or {}, (meta.extra_json_schema or {}).get("enum")
    if "metavar" in extra:
        option["metavar"] = extra["metavar"]
    elif choices:
        option["choices"] = tuple(choices)
    if isinstance(kind, msgspec.inspect.BoolType):
        return option | {"action": argparse.BooleanOptionalAction}
    if isinstance(kind, msgspec.inspect.DictType):
        return option | {"action": "append", "type": variable}
    if parser := extra.get("parser") or _PARSERS.get(type(kind)):
        option["type"] = parser
    return option


def _bare(kind: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, msgspec.inspect.Metadata]:
    """Return a type without `None` and without its metadata, and the metadata."""
    if isinstance(kind, msgspec.inspect.UnionType):
        # An option that is not given is None already. What is left is the type of a given value.
        kind = next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
    found = kind if isinstance(kind, msgspec.inspect.Metadata) else msgspec.inspect.Metadata(kind)
    return found.type, found


def given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options among `names` that were given, by field."""
    found = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return {name: dict(value) if isinstance(value, list) else value for name, value in found.items()}


def variable(text: str) -> tuple[str, str]:
    """Parse K=V."""
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def components(structs: Iterable[Struct]) -> dict[str, Any]:
    """Return the OpenAPI components of these structs and of the structs and enums in them, by name.

    An answer has every property, since the server leaves none out. A request is a struct that forbids unknown fields,
    or that has a `check`: it may leave out what has a default.
    """
    given = {struct.__name__: struct for struct in structs}
    _, found = msgspec.json.schema_components(given.values(), ref_template=REF)
    for name, schema in found.items():
        # msgspec's title repeats the component's name.
        del schema["title"]
        schema["description"] = schema.get("description", "").partition("\n\n")[0].replace("\n    ", " ")
        struct = given.get(name)
        if struct is None:
            continue
        for field, words in descriptions(struct).items():
            if field in schema["properties"]:
                words = re.sub(r"\bNone\b", "null", words[:1].upper() + words[1:] + ".")
                # A description in the field's own metadata wins.
                schema["properties"][field].setdefault("description", words)
        if not struct.__struct_config__.forbid_unknown_fields and not hasattr(struct, "check"):
            schema["required"] = list(schema["properties"])
    return found
