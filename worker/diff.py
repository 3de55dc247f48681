"""What changed in a text, as a unified diff for people and as counts, in bounded time."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from itertools import takewhile

_CONTEXT = 3
_MAX_COMPARED = 2000
"""Lines compared by meaning; a larger change is shown as one block, since difflib's time grows with the square."""


@dataclass(frozen=True, slots=True)
class Diff:
    text: str
    added: int
    removed: int


def unified(before: str, after: str, path: str, *, created: bool = False) -> Diff:
    old, new = _lines(before), _lines(after)
    head = _same(old, new)
    tail = _same(old[head:][::-1], new[head:][::-1])
    start = max(0, head - _CONTEXT)
    end = -max(0, tail - _CONTEXT) or None
    groups = _groups(old[start:end], new[start:end], head - start, min(tail, _CONTEXT))
    added = removed = 0
    out = [f"--- {'/dev/null' if created else 'a/' + path}", f"+++ b/{path}"]
    for group in groups:
        first, last = group[0], group[-1]
        out.append(f"@@ -{_range(start + first[1], start + last[2])} +{_range(start + first[3], start + last[4])} @@")
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                out += [_shown(" ", line) for line in old[start + old_from : start + old_to]]
                continue
            removed += old_to - old_from
            added += new_to - new_from
            out += [_shown("-", line) for line in old[start + old_from : start + old_to]]
            out += [_shown("+", line) for line in new[start + new_from : start + new_to]]
    return Diff("\n".join(out) + "\n" if groups else "", added, removed)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _same(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


_Step = tuple[str, int, int, int, int]


def _groups(old: list[str], new: list[str], head: int, tail: int) -> list[list[_Step]]:
    if old == new:
        return []
    if len(old) <= _MAX_COMPARED and len(new) <= _MAX_COMPARED:
        return [
            list(group)
            for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT)
        ]
    steps: list[_Step] = [
        ("equal", 0, head, 0, head),
        ("replace", head, len(old) - tail, head, len(new) - tail),
        ("equal", len(old) - tail, len(old), len(new) - tail, len(new)),
    ]
    return [[step for step in steps if step[1] < step[2] or step[3] < step[4]]]


def _range(first: int, last: int) -> str:
    length = last - first
    return f"{first + 1 if length else first},{length}" if length != 1 else f"{first + 1}"


def _shown(sign: str, line: str) -> str:
    return sign + line[:-1] if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file"
