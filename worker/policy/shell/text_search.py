"""The words of a text that is not read as commands: whether one of them is a program that must not run."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from . import forbidden

_CODES = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3}))")
_EXPANSION = re.compile(r"\$(?:\w+|[@*#?$!-])|\$\{[^{}]*\}")
_DEFAULTS = re.compile(r"\$\{\w+:?[-+=?]")
_HOMES = re.compile(r"\$HOME\b|\$\{HOME\}|(?<![^\s\"'=:;&|(])~(?=[/\s;&|)\"']|\Z)")
_QUOTES = re.compile(r"[\"'\\]")
_BETWEEN = re.compile(r"([;&|\n(){}`<>$=,!\"'\\]+)")
_COMMANDS_BETWEEN = re.compile(r"[;&|\n()`<>]+|(?<!\S)[{}](?!\S)")
_BEFORE = re.compile(
    r"-.*|\d[\w.]*|then|do|else|elif|if|while|until|time|coproc|echo|printf|exec|eval|command|builtin|nohup"
    r"|(?:.*/)?(?:env|xargs|timeout|nice|ionice|stdbuf|setsid|watch|busybox|toybox|[bdz]?a?sh)"
)
"""Words that may precede a program: options and their numbers, keywords, programs that start another one."""
_OF_TEXT = re.compile(r"[=(\"'].*|[-+*/%:]=?|in|is|and|or|not|if|else|for|as", re.DOTALL)
"""What follows a name that is a word of another language."""
_PROGRAM_FOLDER = re.compile(r"\A.*bin/")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{6,}={0,2}")
_CALL = re.compile(r"(?<=[\w\])])\(")
"""Where the arguments of a function begin in another language."""
_FUNCTION = re.compile(r"(?<![\w:.-])([\w:.-]++)\s*+(?:\(\))?\s*+[{(]([^{}]*)[})]")
_MOST = 64


@dataclass(slots=True)
class Words:
    """The words of a text: all of them, and those that may stand in the place of a program."""

    anywhere: set[str] = field(default_factory=set[str])
    programs: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, text: str) -> Words:
        found = cls()
        for spelled in _spellings(text):
            pieces = _BETWEEN.split(spelled)
            for piece, after in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
                found._add(piece, after)
        return found

    def _add(self, piece: str, after: str) -> None:
        words = piece.split()
        names = [forbidden.name_of(each) for word in words for each in (word, *([word[2:]] if word[:1] == "-" else []))]
        self.anywhere.update(name for name in names if name)
        for word, following in zip(words, [*words[1:], after], strict=False):
            if not _OF_TEXT.fullmatch(following):
                self.programs.add(_PROGRAM_FOLDER.sub("", word))
            if not _BEFORE.fullmatch(word):
                break

    def hold(self, program: str) -> bool:
        """Whether a program is one of the words, also as a pattern in its place."""
        return program in self.anywhere or any(_may_be(word, program, 1) for word in self.programs)


def words_why_forbidden(text: str) -> tuple[str, str] | None:
    """Returns what in a text is forbidden, and why; or None."""
    words = Words.of(text)
    for name in sorted(words.anywhere):
        if (why := forbidden.why_never(name)) and (name not in forbidden.ORDINARY or name in words.programs):
            return name, why
    for pattern in sorted(words.programs):
        if name := next((name for name in forbidden.FORBIDDEN if _may_be(pattern, name, 2)), None):
            return pattern, forbidden.FORBIDDEN[name]
    joined = text.replace("\\\n", "")
    return _arguments_why_forbidden(text) or _arguments_why_forbidden(joined) or _decoded_why_forbidden(text)


def _arguments_why_forbidden(text: str) -> tuple[str, str] | None:
    plainer = _QUOTES.sub("", _EXPANSION.sub("\2", _HOMES.sub(forbidden.HOME, _DEFAULTS.sub(" ", text))))
    commands = [words for piece in _COMMANDS_BETWEEN.split(plainer) if (words := piece.split())]
    for words in commands:
        if device := next((word for word in words if not word.startswith("if=") and forbidden.is_device(word)), None):
            return device.rpartition("=")[2], "is a device of the machine"
        for at, word in enumerate(words):
            if forbidden.name_of(word) in ("rm", "chmod", "chown", "chgrp", "find", "systemctl", "loginctl"):
                argv = words[at : at + _MOST]
                if why := forbidden.why_forbidden(argv):
                    return " ".join(argv).replace(forbidden.HOME, "~"), why
    if forbidden.removes_root(commands):
        return "rm", "removes everything below a directory of the system or the home directory"
    if name := _fork_bomb(text):
        return name, "is a function that may start itself without end"
    return None


def _decoded_why_forbidden(text: str) -> tuple[str, str] | None:
    if "base64" not in text:
        return None
    decoded: list[str] = []
    for found in _BASE64.findall(text):
        with suppress(ValueError):
            decoded.append(base64.b64decode(found, validate=True).decode())
    return words_why_forbidden("\n".join(decoded).replace("base64", "")) if decoded else None


def _spellings(text: str) -> Iterator[str]:
    """Yields a text as it is, and with what a shell removes from words taken out of it."""
    text = _CALL.sub("( . ", _DEFAULTS.sub(" ", _CODES.sub(_character, text)))
    yield _QUOTES.sub("", text)
    text = text.replace("\\\n", "")
    bare = _QUOTES.sub("", text)
    yield text
    yield bare
    yield _EXPANSION.sub("", bare)
    yield _EXPANSION.sub(" ", bare)
    yield re.sub(r"[{},]", "", bare)


def _character(code: re.Match[str]) -> str:
    number = int(code[4], 8) & 0xFF if code[4] else int(code[1] or code[2] or code[3], 16)
    return chr(number) if 0x20 <= number < 0x7F else " "


def _may_be(pattern: str, name: str, least: int) -> bool:
    """Whether a pattern of file names with at least so many characters of its own matches a name."""
    return any(char in pattern for char in "*?[") and len(pattern.strip("*?")) >= least and fnmatchcase(name, pattern)


def _fork_bomb(text: str) -> str | None:
    """Returns the name of a function that is started beside another command in the body of one; or None."""
    found = _FUNCTION.findall(text)[:_MOST]
    for name, body in itertools.product((name for name, _ in found), (body for _, body in found)):
        started = rf"(?:{re.escape(name)}|\$FUNCNAME)"
        if re.search(rf"(?<!\S){started}\s*(?:\||&(?!&))|\|\s*{started}(?!\S)", body):
            return name
    return None
