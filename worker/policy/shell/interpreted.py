"""Code in the arguments of an interpreter: whether it starts what it reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAMES = (
    r"(?:\b(?:system|popen\w*|Popen|spawn\w*|(?<!/\.)(?<!/[gimsuy]\.)exec(?:[lv]p?e?|Sync|File(?:Sync)?)?|eval|passthru"
    r"|shell_exec|proc_open|qx|check_(?:call|output)|getoutput|getstatusoutput|pcntl_exec|open3|capture[23]e?)\b"
    r"|\bsubprocess(?:\.\w+|\s+(?:as|import)\b)|\bos\.execute\b|%x(?=[({\[<!|]))"
)
"""What starts a program or executes a text, in the languages of interpreters."""
_LITERAL = re.compile(
    rf"{_NAMES}[ \t]{{0,9}}\(?[ \t]{{0,9}}\[?[ \t]{{0,9}}(?:\"[^\"\\$#\n]*\"|'[^'\\\n]*')"
    r"(?=[ \t]{0,9}(?:[,;)}\]\n]|\Z))"
    r"|`[^`$#\n]*`"
)
"""What starts a command that stands in the code."""
_STARTS = re.compile(_NAMES)
_BACKTICKS = re.compile(r"(?:perl|ruby|php)[\d.]*")
"""Interpreters that start what stands between two of them."""
_READS = re.compile(
    r"\b(?:open\w*|read\w*|gets|fgets|getline|STDIN|stdin|input|readFileSync|file_get_contents|slurp|lines|recv\w*|urlopen"
    r"|fetch|requests|Path|environ|getenv|ENV|env|argv|ARGV|ARGF|File|IO)\b|\$_\b|\$<|<\w*>|\$ENV"
)
"""What code reads that does not stand in it."""
_EACH_LINE = re.compile(r"-(?!-)[A-Za-z0-9]{0,9}?[np][A-Za-z0-9]*.*", re.DOTALL)
"""Options of perl and ruby that execute the code for each line of their files."""
_IN_OTHERS = re.compile(
    r"\b(?P<name>perl|ruby|python[\d.]{0,9}|node|php|lua|deno)(?:\s{1,9}[^\s;&|'\"]{1,40}){0,5}?"
    r"\s{1,9}(?P<option>-(?=\w{0,9}[cenprE])\w{1,9}|eval)\s{0,9}['\"$]"
)
"""An interpreter with an option, behind which code stands in quotes."""
_MOST, _LONGEST_CODE = 32, 2_000


def starts_what_it_reads(name: str, code: str, options: Sequence[str]) -> bool:
    """Whether code starts programs, and reads what they may be from files, its input or its environment."""
    rest = _LITERAL.sub(" ", code)
    if not _STARTS.search(rest) and not (_BACKTICKS.fullmatch(name) and "`" in rest):
        return False
    return _READS.search(code) is not None or any(map(_EACH_LINE.fullmatch, options))


def interpreter_in(line: str) -> str | None:
    """Returns an interpreter of a line that is not plain whose code may start what it reads; or None."""
    for number, found in enumerate(_IN_OTHERS.finditer(line)):
        code = line[found.end() - 1 : found.end() + _LONGEST_CODE]
        if number == _MOST or starts_what_it_reads(found["name"], code, [found["option"]]):
            return found["name"]
    return None
