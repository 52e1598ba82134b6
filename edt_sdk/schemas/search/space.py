"""Describe the hyper-parameters of a search: the range or the choices of each, and the values they can have.

A value is exact: `uniform(0.001, 0.1, step=0.002)` has 0.031 and never 0.031000000000000003, because steps are counted
with decimal numbers, and a float without a step is rounded to 12 significant digits. So two machines that agree on a
value to that many digits train the same trial.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Unprocessable

MOST_PARAMETERS = 64
MOST_CHOICES = 1000
LONGEST_NAME = 64
DIGITS = 12
_LARGEST = 700  # e to this power is still a float
Value = bool | int | float | str
_NAME = re.compile(r"[A-Za-z_][\w.-]*\Z")
# One parameter of a text: lr=log(1e-4,1e-1), depth=integer(1,6), width=32|64|128.
_CALL = re.compile(r"(?P<kind>\w+)\((?P<arguments>[^()]*)\)\Z")


class Uniform(msgspec.Struct, frozen=True, tag="uniform", tag_field="kind"):
    """A number between two others, both included.

    Attributes:
        low, high: the ends.
        step: the value is `low + k * step`; None for any number.
        log: small and large values are equally likely by order of magnitude; both ends are above 0.
        base: the value is `base ** x`, and x is what lies between the ends; None for x itself.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False
    base: float | None = None

    @property
    def count(self) -> int | None:
        """How many values it can have, None for any number."""
        if self.step is None:
            return 1 if self.low == self.high else None
        return _steps(self.low, self.high, self.step) + 1

    def at(self, index: int) -> float:
        """Return its value number `index`, from 0, where it has a count."""
        return self.real(float(Decimal(repr(self.low)) + index * Decimal(repr(self.step or 0))))

    def between(self, fraction: float) -> float:
        """Return the value that lies at this fraction, 0 to 1, of the range."""
        if self.log:
            return self.fitted(self.low * (self.high / self.low) ** fraction)
        if self.count is not None:
            return self.at(_place(fraction, self.count))
        return self.real(self.low + fraction * (self.high - self.low))

    def real(self, number: float) -> float:
        """Return the nearest value to a number, which is the exponent where the parameter has a base."""
        return self.fitted(number if self.base is None else self.base**number)

    def fitted(self, value: Any) -> float:
        """Return the nearest value that this parameter can have, or raise Unprocessable for what is no number."""
        number = _number(value)
        if self.base is not None:
            number = math.log(number, self.base) if number > 0 else self.low
        number = min(max(number, self.low), self.high)
        if self.step is not None:
            number = _stepped(self.low, self.high, self.step, number)
        return rounded(number if self.base is None else self.base**number)

    def check(self, name: str) -> None:
        """Raise Unprocessable, naming the parameter, when no value or not every value makes sense."""
        _check_ends(name, self.low, self.high, log=self.log)
        if self.step is not None and not 0 < self.step <= max(self.high - self.low, 0):
            raise _refusal(name, f"its step must lie above 0 and within {self.low:g} … {self.high:g}")
        if self.log and (self.step is not None or self.base is not None):
            raise _refusal(name, "a logarithmic range has neither a step nor a base")
        if self.base is not None and not (1 < self.base < math.inf):
            raise _refusal(name, f"its base must lie above 1, not {self.base:g}")
        if self.base is not None and max(abs(self.low), abs(self.high)) * math.log(self.base) > _LARGEST:
            raise _refusal(name, f"{self.base:g} to the power of its ends is no number")


class Integer(msgspec.Struct, frozen=True, tag="integer", tag_field="kind"):
    """A whole number between two others, both included.

    Attributes:
        low, high: the ends.
        step: the value is `low + k * step`.
        log: small and large values are equally likely by order of magnitude; both ends are above 0.
    """

    low: int
    high: int
    step: int = 1
    log: bool = False

    @property
    def count(self) -> int:
        """How many values it can have."""
        return _steps(self.low, self.high, self.step) + 1

    def at(self, index: int) -> int:
        """Return its value number `index`, from 0."""
        return self.low + index * self.step

    def between(self, fraction: float) -> int:
        """Return the value that lies at this fraction, 0 to 1, of the range."""
        if self.log:
            # Half a step more, so that both ends are as likely as those between.
            low, high = self.low - 0.5, self.high + 0.5
            return self.fitted(low * (high / low) ** fraction)
        return self.at(_place(fraction, self.count))

    def real(self, number: float) -> int:
        """Return the nearest value to a number."""
        return self.fitted(number)

    def fitted(self, value: Any) -> int:
        """Return the nearest value that this parameter can have, or raise Unprocessable for what is no number."""
        number = min(max(_number(value), self.low), self.high)
        return int(_stepped(self.low, self.high, self.step, number))

    def check(self, name: str) -> None:
        """Raise Unprocessable, naming the parameter, when no value or not every value makes sense."""
        _check_ends(name, self.low, self.high, log=self.log)
        if not 1 <= self.step <= max(self.high - self.low, 1):
            raise _refusal(name, f"its step must lie above 0 and within {self.low} … {self.high}")
        if self.log and self.step != 1:
            raise _refusal(name, "a logarithmic range has no step")


