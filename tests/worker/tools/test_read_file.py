"""read_file: numbers, pages, and everything a file can be."""

from __future__ import annotations

import os

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.tokens import count
from tests.runs.toolbench import EVERYTHING, Toolbench


@pytest.mark.requirement("S000-038", "S000-041", "S000-043", "S001-016", "S001-017", "S001-019", "S004-011")
async def test_lines_stand_behind_their_number_and_a_bar(desk: Toolbench) -> None:
    desk.write("a.txt", "first\n\tzweite ü\n\n")
    result = await desk.call("read_file", path="a.txt")
    assert result.content == "     1|first\n     2|\tzweite ü\n     3|"
    assert result.metadata == {"path": "a.txt", "totalLines": 3, "firstLine": 1, "lastLine": 3}


@pytest.mark.requirement("S000-035", "S000-040", "S000-042", "S001-005", "S002-026")
async def test_an_offset_keeps_the_files_own_numbers(desk: Toolbench) -> None:
    desk.write("a.txt", "".join(f"line {number}\n" for number in range(1, 11)))
    result = await desk.call("read_file", path="a.txt", offset=4, limit=2)
    assert result.content == "     4|line 4\n     5|line 5\n(Lines 4 to 5 of 10; go on with offset=6.)"
    assert (await desk.call("read_file", path="a.txt", offset=9, limit=50)).content == "     9|line 9\n    10|line 10"


@pytest.mark.requirement("S000-039")
@pytest.mark.parametrize("offset", [None, 0, 1, -7])
@pytest.mark.parametrize("limit", [None, 0, -1])
async def test_no_offset_or_limit_is_the_whole_file(desk: Toolbench, offset: int | None, limit: int | None) -> None:
    desk.write("a.txt", "one\ntwo\n")
    result = await desk.call("read_file", path="a.txt", offset=offset, limit=limit)
    assert result.content == "     1|one\n     2|two"


async def test_an_offset_past_the_end_is_answered_with_the_number_of_lines(desk: Toolbench) -> None:
    desk.write("a.txt", "one\ntwo\n")
    error = await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "read_file", path="a.txt", offset=3)
    assert error == "offset 3 is past the end: a.txt has 2 lines. Use an offset from 1 to 2."


@pytest.mark.requirement("S000-037", "S001-015")
async def test_a_missing_file_is_reported_as_missing(desk: Toolbench) -> None:
    result = await desk.call("read_file", path="src/nope.py")
    assert not result.success
    assert result.content == ""
    assert result.error == "File not found: src/nope.py. There is no directory src."


async def test_a_misspelt_file_is_answered_with_its_neighbours(desk: Toolbench) -> None:
    desk.write("src/parser.py", "x")
    desk.write("src/zebra.md", "x")
    result = await desk.call("read_file", path="src/parsers.py")
    assert result.error == "File not found: src/parsers.py. Did you mean src/parser.py?"


@pytest.mark.requirement("S000-044", "S000-045", "S001-018", "S001-020")
async def test_a_long_file_comes_in_pages_that_fit_together(desk: Toolbench) -> None:
    lines = [f"{number % 10}" for number in range(1, 4501)]
    desk.write("long.txt", "\n".join(lines) + "\n")
    first = await desk.call("read_file", path="long.txt")
    assert '<system_hint type="tool_output_omitted" tool="read_file" reason="too_long"' in first.content
    assert "Lines 1 to 2000 of 4500 are shown. Go on with offset=2001." in first.content
    seen, offset = [], 1
    while offset <= 4500:
        page = await desk.call("read_file", path="long.txt", offset=offset)
        shown = [line for line in page.content.splitlines() if line[6:7] == "|"]
        seen += [line[7:] for line in shown]
        offset = page.metadata["lastLine"] + 1
    assert seen == lines


@pytest.mark.requirement("S000-044")
@pytest.mark.parametrize("line", ["word " * 300, "漢字仮名" * 400, "\U0001f680" * 900, "0x3fA9-" * 280])
async def test_a_page_never_has_more_than_32000_tokens(desk: Toolbench, line: str) -> None:
    desk.write("dense.txt", f"{line}\n" * 2000)
    result = await desk.call("read_file", path="dense.txt")
    assert count(result.content) <= 32_000
    assert result.metadata["lastLine"] > 1
    assert f"Go on with offset={result.metadata['lastLine'] + 1}." in result.content


@pytest.mark.parametrize("line", ["line {}", "x = {}", "    return self.value_{}", "| {} | b |"])
async def test_a_page_of_short_lines_is_whole(desk: Toolbench, line: str) -> None:
    desk.write("long.txt", "".join(f"{line.format(number)}\n" for number in range(2500)))
    result = await desk.call("read_file", path="long.txt")
    assert result.metadata["lastLine"] == 2000
    assert result.content.count("\n") > 2000


