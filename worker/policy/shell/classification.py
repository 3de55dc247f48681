"""The classification of a line, and of all texts in it that a shell executes."""

from __future__ import annotations

import unicodedata
from collections import deque
from dataclasses import dataclass

from deputize.worker.policy.decision import Decision, strictest
from deputize.worker.policy.shell.classified import Classified, SubCommand
from deputize.worker.policy.shell.parser import ParseFailure, Parser
from deputize.worker.policy.shell.plain_line import plain_words
from deputize.worker.policy.shell.programs.forbidden import why_forbidden
from deputize.worker.policy.shell.text_scan import possible_commands
from deputize.worker.policy.shell.walk import Walk
from deputize.worker.policy.shell.words import Word

_MAX_SCRIPTS = 100
"""Texts of one line that are parsed; the others are only searched."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """Classifies lines with this parser."""

    parser: Parser

    def classify(self, line: str) -> Classified:
        """Returns the class of a line."""
        if control := _control_character(line):
            return Classified(
                Decision.DENY,
                f"it contains the control character U+{ord(control):04X}, which hides what a line does; write it as an "
                "escape, such as $'\\r'",
                malformed=True,
            )
        walk = Walk()
        self._execute(line, walk)
        return _result(walk)

    def _execute(self, line: str, walk: Walk) -> None:
        """Walks through a line and through all texts that it makes a shell execute."""
        waiting, seen = deque([(line, False)]), set[str]()
        while waiting:
            text, walk.guessed = waiting.popleft()
            if text in seen:
                continue
            seen.add(text)
            if len(seen) > _MAX_SCRIPTS:
                walk.effect(Decision.ASK, "it contains too many texts that a shell executes")
                _search(text, walk)
                continue
            self._walk(text, walk)
            waiting += walk.scripts
            walk.scripts = []
            if walk.reads_script:
                waiting += [(each, True) for each in walk.inputs]

    def _walk(self, text: str, walk: Walk) -> None:
        if words := plain_words(text):
            walk.command([Word.literal(each) for each in words], walk.guessed)
            return
        try:
            walk.through(self.parser.parse(text))
        except ParseFailure as error:
            walk.effect(Decision.ASK, str(error))
            _search(text, walk)
            # A shell executes the lines before a mistake.
            before = "\n".join(text.split("\n")[: error.line - 1]) if error.line > 1 else ""
            if before:
                walk.scripts.append((before, True))


def _search(text: str, walk: Walk) -> None:
    """Denies a text that cannot be parsed, if a piece of it could be a forbidden command."""
    for words in possible_commands(text, 8):
        argv = [Word.literal(each) for each in words]
        if argv and (why := why_forbidden(argv)):
            walk.commands.append(SubCommand(tuple(words), Decision.DENY, f"{words[0]} {why}"))


def _result(walk: Walk) -> Classified:
    found = [(each.decision, each.reason) for each in walk.commands] + walk.effects
    decision = strictest(decision for decision, _ in found)
    if not found:
        return Classified(Decision.ASK, "there is no command in it", effects=("there is no command in it",))
    reason = next(reason for each, reason in found if each is decision)
    effects = tuple(dict.fromkeys(reason for _, reason in walk.effects))
    return Classified(decision, reason, tuple(dict.fromkeys(walk.commands)), effects)


def _control_character(line: str) -> str | None:
    if line.isascii() and line.isprintable():
        return None
    return next((char for char in line if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs")), None)
