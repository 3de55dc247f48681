"""The search for results that fail together: with few checks, because each one may be a whole test suite.

A binary search finds the first result with which those before it fail, and then what of these it fails with. Both look
first where results have rare words in common, also with the failing output: who changes a function, and who calls it,
name it. With a right guess a pair among 50 takes two or three checks, without any hint up to 15.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import fsum

from ...shared.patches.siblings import Side
from ..threads import run_in_thread

_WORD = re.compile(rb"[^\W\d]\w{2,}")
_SHOWN = 4
"""How much more a word counts that the failing check has printed."""


@dataclass(slots=True)
class Search:
    """The search among some results. What contains some that fail is taken to fail, and a part of what passes to pass.

    ``check`` merges and checks the results with some ids; it returns what that printed where they fail, else nothing.
    """

    sides: Sequence[Side]
    check: Callable[[frozenset[str]], Awaitable[str]]
    passing: list[frozenset[str]]
    """What is known to pass, also what needs no check: no result at all, and results that passed alone."""
    failing: list[frozenset[str]]
    output: str
    """What the check that failed last has printed."""
    checks: int = field(default=0, init=False)
    """Since a group was found."""

    async def groups(self) -> AsyncGenerator[list[str]]:
        """Yields results that fail together, and goes on without the first of them, until the others pass."""
        ids = [side.id for side in self.sides]
        while await self._fail(ids):
            yield (found := await self._group(ids))
            ids.remove(found[0])
            self.checks = 0

    async def _fail(self, ids: Iterable[str]) -> bool:
        chosen = frozenset(ids)
        if any(chosen <= known for known in self.passing):
            return False
        if any(chosen >= known for known in self.failing):
            return True
        self.checks += 1
        output = await self.check(chosen)
        (self.failing if output else self.passing).append(chosen)
        self.output = output or self.output
        return bool(output)

    async def _group(self, ids: Sequence[str]) -> list[str]:
        """Returns a smallest set of results that fail together; all ``ids`` together fail."""
        relation = await run_in_thread(Relation, [side for side in self.sides if side.id in ids], self.output)
        found, rest = list[str](), relation.order
        while True:
            near = [relation.nearest(id, found or rest[:at]) for at, id in enumerate(rest)]
            alone = 1.0 if len(found) > 1 else 1 / len(ids)
            number = await self._first([alone, *_shares(near)], found, rest)
            if number == 0:
                return found
            found.append(rest[number - 1])
            rest = sorted(rest[: number - 1], key=lambda each: -relation.nearest(each, found))

    async def _first(self, likely: Sequence[float], found: Sequence[str], rest: Sequence[str]) -> int:
        """Returns how many of the rest it takes to fail with the found ones; each check halves what is ``likely``."""
        low, high = 0, len(rest)
        while low < high:
            middle, half, passed = low, sum(likely[low : high + 1]) / 2, likely[low]
            while middle < high - 1 and passed < half:
                middle += 1
                passed += likely[middle]
            if await self._fail((*found, *rest[:middle])):
                high = middle
            else:
                low = middle + 1
        return low


def _shares(near: Sequence[float]) -> list[float]:
    """Returns how likely each is: half of it is shared by relation, where few are strong, and half evenly."""
    strong = [each**4 for each in near]
    return [each / (sum(strong) or 1) + 1 / len(near) for each in strong]


class Relation:
    """How much results have in common: their rare words count most, and those of the failing output besides. Blocks."""

    def __init__(self, sides: Sequence[Side], output: str) -> None:
        words = {side.id: words_of(side) for side in sides}
        often = Counter(word for each in words.values() for word in each)
        shown = set(_WORD.findall(output.encode()))

        def weight(found: Collection[bytes]) -> float:
            return fsum((_SHOWN if word in shown else 1) / often[word] for word in found)

        of_output = {id: weight(each & shown) / 2 for id, each in words.items()}
        self._between = {
            (one, other): weight(words[one] & words[other]) + of_output[one] + of_output[other]
            for one, other in combinations(words, 2)
        }
        strongest = sorted(self._between, key=lambda pair: -self._between[pair])
        self.order = [*dict.fromkeys(id for pair in strongest for id in pair)] or [*words]
        """The results, those of the strongest pair first."""

    def nearest(self, id: str, others: Sequence[str]) -> float:
        """Returns a number for the strongest relation of a result to one of the others."""
        pairs = (pair for other in others for pair in ((id, other), (other, id)))
        return max((self._between[pair] for pair in pairs if pair in self._between), default=0)


def words_of(side: Side) -> set[bytes]:
    """Returns the words of a result's paths and changed lines, and of those around, which often name what changes."""
    lines = (line for part in side.parts for hunk in part.hunks for _, line in hunk.lines)
    paths = (part.path.encode("utf-8", "surrogateescape") for part in side.parts)
    return {word for text in (*lines, *paths) for word in _WORD.findall(text)}
