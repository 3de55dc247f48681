"""Whether the unit tests of a file in Rust, which are beside its code, are all there as they were.

Whole tests may be added, and functions that exist only in tests, of names that the file did not have. None of them may
have anything that counts outside of its own body.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise

_FIRST_TEST = re.compile(
    r"(?<!\bmod )(?<!\bfn )(?<!\.)\btest\b|#\s{0,9}\[\s{0,9}(?:\w{1,40}\s{0,9}::\s{0,9}){0,3}\w{0,40}test"
)
_ADDED = re.compile(
    r"#\[(?:(?:\w+::)?test|cfg\(test\))\](?:\s*#\[[^\]\n]{0,400}\]){0,20}\s*"
    r"(?:pub(?:\([^)\n]{0,80}\))? )?(?:async )?fn (?P<name>\w+)\([^{};]{0,2000}\{"
)
_WORD = re.compile(r"\w+")
_PIECE = re.compile(
    r"""//[^\n]*|(?P<comment>/\*)|(?<![\w'])b?r(?P<marks>#*+)".*?(?:"(?P=marks)|(?P<open>\Z))"""
    r"""|(?P<unclear>\bcr#*+")|"(?:[^"\\]|\\.)*+(?:"|(?P<broken>\\?\Z))|'(?:[^'\\\n]|\\(?:u\{[^}\n]{0,20}\}|x..|.))'""",
    re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
_BRACE = re.compile(r"[{}]")
_ENDS_ITEM = re.compile(r"[{};]")
_REACHING = re.compile(
    r"\b(?:impl|macro_rules|macro|mod|extern|static|unsafe|trait|type)\b"
    r"|no_mangle|export_name|link_section|global_allocator|panic_handler"
)
_MAX_CHARS = 512 * 1024


def added_tests(before: bytes, now: bytes) -> set[str] | None:
    """Returns the names of the functions that were added for tests; None where tests from before may be others."""
    try:
        old, new = before.decode(), now.decode()
    except UnicodeDecodeError:
        return None
    if max(len(old), len(new)) > _MAX_CHARS:
        return None
    if "test" not in old and "test" not in new:
        return set()
    old_code, new_code = _code(old), _code(new)
    if old_code is None or new_code is None or (found := _added(new_code, {*_WORD.findall(old)})) is None:
        return None
    rest = [(end, begin) for (_, end), (begin, _) in pairwise([(0, 0), *found.values(), (len(new), 0)])]
    text, code = ("".join(each[begin:end] for begin, end in rest) for each in (new, new_code))
    return {*found} if _tests(text, code) == _tests(old, old_code) else None


def _code(text: str) -> str | None:
    """Returns a file with blanks for its comments and "xx" for its texts; None where these are not sure to end."""
    parts, at = list[str](), 0
    while found := _PIECE.search(text, at):
        end = _end_of_comment(text, found.end()) if found["comment"] else found.end()
        is_text = found[0][0] != "/"
        if end is None or found["unclear"] or found["open"] is not None or found["broken"] is not None:
            return None
        if is_text and _WORD.match(text, end):
            return None
        parts += (
            text[at : found.start()],
            (f'"{"x" * (end - found.start() - 2)}"' if is_text else " " * (end - found.start())),
        )
        at = end
    return "".join([*parts, text[at:]])


def _end_of_comment(text: str, at: int) -> int | None:
    """Returns where a comment ends that begins before a place: others may be in it."""
    depth = 1
    for found in _COMMENT.finditer(text, at):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return None


def _added(code: str, known: set[str]) -> dict[str, tuple[int, int]] | None:
    """Returns where functions for tests are whose names are not known; None where brackets do not match."""
    opened, ends = list[int](), dict[int, int]()
    for brace in _BRACE.finditer(code):
        if brace[0] == "{":
            opened.append(brace.end())
        elif not opened:
            return None
        else:
            ends[opened.pop()] = brace.end()
    if opened:
        return None
    reaching, found, at = [each.start() for each in _REACHING.finditer(code)], dict[str, tuple[int, int]](), 0
    for each in _ADDED.finditer(code):
        begin, end = each.start(), ends[each.end()]
        reaches = bisect_left(reaching, begin) < bisect_left(reaching, end)
        if begin >= at and each["name"] not in known and each["name"] not in found and not reaches:
            found[each["name"]], at = (begin, end), end
    return found


def _tests(text: str, code: str) -> list[str]:
    """Returns the lines from the first test on, behind the beginnings of what it is in and of itself."""
    first = _FIRST_TEST.search(code)
    if first is None:
        return []
    around, at = list[str](), 0
    for found in _ENDS_ITEM.finditer(code, 0, first.start()):
        if found[0] == "{":
            around.append(code[at : found.start()])
        elif found[0] == "}" and around:
            around.pop()
        at = found.end()
    heads = [" ".join(each.split()) for each in (*around, code[at : first.start()])]
    return [*heads, *(line.strip() for line in text[first.start() :].splitlines() if line.strip())]
