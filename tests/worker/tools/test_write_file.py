"""write_file: what is written, and the message about it."""

from __future__ import annotations

import stat

import pytest

from deputize.shared.errors import ErrorType
from tests.runs.toolbench import EVERYTHING, Toolbench


@pytest.mark.requirement("S000-046", "S000-048", "S000-050", "S001-007", "S001-022", "S001-023", "S001-024", "S004-013")
async def test_a_new_file_comes_with_its_directories_and_its_size(desk: Toolbench) -> None:
    result = await desk.call("write_file", path="a/b/c.txt", content="één\ntwo\n")
    assert result.content == "Successfully wrote to a/b/c.txt: created, 8 characters, 2 lines."
    assert desk.read("a/b/c.txt") == "één\ntwo\n".encode()
    assert result.metadata == {
        "path": "a/b/c.txt",
        "created": True,
        "characters": 8,
        "lines": 2,
        "addedLines": 2,
        "removedLines": 0,
    }
    assert result.display == "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+één\n+two\n"


@pytest.mark.requirement("S000-049")
async def test_a_file_that_is_there_is_replaced_as_a_whole(desk: Toolbench) -> None:
    desk.write("a.txt", "one\ntwo\nthree\n")
    result = await desk.call("write_file", path="a.txt", content="one\n2\nthree\n")
    assert result.content == "Successfully wrote to a.txt: replaced, 12 characters, 3 lines."
    assert result.display == "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    assert (result.metadata["addedLines"], result.metadata["removedLines"]) == (1, 1)


@pytest.mark.parametrize(
    ("content", "lines"), [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\r\nb\r\n", 2), ("\n\n", 2)]
)
async def test_lines_are_counted_as_read_file_numbers_them(desk: Toolbench, content: str, lines: int) -> None:
    result = await desk.call("write_file", path="a.txt", content=content)
    assert result.metadata["lines"] == lines
    assert desk.read("a.txt") == content.encode()


@pytest.mark.requirement("S000-047")
@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "/workspace/a.txt"])
async def test_every_way_to_write_a_path_leads_to_the_same_file(desk: Toolbench, path: str) -> None:
    await desk.call("write_file", path=path, content="x")
    assert desk.read("a.txt") == b"x"


async def test_what_was_executable_stays_so(desk: Toolbench) -> None:
    desk.write("run.sh", "#!/bin/sh\n")
    (desk.root / "run.sh").chmod(0o755)
    await desk.call("write_file", path="run.sh", content="#!/bin/sh\necho\n")
    assert stat.S_IMODE((desk.root / "run.sh").stat().st_mode) == 0o755


async def test_a_binary_or_huge_file_is_replaced_without_a_diff(desk: Toolbench) -> None:
    desk.write("blob", b"\x00\x01")
    desk.write("huge.txt", "x" * 2_000_000)
    for path in ("blob", "huge.txt"):
        result = await desk.call("write_file", path=path, content="text\n")
        assert result.content == f"Successfully wrote to {path}: replaced, 5 characters, 1 line."
        assert result.display == ""


async def test_a_directory_is_not_written_over(desk: Toolbench) -> None:
    desk.write("src/a.py")
    assert (await desk.call("write_file", path="src", content="x")).error_type is ErrorType.NOT_A_FILE


async def test_a_file_is_no_directory_to_write_into(desk: Toolbench) -> None:
    desk.write("a.txt")
    assert (await desk.call("write_file", path="a.txt/b.txt", content="x")).error_type is ErrorType.NOT_A_DIRECTORY


async def test_line_numbers_pasted_into_a_file_are_noticed(desk: Toolbench) -> None:
    result = await desk.call("write_file", path="a.txt", content="     1|one\n     2|two\n")
    assert result.success
    assert "Note: every line begins with a line number" in result.content
    assert "Note" not in (await desk.call("write_file", path="b.txt", content="1|one\n2|two\n")).content


async def test_half_a_character_is_refused(desk: Toolbench) -> None:
    error = await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "write_file", path="a.txt", content="a\ud83d")
    assert "content contains half of a surrogate pair" in error


@pytest.mark.requirement("S001-006")
def test_the_description_explains_when_to_use_it() -> None:
    said = EVERYTHING["write_file"].description
    assert "creates it, with its directories, if it is not there, and replaces it completely if it is" in said
    assert "For new files and complete rewrites. For local changes use edit_file" in said


async def test_a_placeholder_for_what_the_file_holds_is_refused_and_nothing_is_lost(desk: Toolbench) -> None:
    desk.write("a.py", "one = 1\ntwo = 2\n")
    content = "one = 11\n# ... rest of the code unchanged ...\n"
    error = await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "write_file", path="a.py", content=content)
    assert "content has a placeholder: '# ... rest of the code unchanged ...'" in error
    assert desk.read("a.py") == b"one = 1\ntwo = 2\n"
    assert (await desk.call("write_file", path="new.md", content=content)).success  # here it hides nothing