class Choice(msgspec.Struct, frozen=True, tag="choice", tag_field="kind"):
    """One of some values, which have no order.

    Attributes:
        values: numbers, texts, true or false; each once.
    """

    values: tuple[Value, ...]

    @property
    def count(self) -> int:
        """How many values it can have."""
        return len(self.values)

    def at(self, index: int) -> Value:
        """Return its value number `index`, from 0."""
        return self.values[index]

    def between(self, fraction: float) -> Value:
        """Return the value that lies at this fraction, 0 to 1, of the choices."""
        return self.at(_place(fraction, self.count))

    def fitted(self, value: Any) -> Value:
        """Return the choice that `value` is, or raise Unprocessable."""
        for each in self.values:
            # True is 1 in Python, and not the same choice.
            if each == value and isinstance(each, bool) == isinstance(value, bool):
                return each
        raise Unprocessable(f"{value!r} is none of {', '.join(map(repr, self.values))}.")

    def check(self, name: str) -> None:
        """Raise Unprocessable, naming the parameter, when there is nothing to choose or a value stands twice."""
        if not 1 <= len(self.values) <= MOST_CHOICES:
            raise _refusal(name, f"it has 1 to {MOST_CHOICES:,} choices, not {len(self.values):,}")
        if len({(isinstance(each, bool), each) for each in self.values}) < len(self.values):
            raise _refusal(name, "one of its choices stands there twice")
        if any(isinstance(each, float) and not math.isfinite(each) for each in self.values):
            raise _refusal(name, "its choices are finite numbers")


Parameter = Uniform | Integer | Choice
Space = Mapping[str, Parameter]


def uniform(low: float, high: float, *, step: float | None = None) -> Uniform:
    """Any number from `low` to `high`, or with `step` one of low, low + step and so on."""
    return Uniform(low=low, high=high, step=step)


def log(low: float, high: float) -> Uniform:
    """A number from `low` to `high` whose order of magnitude is uniform, as for a learning rate."""
    return Uniform(low=low, high=high, log=True)


def integer(low: int, high: int, *, step: int = 1, log: bool = False) -> Integer:
    """A whole number from `low` to `high`, both included."""
    return Integer(low=low, high=high, step=step, log=log)


def choice(*values: Value) -> Choice:
    """One of these values, which have no order."""
    return Choice(values=values)


def check_space(space: Space) -> None:
    """Raise Unprocessable, naming the parameter, unless every parameter of the space makes sense."""
    if len(space) > MOST_PARAMETERS:
        raise Unprocessable(f"A search has at most {MOST_PARAMETERS} parameters, not {len(space):,}.", field="space")
    for name, parameter in space.items():
        if not _NAME.match(name) or len(name) > LONGEST_NAME:
            raise _refusal(
                name, f"a name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores, no digit first"
            )
        parameter.check(name)


def on_grid(space: Space, number: int) -> dict[str, Value] | None:
    """Return the values of a trial of the grid, whose last parameter changes fastest. None after its last trial."""
    found: dict[str, Value] = {}
    for name in reversed(list(space)):
        number, index = divmod(number, space[name].count or 1)
        found[name] = space[name].at(index)
    return None if number else dict(reversed(found.items()))


def parse_space(text: str) -> dict[str, Parameter]:
    """Return the parameters that a text describes: `lr=log(1e-4,1e-1) width=32|64|128 depth=integer(1,6)`.

    Raises:
        Unprocessable: a word is no such description; the hint shows one.
    """
    space: dict[str, Parameter] = {}
    for word in re.findall(r"[^\s(]+(?:\([^)]*\))?", text):
        name, sign, description = word.partition("=")
        if not sign or not description or name in space:
            raise _refusal(name, "it stands there twice" if name in space else f"{word!r} is not NAME=RANGE")
        space[name] = _parsed(name, description)
    return space


def _parsed(name: str, description: str) -> Parameter:
    call = _CALL.match(description)
    if call is None:
        return Choice(values=tuple(_literal(each) for each in description.split("|")))
    # Named arguments are those of the functions above, so that a text says what Python says.
    words = [each.strip() for each in call["arguments"].split(",") if each.strip()]
    positional = [_literal(each) for each in words if "=" not in each]
    named = {key.strip(): _literal(value.strip()) for key, _, value in (w.partition("=") for w in words if "=" in w)}
    try:
        made: Parameter = _KINDS[call["kind"]](*positional, **named)
        # The functions check no types, and the text may have said any.
        return msgspec.convert(msgspec.to_builtins(made), type(made))
    except (KeyError, TypeError, msgspec.ValidationError):
        raise _refusal(name, f"{description!r} is no range") from None


_KINDS: Mapping[str, Any] = {"uniform": uniform, "log": log, "integer": integer, "choice": choice}


def rounded(number: float) -> float:
    """Return a float as every part of a search takes it: to 12 significant digits."""
    return float(f"{number:.{DIGITS}g}")


def _literal(text: str) -> Value:
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unprocessable(f"{value!r} is no finite number.")
    return value


def _stepped(low: float, high: float, step: float, value: float) -> float:
    least, width = Decimal(repr(low)), Decimal(repr(step))
    return float(least + min(round((Decimal(repr(value)) - least) / width), _steps(low, high, step)) * width)


def _place(fraction: float, count: int) -> int:
    """Return the place of a fraction among equal parts, of which the last has its end too."""
    return min(int(fraction * count), count - 1)


def _steps(low: float, high: float, step: float) -> int:
    return int((Decimal(repr(high)) - Decimal(repr(low))) / Decimal(repr(step)))


def _check_ends(name: str, low: float, high: float, *, log: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        raise _refusal(name, "its ends, and what lies between them, are finite numbers")
    if low > high:
        raise _refusal(name, f"its range begins at {low:g} and ends before that, at {high:g}")
    if log and low <= 0:
        raise _refusal(name, f"a logarithmic range lies above 0 and cannot begin at {low:g}")


def _refusal(name: str, why: str) -> Unprocessable:
    return Unprocessable(
        f"The parameter {name!r}: {why}.",
        hint="Such as lr=log(1e-4,1e-1), dropout=uniform(0,0.5,step=0.05), depth=integer(1,6) or width=32|64|128.",
        field=f"space.{name}",
    )
