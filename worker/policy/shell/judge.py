"""What is known about each command of a plain line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .classified import Decision, SubCommand
from .forbidden import name_of, why_forbidden, words_why_forbidden, written_device
from .plain_line import Argv, NotPlain, Simple
from .programs import NAMES_ONLY, PROGRAMS, Arguments, Program, elsewhere, options

_OF_SYSTEM = re.compile(r"(?:/usr(?:/local)?)?/s?bin/(?!git$)([^/]+)")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "yash", "posh"))
READ_COMMANDS = _SHELLS | {"xargs", "parallel", "busybox", "source", "."}
"""Programs that execute what they read."""
_LAUNCHERS = {
    "timeout": (Program(options(["-v", "-ks~", "--preserve-status", "--foreground", "--signal~", "--kill-after~"])), 1),
    "nice": (Program(options(["-n~", "--adjustment~"])), 0),
    "env": (Program({}), 0),
    "command": (Program({}), 0),
}
"""Programs that only start the command in their arguments: their options, and the arguments before it."""
_NAMED_FIRST = frozenset({"-e", "-f", "--regexp", "--file", "--files"})
"""Options with which the first operand is a path."""
_BETWEEN = re.compile(r"[\s;&|(){}`'\"=!]+")
_GIT_OPTIONS = frozenset({"--no-pager", "-P", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"})
_FIND = re.compile(
    r"-(?:i?name|i?path|i?wholename|i?regex|regextype|x?type|size|empty|[amc]?newer|[amc](?:time|min)|perm|user|group"
    r"|links|inum|samefile|readable|writable|executable|m(?:ax|in)depth|depth|mount|xdev|daystart|follow|prune|quit"
    r"|print0?|printf|ls|true|false|not|and|or|a|o|[HLP]|i?lname|\d+[bcwkMG]?)|[!(),]"
)
_TEST = re.compile(r"-(?:[abcdefghkLnNOGprsSuwxz]|eq|ne|lt|le|gt|ge|nt|ot|ef|\d+)|!")
_EXPRESSIONS = {"find": _FIND, "test": _TEST, "[": _TEST}
"""Programs whose words that look like options are an expression, and the pattern of those with which they only read."""


def judged(command: Simple, fed: str) -> Iterator[SubCommand]:
    """Yields a command, and what it starts; ``fed`` is what it reads. Raises NotPlain for one that runs a text."""
    argv = command.words
    while argv:
        name = _name(argv)
        runs_text = name in _SHELLS and any(re.fullmatch(r"[-+](?!-).*c.*", word.text) for word in argv[1:])
        if runs_text or name in ("eval", "trap", "alias"):
            raise NotPlain(f"has {name}, which runs a text")
        began = _began(name, argv)
        yield _judge(name, argv, command, fed, is_launcher=began is not None)
        argv = began or ()


def _judge(name: str, argv: Argv, command: Simple, fed: str, *, is_launcher: bool) -> SubCommand:
    words = tuple(word.text for word in argv)
    if why := why_forbidden(words):
        return SubCommand(words, Decision.DENY, f"{name_of(words[0])} {why}")
    if is_launcher:
        return SubCommand(words, Decision.ALLOW, f"{name} only starts a command")
    found = _known(name, argv)
    if found:
        return found
    if not NAMES_ONLY.fullmatch(name) and (why := words_why_forbidden(f"{command.source}\n{fed}")):
        return SubCommand(words, Decision.DENY, f"{why[0]} {why[1]}")
    # Only the same words are remembered, unless they are not all that it works on.
    is_whole = not command.piped and not any(word.globs for word in argv)
    asks = _asks(argv, f"{name} is not known to only read with these arguments", words * is_whole)
    return asks if NAMES_ONLY.fullmatch(name) else replace(asks, may_start=tuple(_BETWEEN.split(" ".join(words))))


def _asks(argv: Argv, reason: str, pattern: Sequence[str]) -> SubCommand:
    words = tuple(word.text for word in argv)
    if device := written_device(argv):
        return SubCommand(words, Decision.DENY, f"{words[0]} may change the device {device}")
    return SubCommand(words, Decision.ASK, reason, tuple(pattern))


def _known(name: str, argv: Argv) -> SubCommand | None:
    """Returns a command that the table knows with all its options."""
    if expression := _EXPRESSIONS.get(name):
        arguments = _literal(argv, expression)
        return _reading(name, argv, arguments) if arguments else None
    if name == "git":
        argv = [argv[0], *itertools.dropwhile(lambda word: word.text in _GIT_OPTIONS, argv[1:])]
    for names, program in _rows(name, argv):
        arguments = program.read(argv[len(names) - 1 :])
        if arguments is None:
            continue
        texts = 0 if _NAMED_FIRST.intersection(arguments.seen) else program.texts
        arguments.paths += [word.text for word in arguments.operands[texts:]]
        if program.reads and program.changing.keys().isdisjoint(arguments.seen):
            return _reading(" ".join(names), argv, arguments)
        pattern = (*names, *sorted({*arguments.seen}), "*")
        if program.exact or elsewhere(arguments.paths):
            pattern = tuple(word.text for word in argv)
        return _asks(argv, f"{' '.join(names)} may change something", pattern)
    return None


def _reading(name: str, argv: Argv, arguments: Arguments) -> SubCommand:
    words = tuple(word.text for word in argv)
    if path := elsewhere(arguments.paths):
        return SubCommand(words, Decision.ASK, f"{name} may leave the workspace with {path}", words)
    return SubCommand(words, Decision.ALLOW, f"{name} only reads")


def _rows(name: str, argv: Argv) -> Iterator[tuple[Sequence[str], Program]]:
    """Yields the rows of the table that may be meant, with their words, that of the longest subcommand first."""
    words = [name, *(word.text for word in argv[1:3])]
    for count in range(len(words), 0, -1):
        if program := PROGRAMS.get(" ".join(words[:count])):
            yield words[:count], program
    if program := PROGRAMS.get(" ".join([*words[:2], "NAME"])):
        yield words[:2], program


def _name(argv: Argv) -> str:
    """Returns the name that a program is judged by: without a directory of the system."""
    found = _OF_SYSTEM.fullmatch(argv[0].text)
    return found[1] if found else argv[0].text


def _began(name: str, argv: Argv) -> Argv | None:
    """Returns the command that a launcher starts; None if it is none, or does more than that."""
    if name not in _LAUNCHERS:
        return None
    program, operands = _LAUNCHERS[name]
    at = 1
    while at < len(argv) and argv[at].text.startswith("-"):
        after = program.option(argv, at, Arguments())
        if after is None:
            return None
        at = after
    began = argv[at + operands :]
    return began if began and "=" not in began[0].text and not any(word.globs for word in argv[: at + 1]) else None


def _literal(argv: Argv, pattern: re.Pattern[str]) -> Arguments | None:
    """Returns the operands; None where a word that looks like an option does not match the pattern."""
    for word in argv[1:]:
        if word.may_be_option or (word.text[:1] in ("-", "!", "(", ")", ",") and not pattern.fullmatch(word.text)):
            return None
    return Arguments(paths=[word.text for word in argv[1:]])
