"""JSON from a model, read so that everything which writes it down again can."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from shared.text import valid

MAX_DEPTH = 64
"""No tool's arguments need so much, and encoders have a depth that they refuse."""


def loads(text: str) -> Any:
    """The value, with halves of surrogate pairs as U+FFFD.

    Raises ValueError for what is no JSON (NaN, too), for numbers that are no finite float, and for deep nesting.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise _too_deep() from None
    return replace_lone_surrogates(check_depth(value), text)


def check_depth(value: Any) -> Any:
    """The value itself. Raises ValueError where it is nested more than MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [part for part in level if isinstance(part, list | dict)]
        if not inner:
            return value
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
    raise _too_deep()


def replace_lone_surrogates(value: Any, text: str) -> Any:
    """What was read from ``text``, with halves of surrogate pairs, which no JSON of ours could carry on, as U+FFFD.

    Raises RecursionError where it is too deep to be gone through.
    """
    return _mended(value) if "\\ud" in text or "\\uD" in text else value


def _mended(value: Any) -> Any:
    match value:
        case str():
            return valid(value)
        case list():
            return [_mended(part) for part in value]
        case dict():
            return {_mended(key): _mended(part) for key, part in value.items()}
        case _:
            return value


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)
