"""The classification of a line, and of all texts in it that a shell executes."""

from __future__ import annotations

import base64
import unicodedata
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from deputize.worker.policy.decision import Decision, strictest
from deputize.worker.policy.shell.classified import Classified, SubCommand
from deputize.worker.policy.shell.commands import Commands
from deputize.worker.policy.shell.parser import Node, ParseFailure
from deputize.worker.policy.shell.plain_line import plain_words
from deputize.worker.policy.shell.programs.forbidden import why_forbidden
from deputize.worker.policy.shell.text_scan import possible_commands
from deputize.worker.policy.shell.walk import Walk
from deputize.worker.policy.shell.words import Word

_MAX_SCRIPTS = 100
"""Texts of one line that are parsed; the others are only searched."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """Classifies lines. ``parse`` returns the statements of a text, or raises ParseFailure."""

    parse: Callable[[str], Sequence[Node]]

    def classify(self, line: str) -> Classified:
        """Returns the class of a line."""
        if control := _control_character(line):
            return Classified(
                Decision.DENY,
                f"it contains the control character U+{ord(control):04X}, which hides what a line does; write it as an "
                "escape, such as $'\\r'",
                malformed=True,
            )
        found = Commands()
        if any(unicodedata.category(char) == "Cf" for char in line if not char.isascii()):
            found.effect(Decision.ASK, "it contains invisible characters, which may hide what it does")
        self._execute(line, found)
        found.conclude()
        return _result(found)

    def _execute(self, line: str, found: Commands) -> None:
        """Walks through a line and through all texts that it makes a shell execute."""
        waiting, seen = deque([(line, False)]), set[str]()
        while waiting:
            text, guessed = waiting.popleft()
            if text in seen or (guessed and found.is_denied):
                continue
            seen.add(text)
            if len(seen) > _MAX_SCRIPTS:
                found.effect(Decision.ASK, "it contains too many texts that a shell executes")
                found.unread.append(text)
                _search(text, found)
                continue
            self._walk(text, found, guessed)
            found.feed()
            waiting += found.scripts
            found.scripts = []
            if found.reads_script:
                waiting += [(each, True) for each in found.inputs]
                waiting += [(each, True) for each in found.inputs if found.decodes for each in _decoded(each)]

    def _walk(self, text: str, found: Commands, guessed: bool) -> None:
        if words := plain_words(text):
            found.command([Word.literal(each) for each in words], guessed)
            return
        try:
            statements = self.parse(text)
            if not statements:
                found.effect(Decision.ASK, "there is no command in it", guessed)
            Walk(found, guessed).through(statements)
        except ParseFailure as error:
            found.effect(Decision.ASK, str(error), guessed)
            found.unread.append(text)
            _search(text, found)
            # A shell executes the lines before a mistake.
            before = "\n".join(text.split("\n")[: error.line - 1]) if error.line > 1 else ""
            if before:
                found.scripts.append((before, True))


def _search(text: str, found: Commands) -> None:
    """Denies a text that cannot be parsed, if a piece of it could be a forbidden command."""
    for words in possible_commands(text, 8):
        argv = [Word.literal(each) for each in words]
        if argv and (why := why_forbidden(argv)):
            found.commands.append(SubCommand(tuple(words), Decision.DENY, f"{words[0]} {why}"))


def _result(found: Commands) -> Classified:
    reasons = [(each.decision, each.reason) for each in found.commands] + found.effects
    decision = strictest(decision for decision, _ in reasons)
    reason = next((reason for each, reason in reasons if each is decision), "it only tests")
    effects = tuple(dict.fromkeys(reason for _, reason in found.effects))
    commands, possible = tuple(dict.fromkeys(found.commands)), tuple(dict.fromkeys(found.possible))
    return Classified(decision, reason, commands, effects, possible, tuple(found.unread))


def _decoded(text: str) -> list[str]:
    """Returns what a text means in Base64, if that is a text."""
    with suppress(ValueError):
        decoded = base64.b64decode("".join(text.split()), validate=True).decode()
        return [decoded] if _control_character(decoded) is None else []
    return []


def _control_character(line: str) -> str | None:
    if line.isascii() and line.isprintable():
        return None
    return next((char for char in line if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs")), None)
