"""Parameters of long tables, of which ``make test`` and ``.ci/run`` try a sample, and the nightly workflow all.

Tests with ``is_thorough`` choose their rows themselves. Those of growth, slow texts and git's settings take a larger
sample there, and not all rows.
"""

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
