"""Glob patterns for paths, matched without backtracking, because patterns come from models and untrusted files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from ...shared.errors import ErrorType, ToolError

MAX_ALTERNATIVES = 256
MAX_CHARS = 4096
PatternParts = tuple[re.Pattern[str] | None, ...]
"""One pattern per path part; None (``**``) matches any number of parts, also none."""
Exists = Callable[[str], bool]
"""Whether a path exists, relative to the directory where the pattern starts."""
_ESCAPED = re.compile(r"\\([*?\[\]{}])")
_BRACKET = re.compile(r"(?<!\\)\[")
_WILD_NAME = re.compile(r"[*?]")


class GlobPattern:
    """A compiled pattern: ``*`` and ``?`` match inside a name, ``**`` any directories, ``{a,b}`` and ``[a-z]`` choose.

    Names may contain brackets, as in ``app/[id]/page.tsx``. With ``exists``, leading names that exist literally match
    only literally; any other name with brackets matches both as a class and literally.
    """

    def __init__(self, pattern: str, *, exists: Exists | None = None, ignore_case: bool = False) -> None:
        self._alternatives = [_split_pattern(each, ignore_case) for each in expand(pattern, exists)]

    def matches(self, path: str) -> bool:
        """Whether the pattern matches the whole path."""
        folder, _, name = path.rpartition("/")
        return self.at(folder).fits(name)

    def at(self, folder: str = ".") -> GlobState:
        """Returns the state of the match after the path of a directory."""
        state = GlobState([(parts, _skip_globstars({0}, parts)) for parts in self._alternatives])
        for name in folder.split("/"):
            state = state if name in ("", ".") else state.inside(name)
        return state


class GlobState:
    """The state of a match at a directory, so that the path of a directory is matched once for all its files."""

    def __init__(self, reached: Sequence[tuple[PatternParts, set[int]]]) -> None:
        self._reached = [(parts, states) for parts, states in reached if states]
        # the last part is never ``**``, so the last name of a path must match it
        ends = (parts[-1] for parts, states in self._reached if parts and len(parts) - 1 in states)
        self._ends = [end for end in ends if end is not None]

    def fits(self, name: str) -> bool:
        """Whether a file of this name, directly in this directory, matches the pattern."""
        for end in self._ends:  # noqa: SIM110 - called for every file of a tree, and twice as fast as any()
            if end.match(name):
                return True
        return False

    @property
    def is_over(self) -> bool:
        """Whether nothing below this directory can match."""
        return not self._reached

    def inside(self, name: str) -> GlobState:
        """Returns the state at a subdirectory."""
        return GlobState([(parts, _step(states, parts, name)) for parts, states in self._reached])


def _step(reached: set[int], parts: PatternParts, name: str) -> set[int]:
    """Returns the states after one more name."""
    after: set[int] = set()
    for at in reached:
        part = parts[at] if at < len(parts) else _NOTHING
        if part is None:
            after.add(at)
        elif part.match(name):
            after.add(at + 1)
    return _skip_globstars(after, parts)


@lru_cache(maxsize=4096)
def _name_pattern(part: str) -> re.Pattern[str]:
    """Compiles the pattern of one name. fnmatch writes atomic groups, so that no name makes the match slow."""
    # An open bracket stands for itself; fnmatch would look for its end from each of many.
    before, end, after = part.replace("[^", "[!").rpartition("]")
    return re.compile(fnmatch.translate(before + end + after.replace("[", "[[]")))


@lru_cache(maxsize=4096)
def _ignore_case_pattern(part: str) -> re.Pattern[str]:
    return re.compile(_name_pattern(part).pattern, re.IGNORECASE)


_NOTHING = re.compile(r"(?!)")
_ANYTHING = _name_pattern("*")


def expand(pattern: str, exists: Exists | None = None) -> list[str]:
    """Returns the alternatives of a pattern, without braces and escapes, and with literal brackets as ``[[]``."""
    if len(pattern) > MAX_CHARS:
        why = f"the pattern is longer than {MAX_CHARS} characters, and no path is; write a shorter one"
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, why)
    exists = exists or (lambda path: False)
    found: list[str] = []
    if "{" in pattern and exists(pattern):
        found.append(_literal(pattern))
    for alternative in _expand_braces(pattern):
        names = [name for name in alternative.split("/") if name not in ("", ".")]
        count = _count_existing(names, exists) if "[" in alternative else 0
        leading, rest = [*map(_literal, names[:count])], names[count:]
        found.append("/".join([*leading, *map(_fnmatch_escaped, rest)]))
        if any("[" in name for name in rest):
            found.append("/".join([*leading, *(_fnmatch_escaped(_BRACKET.sub("[[]", name)) for name in rest)]))
    return list(dict.fromkeys(found))


def _count_existing(names: Sequence[str], exists: Exists) -> int:
    """Returns how many leading names exist literally."""
    count = 0
    while count < len(names) and not _WILD_NAME.search(names[count]) and exists("/".join(names[: count + 1])):
        count += 1
    return count


def _literal(text: str) -> str:
    return re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", text)


def _fnmatch_escaped(part: str) -> str:
    """Returns the part with every escaped character as a class of one character, which is how fnmatch escapes."""
    return _ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)


def _split_pattern(pattern: str, ignore_case: bool) -> PatternParts:
    """Compiles the parts of a pattern. A ``**`` at the end matches at least one name, not the directory itself."""
    compiled = _ignore_case_pattern if ignore_case else _name_pattern
    parts = tuple(None if part == "**" else compiled(part) for part in pattern.split("/") if part not in ("", "."))
    return (*parts, _ANYTHING) if parts and parts[-1] is None else parts


def _skip_globstars(reached: set[int], parts: PatternParts) -> set[int]:
    """Adds the states after each ``**`` that is reached, because it may match no name."""
    for at in sorted(reached):
        while at < len(parts) and parts[at] is None:
            at += 1
            reached.add(at)
    return reached


def _expand_braces(pattern: str) -> list[str]:
    """Returns the pattern without braces, once per alternative. Raises ToolError if there are too many."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = _innermost_braces(current)
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


def _innermost_braces(pattern: str) -> tuple[int, int] | None:
    """Returns the offsets of the first braces that contain a comma and no other braces."""
    start = -1
    for at, character in enumerate(pattern):
        if character == "{":
            start = at
        elif character == "}" and start >= 0:
            if "," in pattern[start:at]:
                return start, at
            start = -1
    return None
