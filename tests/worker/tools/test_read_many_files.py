"""read_many_files: many files in one answer, each as read_file shows it, and nothing missing silently."""

from __future__ import annotations

import re

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.tools import DEFAULT_KIT
from deputize.worker.tools.base import Kind
from tests.toolbench import EVERYTHING, Toolbench


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


async def test_what_cannot_be_read_is_said_in_its_place(desk: Toolbench) -> None:
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
