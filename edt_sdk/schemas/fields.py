"""Describe the fields of a struct, for the command line, for magics and for OpenAPI, and refuse wrong ones in words.

A field has its type and default in the struct, its bounds and metavar in its `msgspec.Meta`, and its words in the
`Attributes` of the docstring. Everything that shows a field to people is made from these three. The second half finds
what a misspelled name or a value of the wrong type means, for every surface: Python, `edt`, magics and REST.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any, NoReturn, TypeVar

import msgspec

from edt_sdk.schemas.errors import InvalidRequest, UnknownArgument

Struct = type[msgspec.Struct]
_PARSERS: dict[type, Callable[[str], Any]] = {msgspec.inspect.IntType: int, msgspec.inspect.FloatType: float}
_FIELD = re.compile(r"`(\w+)`")
_ATTRIBUTE = re.compile(r"^    (?P<names>\w+(?:, \w+)*): (?P<text>.*(?:\n {8}.*)*)", re.MULTILINE)
REF = "#/components/schemas/{name}"
C = TypeVar("C", bound=type)
_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Two names count as near from this similarity on. Below it, short names are near by accident.
_NEAR = 0.7
# Words of other tools, for names that no spelling is near to.
_MEANT = {"pause": "suspend", "continue": "resume", "cancel": "stop", "kill": "stop", "remove": "delete", "ps": "list"}
# An argument of Python's `submit`. On a command line a script's arguments follow a lone --.
_ARGS = "--args"
_KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping of names to values",
}


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
        words = _FIELD.sub(lambda found: flag(found[1]) if found[1] in fields else found[1], descriptions(struct)[name])
        yield flag(name), _option(fields[name], words, unset=unset)


def flag(name: str) -> str:
    """Return the option of a field: --max-workers."""
    return f"--{name.replace('_', '-')}"


def _option(field: msgspec.inspect.Field, words: str, *, unset: bool) -> dict[str, Any]:
    kind, meta = _bare(field.type)
    if (
        not unset
        and field.default is not False
        and field.default not in (msgspec.NODEFAULT, None, "")
        and not isinstance(field.default, tuple)
    ):
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


def wrong_use(
    parser: argparse.ArgumentParser, unknown: Sequence[str], given: Sequence[str] = (), scripts: str = ""
) -> str:
    """Return the sentence on words of a command line that a parser does not know, with what is meant instead.

    `scripts` is the command where its words after `--` are those of a script, and `given` has all of its words.
    """
    options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    meant = [did_you_mean(each, parser._option_string_actions, str) for each in options if each != _ARGS or not scripts]
    if scripts and options and not any(meant):
        own = list(given)
        for word in unknown:
            own.remove(word)
        after = " ".join(unknown).removeprefix(_ARGS).lstrip("= ")
        meant = [f"Arguments of your script go after --, as in `{scripts} {shlex.join(own)} -- {after}`."]
    return " ".join([f"unrecognized arguments: {' '.join(options or unknown)}.", *filter(None, meant)])


class OneLineParser(argparse.ArgumentParser):
    """A parser with errors of one line. It names what a misspelled option or verb probably means.

    An option is not abbreviated: what is accepted today would mean two options one day, and Python refuses it too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        # Python 3.14 colours help by control sequences, which `edt` shows as text (`edt_sdk/cli/terminal.py`).
        self.color = False

    def error(self, message: str) -> NoReturn:
        """Print the error and end with exit code 2."""
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"edt: {message}{end} See: {self.prog} --help\n")

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse unknown words here, because the parser above would not know the options of this one."""
        found, unknown = super().parse_known_args(*args, **kwargs)
        if unknown:
            takes_args = "[-- ARG" in (self.usage or "")
            self.error(wrong_use(self, unknown, args[0] if args else (), self.prog if takes_args else ""))
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse lists all choices, which is right for an option and too much for verbs.
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            # What is no verb may be a setting.
            has = [verb.prog for verb in action.choices.values() if f"--{value}" in verb._option_string_actions]
            option = f"--{value} is an option of {', '.join(f'`{each}`' for each in has)}." if has else ""
            meant = did_you_mean(value, action.choices, str) or option
            self.error(f"there is no `{self.prog} {value}`. {meant}".rstrip())
        super()._check_value(action, value)


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


# --- wrong names and values -------------------------------------------------------------------------------------------


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to `name`, None when none is near. Case, `-` and `_` do not matter."""
    plain = {_plain(each): str(each) for each in sorted(known, reverse=True)}
    if (meant := _MEANT.get(_plain(name))) in plain:
        return plain[meant]
    found = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=_NEAR)
    return plain[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """Return "Did you mean 'max_workers'?", or "" when no known name is near."""
    found = near(name, known)
    return "" if found is None else f"Did you mean {shown(found)}?"


def check_names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UnknownArgument for the first given argument that the function does not have."""
    known = tuple(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"Its arguments are {', '.join(known)}."
            raise UnknownArgument(f"{function}() has no argument {name!r}.", hint=hint, field=name)


def names_checked(cls: C) -> C:
    """Make calls of a class's public functions raise UnknownArgument in place of Python's TypeError. A decorator."""
    for name, function in list(vars(cls).items()):
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(function, cls.__name__ if name == "__init__" else name))
    return cls


def _checked(function: FunctionType, shown: str) -> Callable[..., Any]:
    signature = inspect.signature(function)
    known = [each.name for each in signature.parameters.values() if each.kind not in _UNNAMED]
    needed = [name for name in known[1:] if signature.parameters[name].default is inspect.Parameter.empty]
    if function.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return function

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= set(known):
            check_names(shown, kwargs, known[1:])
        try:
            signature.bind(*args, **kwargs)
        except TypeError as wrong:
            hint = f"It needs {' and '.join(needed)}." if needed else ""
            raise UnknownArgument(f"{shown}(): {wrong}.", hint=hint) from None
        return function(*args, **kwargs)

    return checked


def words_of(args: Iterable[Any] | str, field: str = "args") -> tuple[str, ...]:
    """Return arguments as words. A text is split as a shell splits it. InvalidRequest when a quote is not closed."""
    if isinstance(args, Mapping):
        given = " ".join(f"{name} {value}" for name, value in args.items())
        raise InvalidRequest(f"{field} has no names: it is a text or a list.", hint=f"Such as {given!r}.", field=field)
    if not isinstance(args, str):
        return tuple(map(str, args))
    try:
        return tuple(shlex.split(args))
    except ValueError as wrong:
        raise InvalidRequest(
            f"{field} is a text that a shell could not split: {wrong}: {args}", hint="Close the quote.", field=field
        ) from None


def misfit(value: Any, expected: str, field: str) -> str:
    """Return the sentence for a value of the wrong type. `expected` and the answer to it are in msgspec's words."""
    wanted = " or ".join(_KINDS.get(each, each) for each in expected.split(" | ") if each != "null")
    return f"{field} must be {wanted}, not {_described(value)}."


def _described(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {value!r:.60}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    return f"the {type(value).__name__} {value!r:.60}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
