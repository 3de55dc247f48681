"""What a call says once it is read, before its values have types, and the characters XML would change on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


class Unreadable(Exception):
    """The call cannot be read, or in more than one way. The message says where."""


@dataclass(frozen=True, slots=True)
class Written:
    """A call's name and the texts of its values, in order; ``warnings`` say what was put right to read them.

    ``mended``: it was no well-formed XML of the right shape.
    """

    name: str
    values: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    mended: bool = False


def parameter_name(tag: str, attributes: Mapping[str, str]) -> str:
    """The name, also of ``<param name="…">``, the form for names that cannot be tags. Raises ``Unreadable``."""
    if tag == "param" and [*attributes] == ["name"]:
        return attributes["name"]
    if attributes:
        raise Unreadable(f"<{tag}> has attributes")
    return tag


def without_section(names: Sequence[str]) -> str:
    """The warning for values that stood outside of CDATA."""
    return f"{', '.join(names)}: not in CDATA, so taken as it stands. Write every value as <![CDATA[value]]>."
