"""Characters that XML does not know or changes, carried through an XML parser unharmed."""

from __future__ import annotations

import re

ESCAPE = "\U0010fffd"
SECTION = f"{ESCAPE}!"
"""Marks where a section's text begins; unguarding drops it."""
_BASE = 0x100000
_LOST = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010fffc\U0010fffe-\U0010ffff]")
_SPELLED = re.compile(f"{ESCAPE}(.)", re.DOTALL)


def guard(text: str) -> str:
    """The text with control characters, carriage returns and the like each spelled by two for private use."""
    return _LOST.sub(lambda lost: ESCAPE + chr(_BASE + ord(lost[0]) % _BASE), text)


def unguard(text: str) -> str:
    """What was guarded, as it was."""
    return _SPELLED.sub(_meant, text)


def _meant(spelled: re.Match[str]) -> str:
    if spelled[1] == "!":
        return ""
    return ESCAPE if spelled[1] == ESCAPE else chr(ord(spelled[1]) - _BASE)
