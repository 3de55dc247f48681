"""list_directory: names, sizes, and what is not a file."""

from __future__ import annotations

import os

import pytest

from deputize.shared.errors import ErrorType
from tests.runs.toolbench import Toolbench


@pytest.mark.requirement("S004-015")
async def test_directories_come_first_and_files_have_their_size(desk: Toolbench) -> None:
    desk.write("zebra/inner.txt")
    desk.write("b.txt", "12345")
    desk.write(".hidden", "1")
    os.mkfifo(desk.root / "pipe")
    (desk.root / "link").symlink_to("b.txt")
    desk.write(".deputize/output/x.txt")
    result = await desk.call("list_directory")
    assert result.content.splitlines() == [
        "zebra/",
        ".hidden  (1 bytes)",
        "b.txt  (5 bytes)",
        "link  (link)",
        "pipe  (device, pipe or socket)",
    ]
    assert result.metadata == {"path": ".", "count": 5, "truncated": False}


async def test_an_empty_directory_is_reported(desk: Toolbench) -> None:
    (desk.root / "empty").mkdir()
    assert (await desk.call("ls", path="empty/")).content == "(The directory empty/ is empty.)"


async def test_a_file_is_no_directory(desk: Toolbench) -> None:
    desk.write("a.txt")
    assert (await desk.call("ls", path="a.txt")).error_type is ErrorType.NOT_A_DIRECTORY
    assert (await desk.call("ls", path="nope")).error_type is ErrorType.FILE_NOT_FOUND


async def test_a_very_full_directory_is_cut_with_its_count(desk: Toolbench) -> None:
    for number in range(1005):
        (desk.root / f"{number:04d}").touch()
    result = await desk.call("ls")
    assert (result.metadata["count"], result.metadata["truncated"]) == (1005, True)
    saved = desk.read(result.metadata["fullOutput"]).decode()
    assert saved.endswith("0999  (0 bytes)\n(1000 of 1005 entries. Use glob with a pattern to find the others.)")
