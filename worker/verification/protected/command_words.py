"""The commands of a command line, read as far as their words are literal: of a check, a script, a recipe of make.

This reads any text and never fails. What it does not understand has no words, or too many of them: it decides which
files are protected and how tests are made to report, and forbids nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

MAX_CHARS = 20_000
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_OPERATOR = re.compile(r"&&|\|\||\|&?|;;?&?|\n|&(?!>)")
_REDIRECTION = re.compile(r"(?:\d+|&)?(?:>>|>\||>&|<<<|<<-|<<|<>|<&|>|<)")
_PLAIN = re.compile(r"[^\s;&|()<>'\"\\`$]+|\$(?!\()(?:\{[^}\n]{0,200}\}|\w+|.)?")
_SINGLE = re.compile(r"'([^']*)'?")
_IN_DOUBLE = re.compile(r"[^\"\\`$]+|\\.|\$(?!\()", re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_RESERVED = {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "fi", "done", "time", "exec", "eval"}
_JUDGES = {"grep", "egrep", "fgrep", "rg", "diff", "cmp", "test", "[", "[[", "jq", "comm", "sha256sum", "md5sum", "wc"}
"""Programs that decide by the output of others, or by the files that these left."""
LAUNCHERS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("command", "builtin", "nohup", "setsid", "xvfb-run", "catchsegv", "unbuffer", "doas"), ()),
    "env": ("-u", "-C", "-S"),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "timeout": ("-s", "-k", "--signal", "--kill-after"),
    "stdbuf": ("-i", "-o", "-e"),
    "sudo": ("-u", "-g"),
    "strace": ("-o", "-e"),
    "faketime": (),
    "direnv": (),
    "dotenv": ("-e", "-f"),
    "npx": ("-p", "--package"),
    "pnpx": (),
    "bunx": (),
    "cross-env": (),
}
"""Programs that start the command behind their options, with those of their options that have a value."""
_RUN: dict[str, Sequence[str]] = {
    "uv": ("--with", "--extra", "--group", "--python", "-p", "--project", "--directory", "--env-file", "--package"),
    "poetry": ("-C", "--directory", "-P", "--project"),
    "pipenv": (),
    "pdm": ("-p", "--project"),
    "rye": (),
    "hatch": ("-e", "--env", "-p", "--project"),
    "pixi": ("-e", "--environment", "--manifest-path"),
    "conda": ("-n", "--name", "-p", "--prefix"),
    "micromamba": ("-n", "-p"),
    "bundle": (),
    "composer": (),
    "pnpm": ("-C", "--dir", "--filter", "-F"),
    "yarn": ("--cwd",),
    "npm": ("--prefix", "-w", "--workspace", "-C"),
    "coverage": ("--source", "--rcfile", "--data-file", "--include", "--omit", "-p"),
}
"""Programs that start the command behind the word ``run`` or ``exec``."""
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish")
SYNTAX_ONLY: dict[str, Sequence[str]] = {
    **dict.fromkeys(SHELLS, ("-n",)),
    **dict.fromkeys(("node", "nodejs"), ("--check", "-c")),
    "perl": ("-c", "-wc"),
    "ruby": ("-c", "-wc"),
    "php": ("-l",),
}
"""Options with which interpreters read a program and do not execute it."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*|py")


