"""What is known about one command before the commands that it starts are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.words import Word

LONG = 300
"""Words: of longer commands that another one starts, every word is only compared with forbidden programs."""
Argv = Sequence[Word]
"""A command with its arguments."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The class of a command by itself, and what it starts, which is judged in its turn."""

    decision: Decision
    reason: str
    starts: tuple[Argv, ...] = ()
    """Commands that it starts."""
    may_start: tuple[Argv, ...] = ()
    """Commands that it starts if a guess is right. Only what they forbid counts."""
    scripts: tuple[str, ...] = ()
    """Texts that a shell executes."""
    may_execute: tuple[str, ...] = ()
    """Texts that a shell might execute. Only what they forbid counts."""
    expands: tuple[str, ...] = ()
    """Texts in which a shell replaces ``$(…)``."""
    reads_script: bool = False
    """Whether it executes its input, or a file, as a shell script."""
    fed: bool = False
    """Whether the started commands get words from the input."""
    remembered: int = 1
    """How many of its words an answer can be remembered for."""


def ask(reason: str, *, remembered: int = 1) -> Judgement:
    return Judgement(Decision.ASK, reason, remembered=remembered)


def deny(reason: str) -> Judgement:
    return Judgement(Decision.DENY, reason, remembered=0)


def reads(name: str) -> Judgement:
    return Judgement(Decision.ALLOW, f"{name} only reads")
