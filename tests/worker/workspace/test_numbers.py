"""Each attempt has files of its own, also where two have the same number because a claim is lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from deputize.shared.request import EmptyWorkspace
from deputize.shared.runs.record import FilesOf
from deputize.worker.workspace.generation import PREPARED, NumberTaken, restore
from deputize.worker.workspace.tree_copy import CopyTally
from deputize.worker.workspace.workspace import Workspace, with_free_number
from tests.worker.workspace.trees import directory


async def create(root: Path, number: int) -> Workspace:
    return await Workspace.create(EmptyWorkspace(), "dlg_1", root, attempt=number)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@pytest.mark.parametrize("number", [1, 2])
async def test_a_number_is_taken_by_one_attempt(root: Path, number: int) -> None:
    for each in range(1, number + 1):
        (await create(root, each)).close()
    before = names(root / "dlg_1")
    with pytest.raises(NumberTaken):
        await create(root, number)
    with pytest.raises(NumberTaken):
        await create(root, 1)
    assert (names(root / "dlg_1"), names(root)) == (before, ["dlg_1"])


async def test_a_number_is_taken_while_its_files_are_copied(root: Path) -> None:
    (await create(root, 1)).close()
    (root / "dlg_1/marks.2").mkdir()
    with pytest.raises(NumberTaken):
        await create(root, 2)
    (await create(root, 3)).close()


async def test_of_two_that_make_the_first_files_one_has_them(root: Path) -> None:
    def make_the_others(folder: Path, _: object) -> None:
        (root / "dlg_1/files").mkdir(parents=True)

    with pytest.raises(NumberTaken):
        await Workspace.create(EmptyWorkspace(), "dlg_1", root, restore=make_the_others)
    assert names(root) == ["dlg_1"]


async def test_the_other_attempt_takes_the_next_free_number(root: Path) -> None:
    first, checked = await create(root, 1), list[int]()
    first.files.write("a.txt", b"1")

    async def check() -> None:
        checked.append(len(names(root / "dlg_1")))

    second = await with_free_number(lambda number: create(root, number), 1, check)
    third = await with_free_number(lambda number: create(root, number), 1, check)
    assert [each.path.name for each in (first, second, third)] == ["files", "files.2", "files.3"]
    assert (len(checked), (third.path / "a.txt").read_bytes()) == (3, b"1")
    for each in (first, second, third):
        each.close()


async def test_files_that_a_parent_prepared_are_taken_once(root: Path) -> None:
    (await create(root, 0)).close()
    taken = await create(root, 1)
    assert taken.path.name == "files"
    with pytest.raises(NumberTaken):
        await create(root, 1)
    taken.close()


async def test_what_was_prepared_is_not_so_for_a_run_that_goes_on_with_it(root: Path) -> None:
    (await create(root, 0)).close()
    fill = partial(restore, root, FilesOf("dlg_1"), tally=CopyTally())
    (await Workspace.create(EmptyWorkspace(), "dlg_2", root, restore=fill)).close()
    assert PREPARED in names(root / "dlg_1")
    assert PREPARED not in names(root / "dlg_2")


async def test_a_copy_that_fails_leaves_its_number_to_the_next_try(source: Path, root: Path) -> None:
    first = await Workspace.create(directory(source), "dlg_1", root)
    start = root / "dlg_1/start.json"
    whole = start.read_bytes()
    start.write_bytes(b"broken")
    with pytest.raises(ValueError, match="Expecting value"):
        await create(root, 2)
    start.write_bytes(whole)
    (await create(root, 2)).close()
    first.close()
