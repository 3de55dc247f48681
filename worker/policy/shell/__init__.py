"""The class of a command line: whether it only reads, needs approval, or is forbidden."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from .classified import Classified, Decision, SubCommand, strictest
from .forbidden import name_of, removes_root, words_why_forbidden
from .judge import READ_COMMANDS, judged
from .plain_line import NotPlain, Simple, commands_of

__all__ = ["PLAINLY", "Classified", "Decision", "SubCommand", "classify_line", "strictest"]

PLAINLY = (
    "where a line is not plain, each word of it counts; write it plainly: literal words joined by ; && || |, and files "
    "with the tools for files"
)
_CACHED = 2_000
"""Characters: longer lines are hardly ever repeated, and cost memory."""


def classify_line(line: str) -> Classified:
    """Returns the class of a line. Long ones take computing time, so it belongs into a thread."""
    return _known(line) if len(line) <= _CACHED else _classify(line)


def _classify(line: str) -> Classified:
    line = line.replace("\r\n", "\n")
    if control := _control_character(line):
        return Classified(
            Decision.DENY,
            f"it contains the control character U+{ord(control):04X}, which hides what a line does; write it as an "
            "escape, such as $'\\r'",
            malformed=True,
        )
    try:
        if not line.isascii() and any(unicodedata.category(char) == "Cf" for char in line):
            raise NotPlain("has invisible characters, which may hide what it does")
        commands = _together(_judged(commands_of(line)))
        if not commands:
            raise NotPlain("has no command")
    except NotPlain as why:
        return _not_plain(line, str(why))
    decision = strictest(each.decision for each in commands)
    return Classified(decision, next(each.reason for each in commands if each.decision is decision), tuple(commands))


_known = lru_cache(maxsize=1000)(_classify)


def _judged(commands: Sequence[Simple]) -> list[SubCommand]:
    found: list[SubCommand] = []
    fed: list[str] = []
    for each in commands:
        fed = fed if each.piped else []
        found += judged(each, "\n".join(fed) if name_of(each.words[0].text) in READ_COMMANDS else "")
        if each.words[0].text in ("echo", "printf", "base64"):
            fed = [*fed, " ".join(word.text for word in each.words).replace("\\n", "\n")]
    return found


def _together(commands: list[SubCommand]) -> list[SubCommand]:
    """Returns the commands with what only follows from several of them."""
    if removes_root(each.words for each in commands):
        reason = "removes everything below a directory of the system or the home directory"
        return [replace(each, decision=Decision.DENY, reason=reason) for each in commands]
    moved = False
    for at, each in enumerate(commands):
        if moved and each.words[0] == "git" and each.decision is Decision.ALLOW:
            reason = "git may run what the configuration of another directory names"
            commands[at] = SubCommand(each.words, Decision.ASK, reason)
        moved |= each.words[0] == "cd"
    return commands


def _not_plain(line: str, why: str) -> Classified:
    if found := words_why_forbidden(line):
        return Classified(Decision.DENY, f"{found[0]} {found[1]}, and the line {why}: {PLAINLY}", (), line, why)
    return Classified(Decision.ASK, f"it {why}", (), line, why)


def _control_character(line: str) -> str | None:
    if line.isascii() and line.isprintable():
        return None
    return next((char for char in line if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs")), None)
