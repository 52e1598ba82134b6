"""Compute what an epoch of a trial costs, from an expression over its values such as `depth*width/64`.

The virtual clock of a search runs by these costs. They are never measured, so equal searches have equal clocks.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.fields import did_you_mean
from edt_sdk.schemas.search.space import Choice, Space, rounded

LONGEST_COST = 200
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def cost_of(text: str, values: Mapping[str, Any]) -> float:
    """Return the cost of an epoch with these values. It is 1 without an expression, and where that is not above 0."""
    if not text:
        return 1.0
    try:
        cost = rounded(_value(_parsed(text), values))
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return 1.0
    return cost if 0 < cost < math.inf else 1.0


def check_cost(text: str, space: Space) -> None:
    """Raise Unprocessable unless the text is an expression over the numbers of the space."""
    if not text:
        return
    try:
        names = {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise _refusal(f"{text!r:.60} is no expression", "Such as depth*width/64, with + - * / ** and ( ).") from None
    for name in names:
        parameter = space.get(name)
        if parameter is None:
            raise _refusal(f"it names {name!r}, which is not in the space", did_you_mean(name, space))
        if isinstance(parameter, Choice) and not all(isinstance(each, int | float) for each in parameter.values):
            raise _refusal(f"it counts with {name!r}, whose choices are not all numbers")


def _refusal(why: str, hint: str = "") -> Unprocessable:
    return Unprocessable(f"The cost of an epoch: {why}.", hint=hint, field="cost")


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    if len(text) > LONGEST_COST:
        raise ValueError(f"longer than {LONGEST_COST} characters")
    body = ast.parse(text.strip(), mode="eval").body
    for node in ast.walk(body):
        known = isinstance(node, ast.BinOp | ast.Name | ast.Load | ast.USub | ast.UnaryOp) or type(node) in _OPERATORS
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        if not (known or number):
            raise ValueError(f"no arithmetic: {ast.dump(node)}")
    return body


def _value(node: ast.expr, values: Mapping[str, Any]) -> float:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.Name(id=name):
            return float(values[name])
        case ast.Constant(value=number):
            # Floats only: a power of large integers would compute for ever, a power of large floats overflows.
            return float(number)  # type: ignore[arg-type]
    raise TypeError(type(node))
