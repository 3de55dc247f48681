"""Glob patterns over paths, matched without backtracking: patterns come from models and from strangers' files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from shared.errors import ErrorType, ToolError

MAX_ALTERNATIVES = 256
Parts = tuple[re.Pattern[str] | None, ...]
"""One pattern a name; None stands for any number of names, also none."""
Exists = Callable[[str], bool]
"""Whether a path is there, relative to where the pattern starts."""
_ESCAPED = re.compile(r"\\([*?\[\]{}])")
_BRACKET = re.compile(r"(?<!\\)\[")
_WILD_NAME = re.compile(r"[*?]")


class Pattern:
    """``*`` and ``?`` stay inside a name, ``**`` goes through directories, ``{a,b}`` and ``[a-z]`` choose.

    Brackets also stand in real names, as in ``app/[id]/page.tsx``. With ``exists``, leading names that are there as
    they are spelled mean themselves; any other name with brackets fits both as a class and as it is spelled.
    ``anywhere``: the pattern need not start at the top.
    """

    def __init__(
        self, pattern: str, *, exists: Exists | None = None, ignore_case: bool = False, anywhere: bool = False
    ) -> None:
        before = "**/" if anywhere else ""
        self._alternatives = [_parts(before + each, ignore_case) for each in spelled_out(pattern, exists)]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(fits(parts, names) for parts in self._alternatives)

    def at(self, folder: str = ".") -> Place:
        """The directory as this pattern sees it."""
        place = Place([(parts, _through({0}, parts)) for parts in self._alternatives])
        for name in folder.split("/"):
            place = place if name in ("", ".") else place.inside(name)
        return place


class Place:
    """A directory as a pattern sees it, so that what all its files share is looked at only once."""

    def __init__(self, reached: Sequence[tuple[Parts, set[int]]]) -> None:
        self._reached = [(parts, states) for parts, states in reached if states]
        # the last part is never ``**``, so a name that ends the path has to fit it
        ends = (parts[-1] for parts, states in self._reached if parts and len(parts) - 1 in states)
        self._ends = [end for end in ends if end is not None]

    @property
    def is_dead(self) -> bool:
        """Nothing below can fit."""
        return not self._reached

    def fits(self, name: str) -> bool:
        """Whether a file of this name, directly in here, fits the pattern."""
        for end in self._ends:  # noqa: SIM110 - asked of every file of a tree, and this is twice as fast as any()
            if end.match(name):
                return True
        return False

    def inside(self, name: str) -> Place:
        return Place([(parts, _step(states, parts, name)) for parts, states in self._reached])


def fits(parts: Parts, names: Sequence[str]) -> bool:
    """Whether the names fit the parts as a whole. All ways are followed at once, name by name."""
    last = parts[-1] if parts else _NOTHING
    if last is not None and not last.match(names[-1]):
        return False
    reached = _through({0}, parts)
    for name in names:
        reached = _step(reached, parts, name)
    return len(parts) in reached


def _step(reached: set[int], parts: Parts, name: str) -> set[int]:
    """How far one more name leads."""
    after: set[int] = set()
    for at in reached:
        part = parts[at] if at < len(parts) else _NOTHING
        if part is None:
            after.add(at)
        elif part.match(name):
            after.add(at + 1)
    return _through(after, parts)


@lru_cache(maxsize=4096)
def name_pattern(part: str) -> re.Pattern[str]:
    # fnmatch writes atomic groups, so that no name makes the match slow
    return re.compile(fnmatch.translate(part.replace("[^", "[!")))


@lru_cache(maxsize=4096)
def _any_case(part: str) -> re.Pattern[str]:
    return re.compile(name_pattern(part).pattern, re.IGNORECASE)


_NOTHING = re.compile(r"(?!)")
_ANYTHING = name_pattern("*")


def spelled_out(pattern: str, exists: Exists | None = None) -> list[str]:
    """The alternatives of a pattern without braces and escapes, with ``[[]`` for each bracket that means itself."""
    exists = exists or _is_nowhere
    found: list[str] = []
    if "{" in pattern and exists(pattern):
        found.append(_literal(pattern))
    for alternative in _expanded(pattern):
        names = [name for name in alternative.split("/") if name not in ("", ".")]
        count = _spelled_names(names, exists) if "[" in alternative else 0
        leading, rest = [*map(_literal, names[:count])], names[count:]
        found.append("/".join([*leading, *map(_unescaped, rest)]))
        if any("[" in name for name in rest):
            found.append("/".join([*leading, *(_unescaped(_BRACKET.sub("[[]", name)) for name in rest)]))
    return list(dict.fromkeys(found))


def _is_nowhere(path: str) -> bool:
    return False


def _spelled_names(names: Sequence[str], exists: Exists) -> int:
    """How many leading names are there as they are spelled."""
    count = 0
    while count < len(names) and not _WILD_NAME.search(names[count]) and exists("/".join(names[: count + 1])):
        count += 1
    return count


def _literal(text: str) -> str:
    return re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", text)


def _unescaped(part: str) -> str:
    """The part with a class of one character for every escaped one, which is how fnmatch escapes."""
    return _ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)


def over_names(parts: Sequence[str], *, ignore_case: bool = False) -> Parts:
    """A ``**`` at the end stands for at least one name: what is inside, not the directory itself."""
    compiled = _any_case if ignore_case else name_pattern
    ready = tuple(None if part == "**" else compiled(part) for part in parts)
    return (*ready, _ANYTHING) if ready and ready[-1] is None else ready


def _parts(pattern: str, ignore_case: bool) -> Parts:
    return over_names([part for part in pattern.split("/") if part not in ("", ".")], ignore_case=ignore_case)


def _through(reached: set[int], parts: Parts) -> set[int]:
    """``**`` may stand for nothing, so what comes after it is reached with it."""
    for at in sorted(reached):
        while at < len(parts) and parts[at] is None:
            at += 1
            reached.add(at)
    return reached


def _expanded(pattern: str) -> list[str]:
    """The pattern without braces, once for each alternative."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = _innermost(current)
        if found is None:
            done.append(current)
        else:
            start, end = found
            waiting += [current[:start] + choice + current[end + 1 :] for choice in current[start + 1 : end].split(",")]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS, f"the pattern has more than {MAX_ALTERNATIVES} alternatives in braces"
            )
    return done


def _innermost(pattern: str) -> tuple[int, int] | None:
    """The first braces that hold a comma and no other braces."""
    start = -1
    for at, character in enumerate(pattern):
        if character == "{":
            start = at
        elif character == "}" and start >= 0:
            if "," in pattern[start:at]:
                return start, at
            start = -1
    return None