@dataclass(frozen=True, slots=True)
class Word:
    """A word without its quotes, and where it stands in the line."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Simple:
    """One command. ``words``: without redirections, reserved words and the variables that are set before it."""

    words: tuple[Word, ...]
    variables: tuple[Word, ...] = ()
    folder: str | None = ""
    """Relative to where the line begins, by ``cd`` before it; None where that is not literal."""
    judged: bool = False
    """Whether another command of the line decides by what this one printed or left."""

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return posixpath.basename(self.words[0].text) if self.words else ""

    @property
    def end(self) -> int:
        return self.words[-1].end


def is_python(program: str) -> bool:
    return _PYTHON.fullmatch(program) is not None


def path_in(folder: str | None, path: str) -> str | None:
    """Returns a path below the workspace, or None for another one."""
    if folder is None or path.startswith(("/", "~")) or "$" in path:
        return None
    found = posixpath.normpath(posixpath.join(folder, path))
    return None if found.startswith("..") else found


def commands_of(line: str) -> list[Simple]:
    """Returns the commands of a line in their order, each without what merely launches it."""
    return [started(each) for each in _Reader(line[:MAX_CHARS]).read()]


@dataclass(slots=True)
class _Group:
    """Commands between parentheses, or of the whole line; the operator behind each."""

    closing: str
    folder: str | None
    judged: bool = False
    found: list[tuple[Simple, str]] = field(default_factory=list[tuple[Simple, str]])
    words: list[Word] = field(default_factory=list[Word])
    skips: bool = False
    """Whether the next word is where something is redirected to."""


@dataclass(slots=True)
class _Reader:
    """Reads a line from its beginning to its end; parentheses without recursion, as they may be many."""

    line: str
    at: int = 0
    groups: list[_Group] = field(default_factory=lambda: [_Group("", "")])
    text: list[str] = field(default_factory=list[str])
    start: int | None = None
    quoted: list[bool] = field(default_factory=lambda: [False])
    """For each group, whether what is read in it is in double quotes."""
    done: list[Simple] = field(default_factory=list[Simple])

    def read(self) -> list[Simple]:
        while self.at < len(self.line):
            if self.quoted[-1]:
                self._in_quotes()
            else:
                self._outside()
        while self.groups:
            self._close()
        return sorted(self.done, key=lambda each: each.words[0].start)

    def _in_quotes(self) -> None:
        char = self.line[self.at]
        if char == '"':
            self.quoted[-1], self.at = False, self.at + 1
        elif piece := _IN_DOUBLE.match(self.line, self.at):
            self._add(piece[0][1:] if piece[0][0] == "\\" and piece[0][1:] in '"\\$`' else piece[0], piece.end())
        else:
            self._open_or_close(char)

    def _outside(self) -> None:
        char = self.line[self.at]
        if blank := _BLANK.match(self.line, self.at):
            self._end_word(blank.end())
        elif self.start is None and (comment := _COMMENT.match(self.line, self.at)):
            self.at = comment.end()
        elif (self.start is None and (redirection := _REDIRECTION.match(self.line, self.at))) or char in "<>":
            redirection = _REDIRECTION.match(self.line, self.at)
            self._end_word(redirection.end() if redirection else self.at + 1)
            self.groups[-1].skips = True
        elif operator := _OPERATOR.match(self.line, self.at):
            self._end_word(operator.end())
            self._end_command(operator[0])
        elif char == "'":
            single = _SINGLE.match(self.line, self.at)
            assert single is not None
            self._add(single[1], single.end())
        elif char == '"':
            self.start = self.at if self.start is None else self.start
            self.quoted[-1], self.at = True, self.at + 1
        elif char == "\\":
            self._add(self.line[self.at + 1 : self.at + 2], self.at + 2)
        elif piece := _PLAIN.match(self.line, self.at):
            self._add(piece[0], piece.end())
        else:
            self._open_or_close(char)

    def _open_or_close(self, char: str) -> None:
        """A parenthesis, a substitution or its end."""
        if char == self.groups[-1].closing:
            self._end_word(self.at)
            self._close()
            self.at += 1
        elif char in "`(" or self.line.startswith("$(", self.at):
            is_judged = char != "("
            if not is_judged:
                self._end_word(self.at)
            self.groups.append(_Group("`" if char == "`" else ")", self.groups[-1].folder, is_judged))
            self.quoted.append(False)
            self.at += 2 if char == "$" else 1
            self._hold()
        else:
            self._end_word(self.at + 1)

    def _hold(self) -> None:
        """Ends a word in whose middle a substitution begins: it is not literal, and marked so."""
        if self.start is not None:
            self.groups[-2].words.append(Word("".join(self.text) + "$", self.start, self.at))
            self.text, self.start = [], None

    def _add(self, text: str, end: int) -> None:
        self.start = self.at if self.start is None else self.start
        self.text.append(text)
        self.at = end

    def _end_word(self, next_at: int) -> None:
        group = self.groups[-1]
        if self.start is not None:
            if not group.skips:
                group.words.append(Word("".join(self.text), self.start, self.at))
            group.skips = False
        self.text, self.start, self.at = [], None, next_at

    def _end_command(self, operator: str) -> None:
        group = self.groups[-1]
        words, group.words, group.skips = group.words, [], False
        while words and words[0].text in _RESERVED:
            words.pop(0)
        variables = list[Word]()
        while words and _VARIABLE.fullmatch(words[0].text):
            variables.append(words.pop(0))
        if not words:
            return
        group.found.append((Simple(tuple(words), tuple(variables), group.folder), operator))
        if words[0].text in ("cd", "pushd") and len(words) > 1:
            group.folder = path_in(group.folder, words[1].text)

    def _close(self) -> None:
        """Ends a group: what comes before a judge in it is judged."""
        self._end_word(self.at)
        self._end_command("")
        group, judged = self.groups.pop(), False
        self.quoted.pop()
        for simple, operator in reversed(group.found):
            judged = judged and operator != "||"
            self.done.append(replace(simple, judged=judged or group.judged))
            judged = judged or started(simple).program in _JUDGES


def started(simple: Simple) -> Simple:
    """Returns the command that launchers such as ``env`` and ``uv run`` start, at last."""
    for _ in range(8):
        inner = _behind(simple)
        if inner is None:
            break
        simple = inner
    return simple


def _behind(simple: Simple) -> Simple | None:
    words = list(simple.words)
    program, rest = simple.program, words[1:]
    if program in LAUNCHERS:
        rest = _without_options(rest, LAUNCHERS[program])
        rest = rest[1:] if program in ("timeout", "faketime") else rest
    elif program in _RUN:
        rest = _without_options(rest, _RUN[program])
        if (
            not rest
            or rest[0].text not in ("run", "exec", "x", "dlx")
            or (program in _SCRIPTS and rest[0].text == "run")
        ):
            return None
        rest = _without_options(rest[1:], _RUN[program])
        if program == "coverage" and rest and rest[0].text.endswith(".py"):
            rest = [Word("python", rest[0].start, rest[0].start), *rest]
    elif is_python(program) and [word.text for word in rest[:3]] == ["-m", "coverage", "run"]:
        return _behind(replace(simple, words=tuple(rest[1:])))
    else:
        return None
    variables = list(simple.variables)
    while rest and _VARIABLE.fullmatch(rest[0].text):
        variables.append(rest.pop(0))
    if program == "coverage" and rest and rest[0].text == "-m":
        rest = [Word("python", rest[0].start, rest[0].start), *rest]
    return replace(simple, words=tuple(rest), variables=tuple(variables)) if rest else None


_SCRIPTS = ("npm", "pnpm", "yarn", "bun")
"""Their ``run`` starts what package.json names."""


def _without_options(words: list[Word], with_value: Sequence[str]) -> list[Word]:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text == "--":
            return words[at + 1 :]
        if words[at].text == "-m" and "-m" not in with_value:  # coverage run -m
            break
        at += 2 if words[at].text in with_value else 1
    return words[at:]
