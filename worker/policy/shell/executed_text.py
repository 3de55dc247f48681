"""Programs that execute a text: their input, or an argument. Which text that is, as far as it stands in the line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .forbidden import decoded_in, name_of
from .programs import LAUNCHERS, NAMES_ONLY, SHELLS

_PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*")
_INTERPRETERS = re.compile(
    rf"{_PYTHON.pattern}|(?:perl|ruby|lua|luajit|php|tclsh|wish|guile|julia|node|nodejs)[\d.]*"
    r"|deno|bun|expect|Rscript|R|osascript|groovy|jshell|irb|gnuplot"
)
_OTHERS = frozenset(("at", "batch", "crontab", "ed", "ex", "vi", "vim", "nvim", "emacs", "gdb", "dc", "m4", "sqlite3"))
"""Further programs that start what their input, or an argument, names."""
_STARTERS = frozenset(("xargs", "parallel"))
_CODE = re.compile(r"-(?!-)[A-Za-z0-9]*[cerEpx].*|--(?:eval|print|exec|command|run|ex)\b.*|eval|repl", re.DOTALL)
"""Words behind which code may stand."""
_HAS_CODE = re.compile(r"-(?!-)[A-Za-z]*[eE].*|--eval\b.*|eval", re.DOTALL)
_PYTHON_HAS_CODE = re.compile(r"-(?!-)[A-Za-z]*[cm].*", re.DOTALL)
"""Words with which the code stands in the arguments, so that the input is data."""
_FLAGS = {
    "shell": re.compile(r"[-+][abefhiklmnprtuvxBCEHPT]+"),
    "python": re.compile(r"-[uBEsSIOvqdbi]+"),
    "other": re.compile(r"-w"),
}
"""Options without a value, so that what follows them is a script."""
_INPUT = re.compile(r"-|/dev/.*|/proc/.*")
"""Names of the input as a file."""
_INPUT_OF_MAKE = re.compile(r"(?:-\w*f|--(?:make)?file=)?(?:-|/dev/.*|/proc/.*)")
_STARTER_VALUES = re.compile(r"-[IndPLsEaj]|--(?:arg-file|delimiter|max-args|max-procs|jobs|eof|max-lines)")
_REPLACES = re.compile(r"-[iI]|--replace")
_MOST_STARTED = 32
_UNUSUAL = re.compile(r"\\(?![nt\\\"' ])")
_FORMAT = re.compile(r"(?:%s(?=[\s\\]|\Z)|%%|\\[nt]|[^%\\])*")


@dataclass(frozen=True, slots=True)
class Input:
    """What is piped into a command: the text that came before in the line, and whether that is all, and unchanged."""

    text: str = ""
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    """What a command executes as a program."""

    text: str = ""
    """As far as it stands in the line."""
    is_hidden: bool = False
    """Whether it executes more than that."""
    adds_input: bool = False
    """Whether what it reads is added to the arguments of the command that it starts."""


def printed_by(words: Sequence[str], given: Input | None) -> Input:
    """Returns what a command prints, into which ``given`` is piped."""
    if name_of(words[0]) not in ("echo", "printf"):
        return Input(given.text if given else "")
    is_whole = not any(map(_UNUSUAL.search, words))
    if name_of(words[0]) == "printf":
        is_whole &= all(map(_FORMAT.fullmatch, words[1:2]))
    return Input(" ".join(words[1:]).replace("\\n", "\n").replace("\\t", "\t"), is_whole)


def executed_by(words: Sequence[str], given: Input | None) -> Executed:
    """Returns what a command executes as a program; ``given`` is piped into it, if anything is.

    Of a program that is not known each word may begin a command that it starts.
    """
    is_known = NAMES_ONLY.fullmatch(name_of(words[0])) or name_of(words[0]) in SHELLS
    found = list[Executed]()
    for at in range(1 if is_known else len(words)):
        name = name_of(words[at])
        if not _executes_texts(name):
            continue
        if len(found) == _MOST_STARTED:  # each of them is judged with all words after it
            return Executed(is_hidden=True)
        found.append(_executed(name, words[at + 1 :], given))
    text = "\n".join(each.text for each in found if each.text)
    return Executed(text, any(each.is_hidden for each in found), any(each.adds_input for each in found))


def _executes_texts(name: str) -> bool:
    known = _STARTERS | SHELLS | _OTHERS | {"make", "gmake", "source", "."}
    return name in known or _INTERPRETERS.fullmatch(name) is not None


def _executed(name: str, arguments: Sequence[str], given: Input | None) -> Executed:
    if name in _STARTERS:
        return _started(name, arguments, given or Input())
    takes_code = name in _OTHERS or _INTERPRETERS.fullmatch(name)
    code = " ".join(arguments) if takes_code and any(map(_CODE.fullmatch, arguments)) else ""
    if given is None or not _executes_input(name, arguments):
        return Executed(f"{code}\n{decoded_in(code)}" if code else "")
    return Executed(f"{code}\n{given.text}\n{decoded_in(f'{code} {given.text}')}", not given.is_whole)


def _executes_input(name: str, arguments: Sequence[str]) -> bool:
    """Whether a program executes what is piped into it: not where a script is named, whose data that is."""
    if name in ("make", "gmake"):
        return any(map(_INPUT_OF_MAKE.fullmatch, arguments))
    if name in ("source", ".") or name in _OTHERS:
        return True
    kind = "shell" if name in SHELLS else "python" if _PYTHON.fullmatch(name) else "other"
    if kind != "shell" and any(map((_PYTHON_HAS_CODE if kind == "python" else _HAS_CODE).fullmatch, arguments)):
        return False
    script = next((each for each in arguments if not _FLAGS[kind].fullmatch(each)), "-")
    return script[:1] in ("-", "+") or _INPUT.fullmatch(script) is not None


def _started(name: str, arguments: Sequence[str], given: Input) -> Executed:
    """Returns what xargs or parallel executes: the command in its arguments, with the input as further ones."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if _STARTER_VALUES.fullmatch(arguments[at]) else 1
    program = name_of(arguments[at]) if at < len(arguments) else ""
    replaced = [
        option.partition("=")[2] or option[2:] or value
        for option, value in itertools.pairwise(arguments[: at + 1])
        if _REPLACES.match(option)
    ]
    is_open = program in LAUNCHERS or program in SHELLS or program in _STARTERS
    if is_open or any(each in program for each in ("{", *replaced)) or (name == "parallel" and not program):
        return Executed(f"{given.text}\n{decoded_in(given.text)}", not given.is_whole, adds_input=True)
    return Executed(" ".join(arguments[at:]) if replaced or "{" in "".join(arguments) else "", adds_input=True)
