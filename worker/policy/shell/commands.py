"""The commands of a line, each judged together with those that it starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.classified import SubCommand
from deputize.worker.policy.shell.judgement import LONG, Argv, Judgement
from deputize.worker.policy.shell.programs import judge
from deputize.worker.policy.shell.programs.forbidden import enters_root, program_name, removes_all, why_forbidden
from deputize.worker.policy.shell.words import HOME, UNKNOWN, Word

_MAX_VARIANTS = 64
_MAX_DEPTH = 30
"""Commands that start each other, such as ``env nice timeout 5 ls``; deeper ones are only searched."""


@dataclass(slots=True)
class Commands:
    """What is found in a line."""

    commands: list[SubCommand] = field(default_factory=list[SubCommand])
    effects: list[tuple[Decision, str]] = field(default_factory=list[tuple[Decision, str]])
    scripts: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    """Texts that a shell executes, and whether that is only a guess: then only what they forbid counts."""
    inputs: list[str] = field(default_factory=list[str])
    """Texts that a command of the line may get as input, or as a file."""
    possible: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    unread: list[str] = field(default_factory=list[str])
    decodes: bool = False
    """Whether a command decodes its input."""
    reads_script: bool = False
    """Whether a command executes its input, or a file, as a shell script."""
    fed: list[Argv] = field(default_factory=list[Argv])
    """Commands that get words from the input."""
    _moves: bool = False
    _in_root: bool = False
    _removes_all: bool = False
    _uses_git: bool = False

    @property
    def is_denied(self) -> bool:
        return any(each.decision is Decision.DENY for each in reversed(self.commands))

    def effect(self, decision: Decision, reason: str, guessed: bool = False) -> None:
        """Adds an effect. Of a guess only what is forbidden counts."""
        if not guessed or decision is Decision.DENY:
            self.effects.append((decision, reason))

    def expansions(self, texts: Iterable[str]) -> None:
        """Adds texts in which a shell may replace ``$(…)``."""
        for text in texts:
            if "$(" in text or "`" in text or "${" in text:
                plain = text.replace(UNKNOWN, "").replace(HOME, "~").replace('"', "")
                self.scripts.append((f': "{plain}"', True))

    def command(self, argv: Argv, guessed: bool) -> None:
        """Judges a command, then those that it starts."""
        queue, seen = [(argv, guessed, 0)], set[tuple[int, tuple[str, ...]]]()
        while queue:
            argv, guessed, depth = queue.pop()
            key = len(argv), tuple(word.text for word in argv[:LONG])
            if not argv or key in seen:
                continue
            seen.add(key)
            if depth > _MAX_DEPTH or (depth and len(argv) > LONG):
                self._search(argv)
                continue
            judged = judge(argv)
            self._record(argv, judged, guessed)
            queue += [(each, guessed, depth + 1) for each in judged.starts]
            queue += [(each, True, depth + 1) for each in (*judged.may_start, *_variants(argv))]

    def feed(self) -> None:
        """Judges the commands that get words from the input, with each text that may be the input."""
        fed, self.fed = self.fed, []
        for argv, text in itertools.product(fed, dict.fromkeys(self.inputs)):
            for given in ([text], text.split()):
                self.command([each for word in argv for each in _filled(word, given)], guessed=True)

    def conclude(self) -> None:
        """Adds what only follows from several commands."""
        if self._in_root and self._removes_all:
            self.effect(Decision.DENY, "removes everything below a directory of the system or the home directory")
        if self._moves and self._uses_git:
            self.effect(Decision.ASK, "git may run what the configuration of another directory names")

    def _record(self, argv: Argv, judged: Judgement, guessed: bool) -> None:
        shown = tuple(word.shown for word in argv)
        if guessed:
            self.possible.append(shown)
        if judged.decision is Decision.DENY or not guessed:
            self.commands.append(SubCommand(shown, judged.decision, judged.reason, _pattern(argv, judged)))
        self.scripts += [(text, guessed) for text in judged.scripts]
        self.scripts += [(text, True) for text in judged.may_execute]
        self.expansions(judged.expands)
        self.reads_script = self.reads_script or judged.reads_script
        if judged.fed:
            self.fed += judged.starts
        self.decodes = self.decodes or program_name(argv) in ("base64", "base32", "openssl")
        self._in_root = self._in_root or enters_root(argv)
        self._removes_all = self._removes_all or removes_all(argv)
        self._moves = self._moves or program_name(argv) in ("cd", "pushd", "popd")
        self._uses_git = self._uses_git or program_name(argv) == "git"

    def _search(self, argv: Argv) -> None:
        """Denies what begins with a forbidden command anywhere, where too many commands start each other."""
        self.effect(Decision.ASK, "too many commands start each other")
        for at in range(len(argv)):
            self.possible.append(tuple(word.shown for word in argv[at : at + 8]))
            if why := why_forbidden(argv[at : at + 8]):
                self.effect(Decision.DENY, f"{argv[at].shown} {why}")


def _pattern(argv: Argv, judged: Judgement) -> tuple[str, ...]:
    """Returns the words for which an answer can be remembered; none if the shell might replace one of them."""
    words = argv[: judged.remembered]
    if judged.decision is Decision.DENY or not all(word.known for word in words):
        return ()
    return tuple(word.text for word in words)


def _filled(word: Word, given: list[str]) -> list[Word]:
    if UNKNOWN not in word.text:
        return [word]
    if word.splits:
        return [Word.literal(text) for text in given]
    return [Word.literal(word.text.replace(UNKNOWN, " ".join(given)))]


def _variants(argv: Argv) -> Iterator[list[Word]]:
    """Yields the commands that this one may be if its expansions have the texts that they may have."""
    if not any(word.guesses for word in argv):
        return
    options = [word.guesses or (word.text,) for word in argv]
    for texts in itertools.islice(itertools.product(*options), _MAX_VARIANTS):
        words: list[Word] = []
        for word, text in zip(argv, texts, strict=True):
            if not word.guesses:
                words.append(word)
            else:
                words += [Word.literal(each) for each in (text.split() if word.splits else [text])]
        if words:
            yield words
