"""Code in the arguments of an interpreter: whether it starts what it reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAMES = (
    r"(?:\b(?:(?<!platform\.)system|popen\w*|Popen|spawn\w*|posix_spawnp?|create_subprocess_\w+|exec(?:[lv]p?e?|Sync"
    r"|File(?:Sync)?)?|eval|passthru|shell_exec|proc_open|qx|check_(?:call|output)|getoutput|getstatusoutput|pcntl_exec"
    r"|open3|capture[23]e?|Deno\.(?:Command|run))\b(?!\s{0,9}\(\s{0,9}\))"
    r"|\bsubprocess(?:\.\w+|\s+(?:as|import)\b)|\bos\.execute\b|\bBun\.\$|%x(?=[({\[<!|]))"
)
"""What starts a program or executes a text, in the languages of interpreters; not without an argument."""
_SHELL = r"[\"'](?:[\w/]{0,40}/)?(?:\w{0,3}sh|env|xargs)[\"']"
"""A program that starts what its arguments name."""
_LITERAL = re.compile(
    rf"{_NAMES}[ \t]{{0,9}}\(?[ \t]{{0,9}}\[?[ \t]{{0,9}}(?!{_SHELL})(?:\"[^\"\\$#\n]*\"|'[^'\\\n]*')"
    r"(?=[ \t]{0,9}(?:[,;)}\]\n]|\Z))"
    r"|`[^`$#\n]*`"
    r"|\bimport[ \t]{1,9}(?![^;\n]{0,200}\bas\b)[\w., ]{1,200}(?=[;\n]|\Z)"
)
"""What starts a command that stands in the code, and an import under the name of the module."""
_STARTS = re.compile(rf"{_NAMES}|\bsubprocess\b")
_STRING = re.compile(
    r"(?<=[(\[{,=:\s])(?:\"[\w./: -]{0,200}\"|'[\w./: -]{0,200}')(?=\s{0,9}(?:[)},;:]|\](?!\s{0,9}\()|\Z))"
)
"""A text that is only data, as far as one can see without the grammar of the language."""
_CALLS_BY_NAME = re.compile(
    r"\b(?:getattr|__import__|import_module|modules|__dict__|vars|attrgetter|methodcaller|child_process|require_once"
    r"|__send__|send|public_send|method|apply|call_user_func\w*|array_map)\b|\$\w+\s{0,9}\("
    r"|\b(?:require|import)\s{0,9}\((?!\s{0,9}[\"'][\w@/.:-]{1,200}[\"']\s{0,9}\))"
)
"""With which a text may be the name of what starts a program."""
_OF_PATTERN = re.compile(r"[\w/)\]]\.exec\b")
"""In JavaScript without child_process, the method of a regular expression."""
_JAVASCRIPT = re.compile(r"node|nodejs|deno|bun|tsx|ts-node")
_PIPE = re.compile(r"\bopen\b[^;|\n{)]{0,80}(?:[\"']\s{0,9}-?\s{0,9}\||\|-?\s{0,9}[\"'])(?!\|)")
"""What opens a command, in perl and ruby."""
_OPENS_PIPES = re.compile(r"(?:perl|ruby)[\d.]*")
_BACKTICKS = re.compile(r"(?:perl|ruby|php|julia)[\d.]*")
"""Interpreters that start what stands between two of them."""
_READS = re.compile(
    r"\b(?:open\w*|read\w*|gets|fgets|getline|STDIN|stdin|input|readFileSync|file_get_contents|slurp|lines|recv\w*|urlopen"
    r"|fetch|requests|Path|environ|getenv|ENV|env|argv|ARGV|ARGF|File|IO|Bun\.file)\b|\$_\b|\$<|<\w*>|\$ENV"
)
"""What code reads that does not stand in it."""
_EACH_LINE = re.compile(r"-(?!-)[A-Za-z0-9]{0,9}?[np][A-Za-z0-9]*.*", re.DOTALL)
"""Options of perl and ruby that execute the code for each line of their files."""
_IN_OTHERS = re.compile(
    r"\b(?P<name>perl|ruby|python[\d.]{0,9}|node|php|lua|deno|bun|julia)(?:\s{1,9}[^\s;&|'\"]{1,40}){0,5}?"
    r"\s{1,9}(?P<option>-(?=\w{0,9}[cenprE])\w{1,9}|eval)\s{0,9}['\"$]"
)
"""An interpreter with an option, behind which code stands in quotes."""
_MOST, _LONGEST_CODE = 32, 2_000


def starts_what_it_reads(name: str, code: str, options: Sequence[str]) -> bool:
    """Whether code starts programs, and reads what they may be from files, its input or its environment."""
    rest = _LITERAL.sub(" ", code)
    if not _CALLS_BY_NAME.search(code):
        rest = _STRING.sub(" ", rest)
        if _JAVASCRIPT.fullmatch(name):
            rest = _OF_PATTERN.sub(" ", rest)
    starts = _STARTS.search(rest) or (_OPENS_PIPES.fullmatch(name) and _PIPE.search(rest))
    if not starts and not (_BACKTICKS.fullmatch(name) and "`" in rest):
        return False
    return _READS.search(code) is not None or any(map(_EACH_LINE.fullmatch, options))


def interpreter_in(line: str) -> str | None:
    """Returns an interpreter of a line that is not plain whose code may start what it reads; or None."""
    for number, found in enumerate(_IN_OTHERS.finditer(line)):
        code = line[found.end() - 1 : found.end() + _LONGEST_CODE]
        if number == _MOST or starts_what_it_reads(found["name"], code, [found["option"]]):
            return found["name"]
    return None
