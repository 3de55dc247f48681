"""What a call says once it is read, before its values have types; and what both ways of reading agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
