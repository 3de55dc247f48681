"""What classification finds out about a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deputize.worker.policy.decision import Decision


@dataclass(frozen=True, slots=True)
class SubCommand:
    """One command of a line; what a launcher such as ``timeout`` or ``sh -c`` starts is a command of its own."""

    words: tuple[str, ...]
    """Without quotes; what only the shell can know stands as ``$name``, ``$(…)`` and the like."""
    decision: Decision
    reason: str
    pattern: tuple[str, ...] = ()
    """The first words, for which an answer can be remembered. Empty: it can not."""


@dataclass(frozen=True, slots=True)
class Classified:
    """The class of a command line: the strictest of its commands and of its other effects."""

    decision: Decision
    """ALLOW: it only reads. ASK: it may change something, or that cannot be known. DENY: it is forbidden."""
    reason: str
    commands: tuple[SubCommand, ...] = ()
    effects: tuple[str, ...] = ()
    """What needs approval besides the commands, such as ``writes out.txt``."""
    possible: tuple[tuple[str, ...], ...] = ()
    """Words of further commands that the line may run, if an expansion has the text that it seems to have."""
    unread: tuple[str, ...] = ()
    """Texts that it executes and that could not be parsed."""
    malformed: bool = False
    """Whether no shell should get the line at all, whatever it means."""

    def covered(self, matches: Callable[[SubCommand], bool]) -> bool:
        """Whether everything the line does is a command that ``matches``."""
        return bool(self.commands) and not self.effects and all(map(matches, self.commands))
