"""Scripts of awk and sed: which commands they start, as far as these stand in the script.

A script that is not understood counts as one that starts what does not stand there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from getopt import GetoptError, getopt, gnu_getopt

AWK = re.compile(r"[gmn]?awk|original-awk")
SED = re.compile(r"g?sed")
_AWK_OPTIONS = "F:v:f:e:i:l:E:", ["field-separator=", "assign=", "file=", "source="]
_SED_OPTIONS = (
    "nrEsuzl:e:f:",
    [
        *("quiet", "silent", "regexp-extended", "separate", "unbuffered", "null-data", "posix", "debug"),
        *("line-length=", "expression=", "file="),
    ],
)
_IN_PLACE = re.compile(r"-[nrEsuz]*i.*|--in-place.*", re.DOTALL)
_CODE = frozenset(("-e", "--source", "--expression"))
_FILE = frozenset(("-f", "-E", "--file"))
_INPUT = re.compile(r"-|/dev/.*|/proc/.*")

_MAY_START = re.compile(r"system|[|@]")
_STRING = r'"((?:[^"\\\n]|\\["\\nt/])*+)"'
_PATTERN = r"/(?:[^/\\\n\[]|\\[^\n]|\[(?:[^\]/\\\n\"]|\\[^\]\n])*+\])*+/"
_AWK_TOKEN = re.compile(
    rf"system\s*\(\s*{_STRING}\s*\)"
    rf"|(?:\A|[({{;\n])\s*+{_STRING}\s*\|&?\s*getline\b"
    rf"|\|&?\s*{_STRING}(?=\s*(?:[;}}\n)\#]|\Z))"
    r"|(?P<other>system|@)"
    r'|"(?:[^"\\\n]|\\[^\n])*+"|\#[^\n]*+'
    rf"|(?:\A|[({{,;!~&?:\n=}}]|\|\|)\s*+{_PATTERN}|\|\|"
    r"|(?:\d|\]|\b(?!(?:print|printf|return|in|case|else|do|length|getline|exit|delete|system)\b)[A-Za-z_]\w*)\s*+/"
    r"|(?P<unread>[|\"/])"
)
_BODY = r"(?:(?!(?P={0}))[^\\\n\[]|\\[^\n]|\[\^?\]?(?:(?!(?P={0}))[^\]\\\n]|\\[^\]\n])*+\])*+"
_TEXT = r"(?:(?!(?P={0}))[^\\\n]|\\[\s\S])*+"
_LINES = r"(?:[^\\\n]|\\[\s\S])*+"
_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?(?:[^\]/\\\n]|\\[^\]\n])*+\])*+/[IM]*)"
_SED_WITHOUT_E = re.compile(
    rf"(?:[\s;}}]*+(?:{_ADDRESS}(?:\s*,\s*(?:{_ADDRESS}|[+~]\d+))?)?[\s!]*+"
    rf"(?:s(?P<s>[^\\\s\w]){_BODY.format('s')}(?P=s){_TEXT.format('s')}(?P=s)[gpiIMm\d]*+(?:w[^\n]*+)?"
    rf"|y(?P<y>[^\\\s\w]){_TEXT.format('y')}(?P=y){_TEXT.format('y')}(?P=y)"
    rf"|[aic]{_LINES}|[rRwW][^\n]*+|\#[^\n]*+|[qQlLv][ \t]*[\d.]*+|[btT:][ \t]*\w*+|[={{dDgGhHnNpPxzF]))*+[\s;}}]*+"
)
"""All of sed but what may start something: its ``e``, as a command and as a flag of ``s``."""

_IN_OTHERS = {
    "awk": re.compile(
        r"\bsystem\s{0,99}\(|\|&?\s{0,99}getline|\bprintf?\b[^;}|'\n]{0,200}\|(?!\|)|@[A-Za-z_]\w{0,99}\("
    ),
    "sed": re.compile(
        r"[/|,#:!@][gpiIMm0-9]{0,8}e[gpiIMm0-9]{0,8}(?=['\"\s;}]|\Z)|['\";{}\n0-9$/!][ \t]{0,99}e(?![\w.,/-])"
        r"|\bsed\s+e\s|\de\$"
    ),
}


@dataclass(frozen=True, slots=True)
class Script:
    """What a script starts."""

    text: str = ""
    """The commands that stand in it."""
    starts_others: bool = False
    """Whether it starts what does not stand in it, such as lines of its input."""
    is_input: bool = False
    """Whether the script, or a part of it, is what is piped into the program."""


def script_of(name: str, arguments: Sequence[str], given: str) -> Script | None:
    """Returns the script of awk or sed, into which ``given`` is piped; None for another program."""
    if AWK.fullmatch(name):
        return _script(arguments, given, getopt, _AWK_OPTIONS, _started_by_awk)
    if SED.fullmatch(name):
        options = [each for each in arguments if not _IN_PLACE.fullmatch(each)]
        return _script(options, given, gnu_getopt, _SED_OPTIONS, _started_by_sed)
    return None


def program_in(line: str) -> str | None:
    """Returns awk or sed where a line that is not plain may have a script of it that starts something; or None."""
    return next((name for name, starts in _IN_OTHERS.items() if name in line and starts.search(line)), None)


def _script(
    arguments: Sequence[str],
    given: str,
    read: Callable[[Sequence[str], str, list[str]], tuple[list[tuple[str, str]], Sequence[str]]],
    known: tuple[str, list[str]],
    started_by: Callable[[str], Script],
) -> Script:
    try:
        options, operands = read(arguments, *known)
    except GetoptError:
        return Script(" ".join(arguments), starts_others=True)
    code = [value for option, value in options if option in _CODE]
    files = [value for option, value in options if option in _FILE and value]
    is_input = any(map(_INPUT.fullmatch, files))
    parts = [*code, *([given] if is_input else []), *(operands[:1] if not code and not files else [])]
    found = started_by("\n".join(parts))
    return Script(found.text, found.starts_others, is_input)


def _started_by_awk(code: str) -> Script:
    if not _MAY_START.search(code):
        return Script()
    found, starts_others = list[str](), False
    for token in _AWK_TOKEN.finditer(code):
        command = next((each for each in token.groups()[:3] if each is not None), None)
        found += [] if command is None else [command]
        starts_others |= token["other"] is not None or token["unread"] is not None
    return Script(code if starts_others else "\n".join(found), starts_others)


def _started_by_sed(code: str) -> Script:
    if _SED_WITHOUT_E.fullmatch(code):
        return Script()
    return Script(re.sub(r"(?<![A-Za-z])e", " ", code), starts_others=True)
