"""Encodings, line ends, large files and odd paths, through every tool that reads or writes a file."""

from __future__ import annotations

import asyncio
import tracemalloc
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.workspaces import delete
from deputize.worker.workspace.locks import edit_lock
from tests.runs.toolbench import Toolbench

WIDE = [
    (BOM_UTF32_LE, "utf-32-le"),
    (BOM_UTF32_BE, "utf-32-be"),
    (BOM_UTF16_LE, "utf-16-le"),
    (BOM_UTF16_BE, "utf-16-be"),
    (BOM_UTF8, "utf-8"),
]
MIB = 1024 * 1024


@pytest.mark.parametrize(("mark", "encoding"), WIDE)
async def test_text_of_every_encoding_with_a_mark_is_edited_in_it(
    bare_desk: Toolbench, mark: bytes, encoding: str
) -> None:
    bare_desk.write("a.txt", mark + "één\r\ntwo\r\n\U0001f680\r\n".encode(encoding))
    result = await bare_desk.call("edit_file", path="a.txt", old_string="two\n", new_string="2\n2b\n")
    assert result.success
    assert bare_desk.read("a.txt") == mark + "één\r\n2\r\n2b\r\n\U0001f680\r\n".encode(encoding)
    shown = await bare_desk.call("read_file", path="a.txt")
    assert shown.content.startswith("     1|één\n     2|2\n     3|2b\n     4|\U0001f680\n(The file has ")
    many = await bare_desk.call("read_many_files", paths=["a.txt"])
    assert "     2|2\n     3|2b\n" in many.content


@pytest.mark.parametrize(("mark", "encoding"), [*WIDE, (b"", "utf-8")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_a_file_that_is_written_again_keeps_its_form(
    bare_desk: Toolbench, mark: bytes, encoding: str, end: str
) -> None:
    bare_desk.write("a.txt", mark + f"one{end}two{end}".encode(encoding))
    wanted = mark + f"één{end}{end}two".encode(encoding)
    for content in ("één\n\ntwo", "\ufeffén\n\ntwo".replace("én", "één") if mark else "één\n\ntwo"):
        result = await bare_desk.call("write_file", path="a.txt", content=content)
        assert result.success
        assert bare_desk.read("a.txt") == wanted
        assert ("Preserved from the old file" in result.content) == bool(mark or end == "\r\n")


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"one\r\ntwo\nthree\r\n", "one\ntwo\nnew\nthree\n", b"one\r\ntwo\nnew\r\nthree\r\n"),
        (b"one\r\ntwo\r\n", "one\r\nnew\n", b"one\r\nnew\n"),  # it decides how they are
        (b"one\r\ntwo", "one\ntwo\nthree", b"one\r\ntwo\r\nthree"),
        (b"one\n", "one\r\ntwo\r\n", b"one\r\ntwo\r\n"),
        (b"", "one\n", b"one\n"),
        (b"\xe9\r\n", "\xe9\n", b"\xc3\xa9\r\n"),
    ],
)
async def test_line_ends_are_those_of_the_file_unless_the_content_has_its_own(
    bare_desk: Toolbench, before: bytes, content: str, after: bytes
) -> None:
    bare_desk.write("a.txt", before)
    assert (await bare_desk.call("write_file", path="a.txt", content=content)).success
    assert bare_desk.read("a.txt") == after


async def test_a_large_file_keeps_its_line_ends_too(bare_desk: Toolbench) -> None:
    bare_desk.write("a.txt", b"many words\r\n" * 200_000)
    assert (await bare_desk.call("write_file", path="a.txt", content="one\ntwo\n")).success
    assert bare_desk.read("a.txt") == b"one\r\ntwo\r\n"


