"""JSON from a model, read so that everything which writes it down again can."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 64
"""No tool's arguments need so much, and encoders have a depth that they refuse."""


def parsed(text: str) -> Any:
    """Raises ValueError for what is no JSON (NaN, too), for numbers that are no finite float, and for deep nesting."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        deep = not is_shallow(value)
    except RecursionError:
        value, deep = None, True
    if deep:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    return value


def is_shallow(value: Any) -> bool:
    """Whether it is nested at most MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [part for part in level if isinstance(part, list | dict)]
        if not inner:
            return True
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
    return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)
