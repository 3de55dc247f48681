"""The mark that a result shows before all words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Mark = Literal["ok", "unproven", "failed", "cancelled"]
"""``ok``: it completed, and nothing is against it. ``failed``: it did not complete, or its checks refute it."""
MARKS: Mapping[Mark, str] = {"ok": "✓", "unproven": "?", "failed": "✗", "cancelled": "–"}
"""The signs of results, by ``mark`` of the result."""