@pytest.mark.parametrize("encoding", ["utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be", "cp932", "utf-8"])
async def test_text_without_a_mark_is_read_with_a_remark_and_keeps_its_encoding(
    bare_desk: Toolbench, encoding: str
) -> None:
    text = "日本語の文章です。いくつか書きます\n" if encoding == "cp932" else "one\ntwo\n\0\0three\n"
    bare_desk.write("a.txt", text.encode(encoding))
    shown = await bare_desk.call("read_file", path="a.txt")
    line = text.replace("\0", "\u2400").rstrip("\n").rpartition("\n")[2]
    assert f"|{line}\n(The file has " in shown.content
    assert ("encoding" in shown.content, "NUL characters, shown as \u2400" in shown.content) == (
        encoding != "utf-8",
        encoding != "cp932",
    )
    edited = await bare_desk.call("edit_file", path="a.txt", old_string=line, new_string=f"1{line}")
    assert edited.success, edited.for_model
    last = text.rstrip("\n").rpartition("\n")[2]
    assert bare_desk.read("a.txt") == text.replace(last, f"1{last}").encode(encoding)


async def test_wide_text_with_an_odd_end_is_left_alone(bare_desk: Toolbench) -> None:
    bare_desk.write("a.txt", "one\ntwo\n".encode("utf-16-le") + b"\n")
    await bare_desk.refusal(ErrorType.NOT_TEXT, "edit_file", path="a.txt", old_string="one", new_string="1")


@pytest.mark.parametrize("path", ["~/x.txt", "~", "~root/x.txt", "$HOME/x.txt", "${HOME}/x.txt", "%USERPROFILE%/x.txt"])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_string": "a", "new_string": "b"}),
        ("read_file", {}),
        ("list_directory", {}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": "x"}),
    ],
)
async def test_a_home_that_only_a_shell_knows_is_refused(
    bare_desk: Toolbench, path: str, name: str, more: dict[str, str]
) -> None:
    assert "is not expanded here" in await bare_desk.refusal(ErrorType.PATH_NOT_ALLOWED, name, **{"path": path, **more})
    many = await bare_desk.call("read_many_files", paths=[path])
    assert many.error_type is ErrorType.PATH_NOT_ALLOWED
    assert list(bare_desk.root.iterdir()) == []


@pytest.mark.parametrize("path", ["~backup.txt", "a~/x.txt", "./~/x.txt", "src/~/x.txt", "~$doc.txt"])
async def test_a_name_with_such_a_sign_is_a_name(bare_desk: Toolbench, path: str) -> None:
    assert (await bare_desk.call("write_file", path=path, content="x")).success
    assert bare_desk.read(path) == b"x"


async def test_edits_at_the_same_time_lose_nothing_whatever_the_file_is_called(bare_desk: Toolbench) -> None:
    bare_desk.write("src/a.txt", "".join(f"line {number:03d}\n" for number in range(40)))
    (bare_desk.root / "link.txt").symlink_to("src/a.txt")
    (bare_desk.root / "folder").symlink_to("src")
    names = ["src/a.txt", "link.txt", "folder/a.txt", "/workspace/src/./a.txt"]
    answers = await asyncio.gather(
        *(
            bare_desk.call(
                "edit_file", path=names[number % 4], old_string=f"line {number:03d}", new_string=f"done {number:03d}"
            )
            for number in range(40)
        )
    )
    assert all(answer.success for answer in answers)
    assert bare_desk.read("src/a.txt").decode() == "".join(f"done {number:03d}\n" for number in range(40))


async def test_versions_of_an_artifact_made_at_the_same_time_follow_each_other(bare_desk: Toolbench) -> None:
    await bare_desk.call(
        "create_artifact", name="a.md", content="".join(f"line {number:03d}\n" for number in range(20))
    )
    updates = (
        bare_desk.call("update_artifact", name="a.md", old_string=f"line {number:03d}", new_string=f"done {number:03d}")
        for number in range(20)
    )
    assert all(answer.success for answer in await asyncio.gather(*updates))
    latest = await bare_desk.call("read_artifact", name="a.md")
    assert latest.metadata["version"] == 21
    assert latest.content.count("done") == 20


def test_other_files_are_not_waited_for(bare_desk: Toolbench) -> None:
    with (
        edit_lock(bare_desk.files, "a/b.txt"),
        edit_lock(bare_desk.files, "a/c.txt"),
        edit_lock(bare_desk.files, "b.txt"),
    ):
        pass


