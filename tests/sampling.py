"""Parameters of long tables, of which ``make test`` and CI try a sample, and the night all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


def sampled(cases: Mapping[str, Any], every: int) -> list[Any]:
    """Returns a parameter per case, known by its name: one in ``every`` is tried always, the others are thorough."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), id=name, marks=[pytest.mark.thorough] * bool(at % every)
        )
        for at, (name, case) in enumerate(cases.items())
    ]
