"""What a note says about the rest of an answer is true: following the notes shows every line exactly once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.tokens import tokens_at_most
from deputize.worker.tools.base import ToolResult
from deputize.worker.workspace.artifacts import Artifacts
from tests.toolbench import Toolbench, open_toolbench

LINE = re.compile(r" *(\d+)\|(.*)")
NEXT = re.compile(r"(?:[Gg]o on with|continue with read_file and) offset=(\d+)")
SAVED = re.compile(r"The whole output is in (\S+): read it in parts with read_file \(from offset=(\d+)")
ALPHABETS = [
    "ab ",
    "if self.x[0] == 'y': return z",
    "漢字仮名",
    "0x3fA9-",
    "\U0001f680e\u0301",
    "\t ",
    "\U00012000",
]


def numbered(content: str) -> list[tuple[int, str]]:
    return [(int(found[1]), found[2]) for line in content.split("\n") if (found := LINE.fullmatch(line))]


async def read_on(desk: Toolbench, path: str, offset: int, limit: int = 0) -> list[tuple[int, str]]:
    """The lines that a model sees that does what the notes say, from an offset on."""
    seen: list[tuple[int, str]] = []
    while True:
        page = await desk.call("read_file", path=path, offset=offset, limit=limit)
        assert page.success
        assert "fullOutput" not in page.metadata  # a page was never cut again
        assert tokens_at_most(page.content) <= 32_000 + 200
        seen += numbered(page.content)
        if not (then := NEXT.findall(page.content)):
            return seen
        assert int(then[-1]) > offset
        offset = int(then[-1])


lines = st.tuples(st.sampled_from(ALPHABETS), st.integers(1, 400), st.integers(1, 2500)).flatmap(
    lambda shape: st.lists(st.text(shape[0], max_size=shape[1]), min_size=1, max_size=8).map(
        lambda some: (some * (shape[2] // len(some) + 1))[: shape[2]]
    )
)


@settings(max_examples=30)
@given(lines, st.sampled_from([0, 0, 1, 3, 700, 1999, 2500]))
def test_the_pages_of_a_file_show_every_line_exactly_once(lines: list[str], limit: int) -> None:
    lines = lines[:25] if 0 < limit < 100 else lines

    async def read(root: Path) -> list[tuple[int, str]]:
        with open_toolbench(root) as desk:
            desk.write("a.txt", "\n".join(lines) + "\n")
            return await read_on(desk, "a.txt", 1, limit)

    with TemporaryDirectory() as root:
        assert asyncio.run(read(Path(root))) == list(enumerate(lines, 1))


@settings(max_examples=10)
@given(st.lists(lines, min_size=1, max_size=4))
def test_many_files_and_what_is_read_on_show_every_line_exactly_once(files: list[list[str]]) -> None:
    async def read(root: Path) -> None:
        with open_toolbench(root) as desk:
            for at, lines in enumerate(files):
                desk.write(f"{at}.txt", "\n".join(lines) + "\n")
            result = await desk.call("read_many_files", paths=[f"{at}.txt" for at in range(len(files))])
            assert "fullOutput" not in result.metadata
            for part in result.content.removeprefix("==> ").split("\n==> "):
                name, _, section = part.partition(" <==\n")
                seen = numbered(section)
                if then := NEXT.findall(section):
                    seen += await read_on(desk, name, int(then[0]))
                assert seen == list(enumerate(files[int(name.split(".")[0])], 1))

    with TemporaryDirectory() as root:
        asyncio.run(read(Path(root)))


async def whole_of(desk: Toolbench, result: ToolResult) -> str:
    """What a model sees of an answer that was cut, and of the file that its hint names."""
    shown, _, hint = result.content.partition("\n<system_hint")
    (then,) = SAVED.findall(hint)
    assert shown.count("\n") + 1 == int(then[1]) - 1
    rest = await read_on(desk, then[0], int(then[1]))
    assert [number for number, _ in rest] == list(range(int(then[1]), int(then[1]) + len(rest)))
    return "\n".join([shown, *(line for _, line in rest)])


@pytest.mark.parametrize("tool", ["grep", "list_directory", "glob", "read_artifact"])
async def test_an_answer_that_is_cut_goes_on_in_its_file_where_it_ended(desk: Toolbench, tool: str) -> None:
    lines = [f"{number:05d} " + "word " * 20 for number in range(3000)]
    for number in range(900 if tool in ("list_directory", "glob") else 0):
        desk.write(f"{'long_name_' * 9}{number:05d}.txt")
    desk.write("a.txt", "\n".join(lines))
    Artifacts(desk.files).add("a.txt", "\n".join(lines), 1)
    asked = {
        "grep": {"pattern": "word", "max_results": 1000},
        "list_directory": {},
        "glob": {"pattern": "*"},
        "read_artifact": {"name": "a.txt"},
    }
    context = desk.calls
    result = await desk.call_with(tool, asked[tool])
    saved = desk.read(f".deputize/output/call-{context + 1}.txt").decode()
    assert await whole_of(desk, result) == saved
