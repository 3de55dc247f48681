"""Strict parsing of JSON from a model, so that every encoder can write the value again.

Python's parser accepts more than that: NaN, numbers that become infinite, halves of surrogate pairs, and nesting at
which encoders fail. Arguments that contain one of these could be neither stored in the history nor sent back to the
model, so the run could not go on.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from ...shared.text import mapped, valid

MAX_DEPTH = 64
"""More than any tool's arguments need; encoders have a depth limit of their own."""


def loads(text: str) -> Any:
    """Returns the value, with lone surrogates replaced by U+FFFD.

    Raises ValueError for text that is not valid JSON (NaN included), non-finite numbers, and deep nesting.
    """
    try:
        value = _STRICT.decode(text)
    except RecursionError:
        raise _too_deep() from None
    return replace_lone_surrogates(check_depth(value), text)


def check_depth(value: Any) -> Any:
    """Returns the value unchanged. Raises ValueError where it is nested more than MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [part for part in level if isinstance(part, list | dict)]
        if not inner:
            return value
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
    raise _too_deep()


def replace_lone_surrogates(value: Any, text: str) -> Any:
    """Returns the value read from ``text`` with lone surrogates, which cannot be encoded, replaced by U+FFFD.

    Raises RecursionError where it is nested too deeply to traverse.
    """
    return mapped(value, valid, keys=True) if "\\ud" in text or "\\uD" in text else value


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
