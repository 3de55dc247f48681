"""The three decisions of the policy, and what classification finds out about a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Decision(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_STRICTNESS = (Decision.ALLOW, Decision.ASK, Decision.DENY)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Returns the strictest of the decisions; without any, ALLOW."""
    return max(decisions, key=_STRICTNESS.index, default=Decision.ALLOW)


@dataclass(frozen=True, slots=True)
class SubCommand:
    """One command of a plain line; what a launcher such as ``timeout`` starts is a command of its own."""

    words: tuple[str, ...]
    """Without quotes."""
    decision: Decision
    reason: str
    pattern: tuple[str, ...] = ()
    """What an answer is remembered for; it ends with ``*`` where other operands of the kind may follow. Empty: it is
    not remembered."""
    may_start: tuple[str, ...] = ()
    """Words behind which another command may stand, where it is not known what its arguments are."""


@dataclass(frozen=True, slots=True)
class Classified:
    """The class of a command line: the strictest of its commands."""

    decision: Decision
    """ALLOW: it only reads. ASK: it may change something, or that is not known. DENY: it is forbidden."""
    reason: str
    commands: tuple[SubCommand, ...] = ()
    """Empty for a line that is not plain."""
    text: str = ""
    """A line that is not plain, as it is. Only its words are compared with rules, and none of them allows it."""
    why: str = ""
    """Why it is not plain."""
    malformed: bool = False
    """Whether no shell should get the line at all, whatever it means."""

    @property
    def effects(self) -> tuple[str, ...]:
        """What needs approval besides the commands, as the end of a sentence that begins with `it`."""
        return (f"{self.why}, so that no rule and no remembered answer covers it",) if self.why else ()

    @property
    def asking(self) -> tuple[SubCommand, ...]:
        """The commands that need permission."""
        return tuple(each for each in self.commands if each.decision is not Decision.ALLOW)

    def covered(self, matches: Callable[[SubCommand], bool]) -> bool:
        """Whether each command ``matches`` or needs no permission, and at least one matches."""
        return all(map(matches, self.asking)) and any(map(matches, self.commands))
