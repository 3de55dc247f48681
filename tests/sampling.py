"""Parameters of long tables, of which ``make test`` tries a sample, and ``make coverage`` all or a larger sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest


def sampled(cases: Mapping[str, Any], every: int, exhaustive: Collection[str] = ()) -> list[Any]:
    """Returns a parameter per case, known by its name: one in ``every`` is tried always, the others are thorough.

    CI does not try those whose names are ``exhaustive``.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=[
                *[pytest.mark.thorough] * bool(at % every),
                *[pytest.mark.exhaustive] * bool(at % every and name in exhaustive),
            ],
        )
        for at, (name, case) in enumerate(cases.items())
    ]