async def test_a_file_that_is_too_large_is_not_edited_and_the_error_suggests_what_to_do(bare_desk: Toolbench) -> None:
    bare_desk.write("large.txt", b"unique\n" + b"many words\n" * 900_000)
    error = await bare_desk.refusal(
        ErrorType.FILE_TOO_LARGE, "edit_file", path="large.txt", old_string="unique", new_string="x"
    )
    assert error == (
        "File too large to be edited: large.txt has more than 8 MiB. Nothing was changed. "
        "Change it with a command through bash, for example sed or a short script."
    )


@pytest.mark.parametrize("line", [b"word\n", b"x", b"\xc3\xa9\r\n", b"\n"])
async def test_reading_a_part_of_a_large_file_takes_little_memory(bare_desk: Toolbench, line: bytes) -> None:
    bare_desk.write("large.txt", line * (24 * MIB // len(line)))
    bare_desk.write("small.txt", "word\n")
    await bare_desk.call("read_many_files", paths=["small.txt"])  # a process's first one loads the encoding of tokens
    tracemalloc.start()
    try:
        one = await bare_desk.call("read_file", path="large.txt", offset=1, limit=1)
        many = await bare_desk.call("read_many_files", paths=["large.txt"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert one.success
    assert many.success
    assert peak < 8 * MIB


async def test_the_start_of_a_line_without_an_end_is_shown(bare_desk: Toolbench) -> None:
    bare_desk.write("a.txt", b"x" * 3 * MIB + b"\r\nend")
    result = await bare_desk.call("read_file", path="a.txt")
    assert f"… [cut: {3 * MIB} characters, 2000 allowed]\n     2|end\n" in result.content
    last = await bare_desk.call("read_file", path="a.txt", offset=2)
    assert last.content.startswith("     2|end\n")


async def test_a_file_of_many_megabytes_is_read_at_any_place(bare_desk: Toolbench) -> None:
    path = bare_desk.root / "sparse.txt"
    bare_desk.write("sparse.txt", b"first\n" * 12_000_000)
    path.write_bytes(path.read_bytes() + b"last\n")
    result = await bare_desk.call("read_file", path="sparse.txt", offset=2, limit=2)
    assert result.content == "     2|first\n     3|first\n(Lines 2 to 3, and there are more; go on with offset=4.)"
    far = await bare_desk.call("read_file", path="sparse.txt", offset=12_000_001)
    assert far.content == "12000001|last"
    past = await bare_desk.call("read_file", path="sparse.txt", offset=12_000_002)
    assert past.error_type is ErrorType.INVALID_TOOL_PARAMS


async def test_the_hint_to_go_on_counts_lines(bare_desk: Toolbench) -> None:
    bare_desk.write("a.txt", "x\n" * 4500)
    first = await bare_desk.call("read_file", path="a.txt")
    assert 'reason="too_long" actual_lines="4500" max_lines="2000">' in first.content
    rest = await bare_desk.call("read_file", path="a.txt", offset=2001)
    assert 'actual_lines="2500" max_lines="2000">' in rest.content
    second = await bare_desk.call("read_file", path="a.txt", offset=2401, limit=3000)
    assert "system_hint" not in second.content
    dense = await bare_desk.call("read_file", path="a.txt", offset=4001, limit=100)
    assert dense.content.endswith("(Lines 4001 to 4100 of 4500; go on with offset=4101.)")


async def test_a_path_through_very_many_directories_is_answered(bare_desk: Toolbench) -> None:
    try:
        for levels in (1200, 3000):
            path = "/".join(["d"] * levels) + "/a.txt"
            result = await bare_desk.call("write_file", path=path, content="x")
            assert result.success, result.error
            read = await bare_desk.call("read_file", path=path)
            assert read.content.startswith("     1|x")
    finally:
        delete(bare_desk.root / "d")  # pytest's own way to tidy up is recursive


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("src\\a.py", "src/a.py"),
        ("C:\\work\\src\\a.py", "work/src/a.py"),
        ("C:/src/a.py", "src/a.py"),
        ("@src/a.py", "src/a.py"),
        ("file:///workspace/src/a.py", "src/a.py"),
        ("file://localhost/workspace/src/a%20b.py", "src/a b.py"),
        ("FILE:src/a.py", "src/a.py"),
        ('"src/a.py"', "src/a.py"),
        ("`src\\a.py`", "src/a.py"),
    ],
)
async def test_a_path_in_a_foreign_form_is_answered_with_the_right_one(
    bare_desk: Toolbench, path: str, meant: str
) -> None:
    error = await bare_desk.refusal(ErrorType.PATH_NOT_ALLOWED, "write_file", path=path, content="x")
    assert f"write it as {meant}, relative" in error
    assert list(bare_desk.root.iterdir()) == []
    missing = await bare_desk.refusal(ErrorType.FILE_NOT_FOUND, "read_file", path=path)
    assert missing.endswith(f". Write such a path as {meant}.")
    bare_desk.write(meant, "x")
    found = await bare_desk.refusal(ErrorType.FILE_NOT_FOUND, "edit_file", path=path, old_string="x", new_string="y")
    assert f"Did you mean {meant}?" in found


@pytest.mark.parametrize("path", ["./src\\a.py", "a@b/c.py", "@", "file.txt", "profile:x", "it's.txt", '"a.txt'])
async def test_a_name_that_only_looks_like_one_is_a_name(bare_desk: Toolbench, path: str) -> None:
    assert (await bare_desk.call("write_file", path=path, content="x")).success
    assert bare_desk.read(path) == b"x"


async def test_names_that_are_there_are_no_foreign_forms(bare_desk: Toolbench) -> None:
    for path in ("@scope/a.py", "a\\b.py"):
        bare_desk.write(path, "x")
        assert (await bare_desk.call("write_file", path=path, content="y")).success
    assert (await bare_desk.call("write_file", path="@scope/new.py", content="y")).success
    outside = await bare_desk.call("write_file", path="file:///etc/x", content="y")
    assert outside.success, "no form of it leads into the workspace"


async def test_links_lead_where_commands_find_their_targets(bare_desk: Toolbench) -> None:
    root = bare_desk.root
    bare_desk.write("real/a.py", "one\n")
    links = {
        "below": "/workspace/real/a.py",
        "here": f"{root}/real/a.py",
        "up": "real/../real/a.py",
        "chain": "below",
        "real/back": "../below",
        "folder": "/workspace/real",
        "deep/abs": "/workspace/folder/a.py",
    }
    (root / "deep").mkdir()
    for name, target in links.items():
        (root / name).symlink_to(target)
    for number, name in enumerate([*links, "folder/a.py", "folder/back"]):
        if name == "folder":
            continue
        shown = await bare_desk.call("read_file", path=name)
        assert shown.content == f"     1|{bare_desk.read('real/a.py').decode()[:-1]}"
        new = f"edit {number}\n"
        assert (await bare_desk.call("write_file", path=name, content=new)).success, name
        assert bare_desk.read("real/a.py") == new.encode()
        assert (root / name).is_symlink() or name.startswith("folder")
    assert (await bare_desk.call("list_directory", path="folder")).content == "a.py  (7 bytes)\nback  (link)"
    assert (await bare_desk.call("write_file", path="folder/new/b.py", content="x")).success
    assert bare_desk.read("real/new/b.py") == b"x"


@pytest.mark.parametrize("target", ["new/a.txt", "/workspace/new/a.txt", "b.txt"])
async def test_a_link_without_its_target_is_named_and_written_through(bare_desk: Toolbench, target: str) -> None:
    (bare_desk.root / "link").symlink_to(target)
    missing = await bare_desk.refusal(ErrorType.FILE_NOT_FOUND, "read_file", path="link")
    assert missing == "File not found: link is a link whose target does not exist."
    assert (await bare_desk.call("write_file", path="link", content="x")).success
    assert bare_desk.read(target.removeprefix("/workspace/")) == b"x"
    assert (bare_desk.root / "link").is_symlink()


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "/workspace/../etc/passwd", "/workspaces/x", "../x", "/workspace/loop", "/", "/workspace/out"],
)
async def test_a_link_that_leads_elsewhere_is_refused(bare_desk: Toolbench, target: str) -> None:
    (bare_desk.root / "out").symlink_to(target)
    (bare_desk.root / "loop").symlink_to("/workspace/loop")
    for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
        await bare_desk.refusal(ErrorType.PATH_NOT_ALLOWED, name, path="out", **more)


