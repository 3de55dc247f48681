"""read_many_files, and the note about the rest of an answer: following it shows every line exactly once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.errors import ErrorType
from deputize.shared.tokens import count
from deputize.worker.tools.base import Kind, ToolResult
from deputize.worker.tools.builtin import DEFAULT_KIT
from deputize.worker.tools.pages import FileLines
from deputize.worker.workspace.artifacts import Artifacts
from tests.runs.toolbench import EVERYTHING, Toolbench, open_toolbench

LINE = re.compile(r" *(\d+)\|(.*)")
NEXT = re.compile(r"(?:[Gg]o on with|continue with read_file and) offset=(\d+)")
SAVED = re.compile(r"The whole output is in (\S+): read it in parts with read_file \(from offset=(\d+)")
ALPHABETS = ["ab ", "if self.x[0] == 'y': return z", "漢字仮名", "0x3fA9-", "\U0001f680e\u0301", "\t ", "\U00012000"]


def numbered(content: str) -> list[tuple[int, str]]:
    return [(int(found[1]), found[2]) for line in content.split("\n") if (found := LINE.fullmatch(line))]


async def read_on(desk: Toolbench, path: str, offset: int, limit: int = 0) -> list[tuple[int, str]]:
    """The lines that a model sees that does what the notes say, from an offset on."""
    seen: list[tuple[int, str]] = []
    while True:
        page = await desk.call("read_file", path=path, offset=offset, limit=limit)
        assert page.success
        assert "fullOutput" not in page.metadata  # a page was never cut again
        assert count(page.content) <= 32_000 + 200
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


@pytest.mark.requirement("S004-012")
async def test_each_file_stands_below_its_name_as_read_file_shows_it(bare_desk: Toolbench) -> None:
    bare_desk.write("a.py", "one\ntwo\n")
    bare_desk.write("src/b.txt", "über\r\nend")
    result = await bare_desk.call("read_many_files", paths=["a.py", "src/b.txt"])
    alone = [(await bare_desk.call("read_file", path=path)).content for path in ("a.py", "src/b.txt")]
    assert result.content == f"==> a.py <==\n{alone[0]}\n\n==> src/b.txt <==\n{alone[1]}\n"
    assert "     1|one\n     2|two" in result.content
    assert result.title == "Read 2 files"
    assert result.metadata == {"read": ["a.py", "src/b.txt"], "failed": 0, "leftOut": 0}


async def test_patterns_stand_for_files_newest_first_without_ignored_ones(desk: Toolbench) -> None:
    desk.write(".gitignore", "*.log\n")
    desk.write("src/old.py", "old", age=300)
    desk.write("src/deep/new.py", "new", age=1)
    desk.write("src/x.log", "noise", age=1)
    desk.write(".deputize/skills/s/r.md", "help", age=1)
    result = await desk.call("read_many_files", paths=["src/old.py", "src/**/*", ".deputize/skills/s/*.md"])
    assert re.findall("==> (.*) <==", result.content) == ["src/old.py", "src/deep/new.py", ".deputize/skills/s/r.md"]
    assert "noise" not in result.content
    absolute = await desk.call("read_many_files", paths=["/workspace/src/*.py", "src/{old,new}.py"])
    assert absolute.metadata["read"] == ["src/old.py"]


async def test_a_name_with_signs_of_a_pattern_is_a_name_where_such_a_file_exists(desk: Toolbench) -> None:
    desk.write("app/[id].ts", "page")
    desk.write("app/i.ts", "other")
    result = await desk.call("read_many_files", paths=["app/[id].ts"])
    assert result.metadata["read"] == ["app/[id].ts"]


async def test_what_cannot_be_read_is_reported_in_its_place(desk: Toolbench) -> None:
    desk.write("good.py", "fine\n")
    desk.write("image.png", b"\x89PNG\r\n\x1a\n\0\0")
    desk.write("empty.txt")
    desk.write("src/x.py")
    paths = ["goof.py", "image.png", "src", "../out", "empty.txt", "*.rs", "nope/*.py", "good.py"]
    result = await desk.call("read_many_files", paths=paths)
    assert result.success
    sections = dict(part.split(" <==\n", 1) for part in result.content.removeprefix("==> ").split("\n==> "))
    assert sections["goof.py"] == "Error: File not found: goof.py. Did you mean good.py?\n"
    assert sections["image.png"].startswith("Error: image.png is not a text file: it is a PNG image")
    assert sections["src"] == "Error: src is a directory. Use a pattern such as src/*.\n"
    assert sections["../out"].startswith("Error: Path not allowed: '../out'")
    assert sections["empty.txt"] == "(The file is empty.)\n"
    assert sections["*.rs"] == "Error: No file matches '*.rs'. List the files with glob.\n"
    assert sections["nope/*.py"] == "Error: File not found: nope\n"
    assert sections["good.py"] == "     1|fine\n"
    assert result.metadata == {"read": ["empty.txt", "good.py"], "failed": 6, "leftOut": 0}


async def test_only_where_nothing_could_be_read_it_is_a_failure(bare_desk: Toolbench) -> None:
    result = await bare_desk.call("read_many_files", paths=["a.py", "b.py"])
    assert result.error_type is ErrorType.FILE_NOT_FOUND
    assert result.error == "none of the files could be read; see the error of each"
    assert "==> b.py <==\nError: File not found: b.py\n" in result.content
    odd = await bare_desk.call("read_many_files", paths=["\ud83d", "\0", ""])
    assert odd.error_type is ErrorType.PATH_NOT_ALLOWED
    (odd.for_model + str(odd.metadata)).encode()


async def test_no_link_leads_out(desk: Toolbench) -> None:
    (desk.root.parent / "outside.txt").write_text("secret")
    (desk.root / "leak.txt").symlink_to("../outside.txt")
    result = await desk.call("read_many_files", paths=["leak.txt", "*"])
    assert "secret" not in result.for_model


async def test_a_large_file_leaves_room_for_the_others(bare_desk: Toolbench) -> None:
    bare_desk.write("large.txt", "many words in a line\n" * 50_000)
    bare_desk.write("small.txt", "small\n")
    result = await bare_desk.call("read_many_files", paths=["large.txt", "small.txt"])
    (shown,) = re.findall(r"\(Lines 1 to (\d+) of 50000; continue with read_file and offset=(\d+)\.\)", result.content)
    assert int(shown[1]) == int(shown[0]) + 1 > 1000
    assert result.content.endswith("==> small.txt <==\n     1|small\n")
    assert "fullOutput" not in result.metadata


async def test_what_has_no_room_is_named(desk: Toolbench) -> None:
    for number in range(60):
        desk.write(f"f{number:02d}.txt", f"{number}\n" * 3, age=number)
    result = await desk.call("read_many_files", paths=["*.txt"])
    assert sorted(result.metadata["read"]) == [f"f{number:02d}.txt" for number in range(50)]
    rest = ", ".join(f"f{number:02d}.txt" for number in range(50, 60))
    assert result.content.endswith(f"(Left out, because the output is limited: 10 files: {rest})")
    for number in range(50):  # a single line each, but of characters that are many tokens
        desk.write(f"f{number:02d}.txt", "".join(map(chr, range(0x12000, 0x12400))) * 2, age=number)
    dense = await desk.call("read_many_files", paths=["*.txt"])
    assert 0 < len(dense.metadata["read"]) < 50
    assert dense.metadata["leftOut"] == 60 - len(dense.metadata["read"])
    assert dense.content.endswith("f59.txt)")
    assert "fullOutput" not in dense.metadata


@pytest.mark.requirement("S004-012")
def test_it_reads_and_is_no_part_of_the_default_kit() -> None:
    assert EVERYTHING["read_many_files"].kind is Kind.READ
    assert "read_many_files" not in DEFAULT_KIT


def test_short_lines_take_their_place_of_the_page_and_are_valid() -> None:
    content = FileLines(1, 100, 100)
    content.add("a\n" * 11)
    assert not content.is_full
    content.add("\ud800\n")
    assert content.is_full
    assert content.lines == ["a"] * 11 + ["\ufffd"]
