"""Programs that execute a text: their input, or an argument. Which text that is, as far as it stands in the line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .forbidden import decoded_in, name_of
from .interpreted import interpreter_in, starts_what_it_reads
from .programs import LAUNCHERS, NAMES_ONLY, SHELLS
from .redirections import commands_with_input, without_documents, without_redirections
from .scripts import AWK, SED, Script, program_in, script_of

_PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*")
_INTERPRETERS = re.compile(
    rf"{_PYTHON.pattern}|(?:perl|ruby|lua|luajit|php|tclsh|wish|guile|julia|node|nodejs|octave)[\d.]*"
    r"|deno|tsx|ts-node|bun|expect|Rscript|R|osascript|groovy|jshell|irb|gnuplot"
)
_OTHERS = frozenset(("at", "batch", "crontab", "ed", "ex", "vi", "vim", "nvim", "emacs", "gdb", "dc", "m4", "sqlite3"))
"""Further programs that start what their input, or an argument, names."""
_SOURCES = frozenset(("source", "."))
_BEFORE_BUILTIN = re.compile(r"command|builtin|eval|[-+]\w*c\w*")
"""Words after which `source` and `.` are commands: elsewhere they are operands, as a pattern or the folder."""
_SHELL_HAS_CODE = re.compile(r"[-+](?!-)\w*c\w*")
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
_STARTS = re.compile(
    r"eval\s*[($]|(?:system|exec(?:[lv]p?e?|Sync|File(?:Sync)?)?|popen\w*|Popen|spawn\w*|subprocess|child_process|qx|passthru"
    r"|shell_exec|IO)\b|`|%x"
)
"""What code in another language has that starts programs, perhaps those that its input names."""
_SPLITS = re.compile(r"-[A-Za-z0-9]*S=?|--s(?:plit-string|[a-z-]*)=?")
"""Options of env behind which the words of a command stand in one."""
_MOST_STARTED = 32
_UNUSUAL = re.compile(r"\\(?![nt\\\"' ])")
_FORMAT = re.compile(r"(?:(?<![^\s])%s(?=[\s\\]|\Z)|(?<=\\[nt])%s(?=[\s\\]|\Z)|%%|\\[nt]|[^%\\])*")
_QUOTES = re.compile(r"[\"'\\]")
_SHELL = r"(?<![\w.-])(?:ba|da|z|k|mk|a|fi)?sh(?![\w.-])"
_EXPANDED = re.compile(
    rf"(?:\beval|{_SHELL}[^;&|\n]{{0,200}}?\s-\w*c\w*)\s+[\"']?[$`]"
    rf"|(?:{_SHELL}|\bsource|(?<!\S)\.)(?:\s+-\w+){{0,20}}\s+<\("
    rf"|{_SHELL}[^;&|\n<]{{0,200}}<<<\s*[\"']?[$`]"
    r"|(?:\A|[;&|\n]|\b(?:do|then|else)\s)[ \t]*\"?\$\((?!\()"
)
"""What executes the result of an expansion."""


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
    program = name_of(words[0])
    is_known = NAMES_ONLY.fullmatch(program) or (program in SHELLS and not any(map(_SHELL_HAS_CODE.fullmatch, words)))
    found = list[Executed]()
    for at in range(1 if is_known else len(words)):
        name = name_of(words[at])
        is_operand = name in _SOURCES and at > 0 and not _BEFORE_BUILTIN.fullmatch(words[at - 1])
        if is_operand or not _executes_texts(name):
            continue
        if len(found) == _MOST_STARTED:  # each of them is judged with all words after it
            return Executed(is_hidden=True)
        found.append(_executed(name, words[at + 1 :], given))
    text = "\n".join(each.text for each in found if each.text)
    return Executed(text, any(each.is_hidden for each in found), any(each.adds_input for each in found))


def _executes_texts(name: str) -> bool:
    known = _STARTERS | SHELLS | _OTHERS | _SOURCES | {"make", "gmake", "env"}
    return name in known or any(each.fullmatch(name) for each in (_INTERPRETERS, AWK, SED))


def _executed(name: str, arguments: Sequence[str], given: Input | None) -> Executed:
    if name in _STARTERS:
        return _started(name, arguments, given or Input())
    if script := script_of(name, arguments, given.text if given else ""):
        return _of_script(script, given)
    if name == "env":
        return _split(arguments)
    takes_code = name in _OTHERS or _INTERPRETERS.fullmatch(name)
    code = " ".join(arguments) if takes_code and any(map(_CODE.fullmatch, arguments)) else ""
    starts = code and _STARTS.search(code)
    if given is None or not (starts or _executes_input(name, arguments)):
        is_hidden = starts_what_it_reads(name, code, arguments)
        return Executed(f"{code}\n{decoded_in(code)}" if code else "", is_hidden)
    return Executed(f"{code}\n{given.text}\n{decoded_in(f'{code} {given.text}')}", not given.is_whole)


def _of_script(script: Script, given: Input | None) -> Executed:
    starts_others = script.starts_others or any(_executes_texts(name_of(word)) for word in script.text.split())
    if not (starts_others or script.is_input):
        return Executed(script.text)
    text = f"{script.text}\n{given.text}" if given else script.text
    return Executed(f"{text}\n{decoded_in(text)}", starts_others or not (given and given.is_whole))


def _split(arguments: Sequence[str]) -> Executed:
    """Returns what ``env -S`` executes: the words in one argument."""
    at = next((at for at, each in enumerate(arguments) if _SPLITS.match(each)), None)
    if at is None:
        return Executed()
    text = _SPLITS.sub(" ", arguments[at], count=1) + " " + " ".join(arguments[at + 1 :])
    return Executed(text.replace("\\_", " "), "${" in text)


def hidden_in(line: str) -> str | None:
    """Returns a program of a line that is not plain which executes what does not stand in the line; or None."""
    bare = without_redirections(without_documents(line))
    if expanded := _EXPANDED.search(line) or _EXPANDED.search(bare):
        return name_of((_QUOTES.sub("", expanded[0]).strip(";&| \t\n").split() or ["$("])[0])
    if name := program_in(line) or interpreter_in(line):
        return name
    for number, command in enumerate(commands_with_input(bare)):
        if number == _MOST_STARTED or executed_by(command, Input()).is_hidden:
            return name_of(command[0])
    return None


def _executes_input(name: str, arguments: Sequence[str]) -> bool:
    """Whether a program executes what is piped into it: not where a script is named, whose data that is."""
    if name in ("make", "gmake"):
        return any(map(_INPUT_OF_MAKE.fullmatch, arguments))
    if name in _SOURCES or name in _OTHERS:
        return True
    kind = "shell" if name in SHELLS else "python" if _PYTHON.fullmatch(name) else "other"
    has_code = {"shell": _SHELL_HAS_CODE, "python": _PYTHON_HAS_CODE}.get(kind, _HAS_CODE)
    if any(map(has_code.fullmatch, arguments)):
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
    if (
        is_open
        or any(each in program for each in ("{", *replaced))
        or (name == "parallel" and program.strip(":+") == "")
    ):
        return Executed(f"{given.text}\n{decoded_in(given.text)}", not given.is_whole, adds_input=True)
    return Executed(" ".join(arguments[at:]) if replaced or "{" in "".join(arguments) else "", adds_input=True)
