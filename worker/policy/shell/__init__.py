"""The class of a command line: whether it only reads, needs approval, or is forbidden."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from .executed_text import Input, executed_by, hidden_in, printed_by
from .forbidden import name_of, removes_root, why_forbidden, words_why_forbidden, written_device
from .plain_line import Argv, NotPlain, Simple, commands_of
from .programs import (
    EXPRESSIONS,
    GIT_OPTIONS,
    LAUNCHERS,
    NAMES_ONLY,
    PATTERN_OPTIONS,
    PROGRAMS,
    SHELLS,
    Arguments,
    Program,
    elsewhere,
)

PLAINLY = (
    "where a line is not plain, each word of it counts; write it plainly: literal words joined by ; && || |, and files "
    "with the tools for files"
)
_CACHED = 2_000
"""Characters: longer lines are hardly ever repeated, and cost memory."""
_LAUNCHERS = 20
"""Each of them is judged with all words after it."""
_OF_SYSTEM = re.compile(r"\A(?:/usr(?:/local)?)?/s?bin/(?!git$)([^/]+)\Z")
_BETWEEN = re.compile(r"[\s;&|(){}`'\"=!\[\],:<>]+")


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
    text: str = ""
    """What it executes as a program, as far as that stands in the line: each word of it may be a command."""
    is_hidden: bool = False
    """Whether it executes what does not stand in the line."""
    adds_input: bool = False
    """Whether arguments may follow that do not stand in the line."""


@dataclass(frozen=True, slots=True)
class CommandLine:
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
    hidden_in: str | None = None
    """The program that executes what does not stand in the line, if one does: a rule that denies covers it."""
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


def classify_line(line: str) -> CommandLine:
    """Returns the class of a line. Long ones take computing time, so it belongs into a thread."""
    return _cached(line) if len(line) <= _CACHED else _classify(line)


def _classify(line: str) -> CommandLine:
    line = line.replace("\r\n", "\n")
    if control := _control_character(line):
        return CommandLine(
            Decision.DENY,
            f"it contains the control character U+{ord(control):04X}, which hides what a line does; write it as an "
            "escape, such as $'\\r'",
            malformed=True,
        )
    try:
        if not line.isascii() and any(unicodedata.category(char) == "Cf" for char in line):
            raise NotPlain("has invisible characters, which may hide what it does")
        commands = _with_combined(_commands(commands_of(line)))
        if not commands:
            raise NotPlain("has no command")
    except NotPlain as error:
        why = str(error)
        if found := words_why_forbidden(line):
            return CommandLine(Decision.DENY, f"{found[0]} {found[1]}, and the line {why}: {PLAINLY}", (), line, why)
        return CommandLine(Decision.ASK, f"it {why}", (), line, why, hidden_in(line))
    decision = strictest(each.decision for each in commands)
    reason = next(each.reason for each in commands if each.decision is decision)
    hidden = next((each.words[0] for each in commands if each.is_hidden), None)
    return CommandLine(decision, reason, tuple(commands), hidden_in=hidden)


_cached = lru_cache(maxsize=1000)(_classify)


def _commands(commands: Sequence[Simple]) -> list[SubCommand]:
    """Returns the commands with their classes, and those that they start."""
    found: list[SubCommand] = []
    given: Input | None = None
    for each in commands:
        given = given if each.piped else None
        found += _with_started(each, given)
        given = printed_by(_texts(each.words), given)
    return found


def _with_combined(commands: list[SubCommand]) -> list[SubCommand]:
    """Returns the commands, stricter where several of them together do more than each alone."""
    if removes_root(each.words for each in commands):
        reason = "removes everything below a directory of the system or the home directory"
        return [replace(each, decision=Decision.DENY, reason=reason) for each in commands]
    moved = False
    for at, each in enumerate(commands):
        if moved and each.words[0] == "git" and each.decision is Decision.ALLOW:
            reason = "git may run programs that the configuration of another directory names"
            commands[at] = SubCommand(each.words, Decision.ASK, reason)
        moved |= each.words[0] == "cd"
    return commands


def _control_character(line: str) -> str | None:
    if line.isascii() and line.isprintable():
        return None
    return next((char for char in line if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs")), None)


def _with_started(command: Simple, given: Input | None) -> Iterator[SubCommand]:
    """Yields a command, and what it starts, with what is piped into it. Raises NotPlain for one that runs a text."""
    argv, started_by = command.words, 0
    while argv:
        if (started_by := started_by + 1) > _LAUNCHERS:
            raise NotPlain(f"starts a command by more than {_LAUNCHERS} others")
        name = _OF_SYSTEM.sub(r"\1", argv[0].text)
        runs_text = name in SHELLS and any(re.fullmatch(r"[-+](?!-).*c.*", word.text) for word in argv[1:])
        if runs_text or name in ("eval", "trap", "alias"):
            raise NotPlain(f"has {name}, which runs a text")
        started = _started_by(name, argv)
        yield _class_of(name, argv, command, given, is_launcher=started is not None)
        argv = started or ()


def _class_of(name: str, argv: Argv, command: Simple, given: Input | None, *, is_launcher: bool) -> SubCommand:
    words = _texts(argv)
    if why := why_forbidden(words):
        return SubCommand(words, Decision.DENY, f"{name_of(words[0])} {why}")
    if is_launcher:
        return SubCommand(words, Decision.ALLOW, f"{name} only starts a command")
    found = _in_table(name, argv)
    if found:
        return found
    executed = executed_by(words, given)
    takes_names_only = NAMES_ONLY.fullmatch(name) is not None
    if not takes_names_only and (why := words_why_forbidden(f"{command.source}\n{executed.text}")):
        return SubCommand(words, Decision.DENY, f"{why[0]} {why[1]}")
    # Only the same words are remembered, unless they are not all that it works on.
    is_whole = not command.piped and not any(word.globs for word in argv)
    asks = _changing(argv, f"{name} is not known to only read with these arguments", words * is_whole)
    asks = replace(asks, text=executed.text, is_hidden=executed.is_hidden, adds_input=executed.adds_input)
    return asks if takes_names_only else replace(asks, may_start=tuple(_BETWEEN.split(" ".join(words))))


def _changing(argv: Argv, reason: str, pattern: Sequence[str]) -> SubCommand:
    words = _texts(argv)
    if device := written_device(argv):
        return SubCommand(words, Decision.DENY, f"{words[0]} may change the device {device}")
    return SubCommand(words, Decision.ASK, reason, tuple(pattern))


def _in_table(name: str, argv: Argv) -> SubCommand | None:
    """Returns the class of a command whose options are all in the table; None for any other."""
    if expression := EXPRESSIONS.get(name):
        for word in argv[1:]:  # one that looks like an option must match the pattern
            looks = word.text[:1] in ("-", "!", "(", ")", ",") and not expression.fullmatch(word.text)
            if word.may_be_option or looks:
                return None
        return _reading(name, argv, [word.text for word in argv[1:]])
    if name == "git":
        argv = [argv[0], *itertools.dropwhile(lambda word: word.text in GIT_OPTIONS, argv[1:])]
    for names, program in _rows_of(name, argv):
        arguments = program.read(argv[len(names) - 1 :])
        if arguments is None:
            continue
        texts = 0 if PATTERN_OPTIONS.intersection(arguments.seen) else program.texts
        arguments.paths += [word.text for word in arguments.operands[texts:]]
        if program.reads and program.changing.keys().isdisjoint(arguments.seen):
            return _reading(" ".join(names), argv, arguments.paths)
        kept = [word.text for word in arguments.operands[: program.kept]]
        pattern = (*names, *sorted({*arguments.seen}), *kept, "*")
        writes = any(program.changing.get(each) == "=" for each in arguments.seen)
        if program.exact or writes or elsewhere(arguments.paths):
            pattern = _texts(argv)
        return _changing(argv, f"{' '.join(names)} may change something", pattern)
    return None


def _reading(name: str, argv: Argv, paths: Sequence[str]) -> SubCommand:
    words = _texts(argv)
    if path := elsewhere(paths):
        return SubCommand(words, Decision.ASK, f"{name} may leave the workspace with {path}", words)
    return SubCommand(words, Decision.ALLOW, f"{name} only reads")


def _rows_of(name: str, argv: Argv) -> Iterator[tuple[Sequence[str], Program]]:
    """Yields the rows of the table that may be meant, with their words, that of the longest subcommand first."""
    words = [name, *(word.text for word in argv[1:3])]
    for count in range(len(words), 0, -1):
        if program := PROGRAMS.get(" ".join(words[:count])):
            yield words[:count], program
    if program := PROGRAMS.get(" ".join([*words[:2], "NAME"])):
        yield words[:2], program


def _texts(argv: Argv) -> tuple[str, ...]:
    return tuple(word.text for word in argv)


def _started_by(name: str, argv: Argv) -> Argv | None:
    """Returns the command that a launcher starts; None for another program, or where it does more than that."""
    if name not in LAUNCHERS:
        return None
    program, operands = LAUNCHERS[name]
    at = 1
    while at < len(argv) and argv[at].text.startswith("-"):
        after = program.option(argv, at, Arguments())
        if after is None:
            return None
        at = after
    started = argv[at + operands :]
    is_plain = started and "=" not in started[0].text and not any(word.globs for word in argv[: at + 1])
    return started if is_plain else None
