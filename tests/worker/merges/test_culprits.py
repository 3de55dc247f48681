"""What fails together is named in few checks: of fifty results the ten pairs that were planted, and any other group."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.patch_format import Hunk, PatchPart
from deputize.shared.patches.directory import Directory
from deputize.shared.patches.siblings import Side, merged
from deputize.worker.merges.culprits import Search
from tests.shared.patches.siblings import changed, merge, pairs, side
from tests.worker.merges.corpus import BASE, HARMLESS, SEMANTIC, TEXTUAL, works
from tests.worker.workspace.trees import plant, tree

PROJECT = {path: text.encode() for path, text in BASE.items()}
PLANTED = {
    f"{kind} {number} {half}": each
    for kind, found in (("semantic", SEMANTIC), ("textual", TEXTUAL))
    for number, both in enumerate(found)
    for half, each in zip("ab", both, strict=True)
}
ALL = {**PLANTED, **{f"harmless {number}": each for number, each in enumerate(HARMLESS)}}


def test_each_result_of_the_corpus_works_alone() -> None:
    assert len(ALL) == 50
    failing = {id: why for id, change in ALL.items() if (why := works(changed(PROJECT, change)))}
    assert failing == {}


@pytest.mark.parametrize("seed", range(3))
async def test_of_fifty_results_every_planted_pair_is_found_in_few_checks(tmp_path: Path, seed: int) -> None:
    ids = random.Random(seed).sample([*ALL], 50)
    sides = {id: side(id, PROJECT, ALL[id]) for id in ids}
    _, conflicts = merge(tmp_path, PROJECT, [*sides.values()])
    assert pairs(conflicts) == {frozenset((f"textual {number} a", f"textual {number} b")) for number in range(10)}
    left = [id for id in ids if not (id.startswith("textual") and id.endswith("b"))]

    async def check(chosen: Collection[str]) -> str:
        plant(tmp_path, changed(PROJECT, {}))
        with Directory(tmp_path) as target:
            plan, none = merged(target, [sides[id] for id in left if id in chosen])
            assert none == []
            plan.write()
        return works(tree(tmp_path))

    alone, every = [frozenset([id]) for id in left], frozenset(left)
    search = Search([sides[id] for id in left], check, [frozenset(), *alone], [every], await check(every))
    found = {frozenset(group): search.checks async for group in search.groups()}
    assert found.keys() == {frozenset((f"semantic {number} a", f"semantic {number} b")) for number in range(10)}
    assert max(found.values()) <= 8


def words(id: str, *own: str) -> Side:
    line = " ".join(own).encode()
    return Side(id, [PatchPart(None, f"{id}.txt", hunks=[Hunk(0, 0, [(b"+", line)])])])


async def searched(
    ids: Sequence[str], guilty: Collection[frozenset[str]], *, related: bool
) -> tuple[set[frozenset[str]], int]:
    """The groups that are found, and how many checks that took; each fails where all of its results are there."""
    shared = {id: f"common_{number}" for number, group in enumerate(guilty) for id in group if related}

    async def check(chosen: frozenset[str]) -> str:
        return "failed" if any(group <= chosen for group in guilty) else ""

    sides = [words(id, "import", "return", shared.get(id, "other")) for id in ids]
    alone = [frozenset([id]) for id in ids if frozenset([id]) not in guilty]
    search, checks = Search(sides, check, [frozenset(), *alone], [], ""), 0
    found: set[frozenset[str]] = set()
    async for group in search.groups():
        found.add(frozenset(group))
        checks += search.checks
    return found, checks + search.checks


IDS = [f"id{number:02}" for number in range(50)]


@pytest.mark.parametrize(("related", "most"), [(True, 5), (False, 17)])
async def test_a_pair_among_fifty_takes_few_checks_where_it_has_words_in_common(related: bool, most: int) -> None:
    for pair in random.Random(1).sample([(a, b) for a in IDS for b in IDS if a < b], 60):
        found, checks = await searched(IDS, [frozenset(pair)], related=related)
        assert found == {frozenset(pair)}
        assert checks <= most


@settings(max_examples=60, deadline=None)
@given(data=st.data(), related=st.booleans())
async def test_every_group_that_fails_is_found_whatever_its_size(data: st.DataObject, related: bool) -> None:
    ids = IDS[: data.draw(st.integers(1, 12))]
    group = frozenset(data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=4, unique=True)))
    assert (await searched(ids, [group], related=related))[0] == {group}
    assert (await searched(ids, [], related=related)) == (set(), int(len(ids) > 1))
