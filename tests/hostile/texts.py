"""Text that does something to a terminal, and the check that none of it got through."""

from __future__ import annotations

import re

ACTS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""What must not be written to a terminal by anybody but us; line ends and tabs are judged by ``FORGED``."""
FORGED = "✓ succeeded (forged)"
ACTING = "a\x1b]0;PWNED\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\x08g\rh\u200bi\x7fj\U000e0041k"
"""For texts of several lines."""
HOSTILE = f"{ACTING}\n{FORGED}"
"""For what belongs on one line: its line end would forge a line of ours."""


def assert_harmless(text: str) -> None:
    found = ACTS.search(text)
    assert found is None, f"{found[0]!r} in {text[max(0, found.start() - 60) : found.end() + 20]!r}"
    assert not any(line.startswith(FORGED) for line in text.splitlines()), text