async def test_a_limit_above_the_page_is_honoured_as_far_as_tokens_allow(desk: Toolbench) -> None:
    desk.write("long.txt", "x\n" * 3000)
    assert (await desk.call("read_file", path="long.txt", limit=2200)).metadata["lastLine"] == 2200


async def test_an_overlong_line_is_cut_and_marked(desk: Toolbench) -> None:
    desk.write("min.js", "a" * 5000 + "\nnext\n")
    result = await desk.call("read_file", path="min.js")
    first, second = result.content.splitlines()
    assert len(first) == 2007
    assert first.endswith("… [cut: 5000 characters, 2000 allowed]")
    assert second == "     2|next"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "(The file is empty.)"),
        (b"\xef\xbb\xbfx\n", "     1|x\n(The file has a UTF-8 byte order mark.)"),
        (b"\xef\xbb\xbf", "(The file is empty. The file has a UTF-8 byte order mark.)"),
        (b"a\r\nb\r\n", "     1|a\n     2|b\n(The file has CRLF line ends.)"),
        (b"a\r\nb\n", "     1|a\n     2|b\n(The file has mixed line ends (LF and CRLF).)"),
        (b"a\nb", "     1|a\n     2|b\n(There is no line end after the last line.)"),
        (b"caf\xe9\n", "     1|caf\ufffd\n(The file has bytes that are not valid UTF-8, shown as \ufffd.)"),
        ("\ufeffhé\n".encode("utf-16-le"), "     1|hé\n(The file has UTF-16 encoding.)"),
        ("\ufeffhé\n".encode("utf-16-be"), "     1|hé\n(The file has UTF-16 encoding.)"),
        (b"\n", "     1|"),
        (b"BMW and GIF8\n", "     1|BMW and GIF8"),  # not a picture, though it begins like one
        (b"a\x0cb\x1bc\xe2\x80\xa8d\n", "     1|a\x0cb\x1bc\u2028d"),
    ],
)
async def test_what_the_text_does_not_show_is_reported(desk: Toolbench, content: bytes, said: str) -> None:
    desk.write("a.txt", content)
    assert (await desk.call("read_file", path="a.txt")).content == said


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a PNG image"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\x00", "a PDF document"),
        (b"PK\x03\x04\x00\x00", "a ZIP archive"),
        (b"\x7fELF\x02\x01\x00", "an ELF program"),
        (b"\x00\x01\x02", "binary data"),
        (bytes(range(128, 256)) * 4, "binary data"),
        (b"RIFF\x00\x00\x00\x00WEBP", "a WebP image"),
        (b"\xff\xfe\x00\xd8", "binary data"),
    ],
)
async def test_a_binary_file_is_refused_by_its_kind(desk: Toolbench, content: bytes, kind: str) -> None:
    desk.write("blob", content)
    assert f"blob is not a text file: it is {kind}" in await desk.refusal(ErrorType.NOT_TEXT, "read_file", path="blob")


async def test_a_directory_points_to_the_tools_that_list(desk: Toolbench) -> None:
    desk.write("src/a.py")
    error = await desk.refusal(ErrorType.NOT_A_FILE, "read_file", path="src")
    assert error == "src is a directory. List it with list_directory, or search it with glob."


async def test_a_pipe_is_not_waited_for(desk: Toolbench) -> None:
    os.mkfifo(desk.root / "pipe")
    assert (await desk.call("read_file", path="pipe")).error_type is ErrorType.NOT_A_FILE


@pytest.mark.requirement("S000-036", "S000-034")
@pytest.mark.parametrize("path", ["src/a.py", "./src//a.py", "/workspace/src/a.py", "src/../src/a.py"])
async def test_a_path_is_taken_from_the_workspace(desk: Toolbench, path: str) -> None:
    desk.write("src/a.py", "x\n")
    assert (await desk.call("read_file", path=path)).content == "     1|x"


@pytest.mark.requirement("S002-027")
async def test_file_path_is_another_word_for_path(desk: Toolbench) -> None:
    desk.write("a.txt", "x\n")
    desk.write("b.txt", "y\n")
    assert (await desk.call("read_file", file_path="a.txt")).content == "     1|x"
    assert (await desk.call("read_file", file_path="a.txt", path="a.txt")).content == "     1|x"
    error = await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "read_file", file_path="a.txt", path="b.txt")
    assert "path and file_path are the same parameter but differ; send only path" in error


@pytest.mark.requirement("S001-004")
def test_the_description_explains_how_to_read_large_files() -> None:
    said = EVERYTHING["read_file"].description
    assert "Large files: read them in parts with" in said
    assert "offset and limit" in said
    assert "not part" in said