async def test_a_file_with_several_names_keeps_them(bare_desk: Toolbench) -> None:
    bare_desk.write("a.txt", "one two three\n")
    (bare_desk.root / "b.txt").hardlink_to(bare_desk.root / "a.txt")
    assert (await bare_desk.call("edit_file", path="b.txt", old_string="two", new_string="2")).success
    assert bare_desk.read("a.txt") == b"one 2 three\n"
    assert (await bare_desk.call("write_file", path="a.txt", content="1\n")).success
    assert bare_desk.read("b.txt") == b"1\n"
    assert (bare_desk.root / "a.txt").stat().st_nlink == 2


NOTEBOOK = '{"cells": [{"source": [\n "df = 1\\n",\n "df"\n]}]}\n'


@pytest.mark.parametrize(
    ("path", "before", "old", "new", "kind"),
    [
        ("a.json", '{"a": 1}\n', "1", "1,", "JSON"),
        ("a.ipynb", NOTEBOOK, "df = 1", 'df = read("x")', "JSON"),
        ("a.JSON", "[1]\n", "]", "", "JSON"),
        ("a.jsonl", "[1]\n[2]\n", "[2]", "[2", "JSON Lines"),
        ("pyproject.toml", "[a]\nb = 1\n", "= 1", "=", "TOML"),
        ("a.yaml", "a:\n  - x\n", "- x", "- [x", "YAML"),
        ("a.yml", "a: 1\nb: 2\n", "b: 2", "\tb: 2", "YAML"),
        ("a.json", '{"a": 1}\n', "1", "2", ""),
        ("a.json", '{"a": 1} // why\n', "1", "2,", ""),
        ("a.yaml", "{{ if }}\na: [\n", "a", "b", ""),
        ("a.yaml", "a: !Ref x\n---\nb: 1\n", "x", "y", ""),
        ("a.py", "x = {1}\n", "}", "", ""),
        ("json", "{}\n", "}", "", ""),
        ("a.json", "[1]", "[1]", "[" * 99_999, ""),
    ],
)
async def test_a_file_that_an_edit_broke_gets_a_remark(
    bare_desk: Toolbench, path: str, before: str, old: str, new: str, kind: str
) -> None:
    for name, more in (("edit_file", {"old_string": old, "new_string": new}), ("write_file", {})):
        bare_desk.write(path, before)
        content = {} if more else {"content": before.replace(old, new)}
        result = await bare_desk.call(name, path=path, **more, **content)
        assert result.success
        assert ("not valid" in result.content) == bool(kind)
        assert f"Note: the file is not valid {kind} any more: " in result.content or not kind
        assert ("In a notebook each line" in result.content) == (path == "a.ipynb")


@pytest.mark.parametrize(
    ("content", "broken"), [("{a", True), ("{}", False), ("", False), ('{"a": 1} // why', False), ("{{ x }}", False)]
)
async def test_a_new_file_that_is_not_valid_gets_a_remark(bare_desk: Toolbench, content: str, broken: bool) -> None:
    made = await bare_desk.call("write_file", path="a.json", content=content)
    assert ("Note: the file is not valid JSON: " in made.content) == broken


async def test_a_cell_as_people_see_it_is_not_found_with_the_reason(bare_desk: Toolbench) -> None:
    bare_desk.write("a.ipynb", NOTEBOOK)
    error = await bare_desk.refusal(
        ErrorType.EDIT_NOT_FOUND, "edit_file", path="a.ipynb", old_string="df = 1\ndf.head()", new_string="x"
    )
    assert "In a notebook each line of a cell is a JSON string" in error
