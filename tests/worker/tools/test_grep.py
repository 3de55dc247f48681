"""grep: what is found, in which order and form, and what a pattern may be."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.settings import Settings
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.search.grep import format_hits, parse_hits
from deputize.worker.tools.glob import Glob
from deputize.worker.tools.grep import Grep
from tests.runs.toolbench import EVERYTHING, Toolbench

SOURCE = "import os\n\n\ndef total(prices):\n    return sum(prices)\n\n\ndef mean(prices):\n    return total(prices)\n"


@pytest.mark.requirement("S002-028", "S004-017")
async def test_matching_lines_stand_below_their_file_and_behind_their_number(desk: Toolbench) -> None:
    desk.write("src/a.py", SOURCE, age=100)
    desk.write("src/new.py", "total = 1\n", age=1)
    result = await desk.call("grep", pattern=r"total\b")
    assert result.content == (
        "src/new.py\n     1|total = 1\nsrc/a.py\n     4|def total(prices):\n     9|    return total(prices)"
    )
    assert result.title == "Found 3 matches"
    assert result.metadata == {"pattern": r"total\b", "searchPath": ".", "count": 3, "total": 3, "truncated": False}


async def test_context_lines_have_a_dash_and_gaps_are_marked(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    result = await desk.call("grep", pattern="def", context=1)
    assert result.content == (
        "a.py\n     3-\n     4|def total(prices):\n     5-    return sum(prices)\n    --\n"
        "     7-\n     8|def mean(prices):\n     9-    return total(prices)"
    )
    assert result.metadata["total"] == 2


LINES = "# a note on foo\nfoo = 1\n  # foo again\nbar(foo)\nrest\nfoo(1)foo(2)\n"


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        ({"pattern": "foo", "exclude_pattern": r"^\s*#"}, "     2|foo = 1\n     4|bar(foo)\n     6|foo(1)foo(2)"),
        ({"pattern": "foo|rest", "exclude_pattern": "#|bar|1"}, "     5|rest"),
        ({"pattern": "^", "exclude_pattern": "FOO", "ignore_case": True}, "     5|rest"),
        ({"pattern": "^foo", "exclude_pattern": r"\($"}, "     2|foo = 1\n     6|foo(1)foo(2)"),
        ({"pattern": r"(o)\1 =", "exclude_pattern": "bar$"}, "     2|foo = 1"),
        (
            {"pattern": "rest", "exclude_pattern": "foo", "context": 1},
            "     4-bar(foo)\n     5|rest\n     6-foo(1)foo(2)",
        ),
    ],
)
async def test_lines_that_match_another_pattern_are_left_out(
    desk: Toolbench, asked: dict[str, object], content: str
) -> None:
    desk.write("a.py", LINES)
    result = await desk.call_with("grep", asked)
    assert result.content == f"a.py\n{content}"
    assert result.metadata["total"] == content.count("|")
    counted = await desk.call_with("grep", {**asked, "output_mode": "count"})
    assert counted.content == f"a.py: {content.count('|')}"


async def test_a_match_far_along_a_line_is_shown_also_where_others_are_left_out(desk: Toolbench) -> None:
    desk.write("a.txt", "x" * 3000 + " needle " + "y" * 3000 + "\n" + "z" * 3000 + " needle " + "q" * 3000 + "\n")
    result = await desk.call("grep", pattern="needle", exclude_pattern="q$")
    assert " needle " in result.content
    assert result.metadata["total"] == 1


@pytest.mark.parametrize("pattern", ["(", "a{2,1}"])
async def test_a_wrong_pattern_of_what_to_leave_out_is_explained(desk: Toolbench, pattern: str) -> None:
    desk.write("a.txt", "a\n")
    assert "grep: " in await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "grep", pattern="a", exclude_pattern=pattern)


@pytest.mark.parametrize(("mode", "content"), [("files", "b.py\na.py"), ("count", "b.py: 1\na.py: 2")])
async def test_only_the_files_or_their_counts(desk: Toolbench, mode: str, content: str) -> None:
    desk.write("a.py", "x\nx x\n", age=9)
    desk.write("b.py", "x\n", age=1)
    result = await desk.call("grep", pattern="x", output_mode=mode)
    assert (result.content, result.title) == (content, "Found 2 files")


FILES = {"pattern": "x", "output_mode": "files"}
ODD_NAMES = ["-dash.txt", "12:34.txt", "co:lon.txt", "with space.txt", "ünï.txt"]


@pytest.mark.parametrize(
    ("files", "asked", "content"),
    [
        pytest.param(["c.txt", "a.txt", "b/a.txt"], FILES, "a.txt\nb/a.txt\nc.txt", id="equally old files by path"),
        pytest.param([*reversed(ODD_NAMES)], FILES, "\n".join(ODD_NAMES), id="odd names"),
        pytest.param(["--files"], {"pattern": "x", "path": "--files"}, "--files\n     1|x", id="a path like an option"),
        pytest.param({"a.txt": "foobar\nfoobaz\n"}, {"pattern": "foo(?!bar)"}, "a.txt\n     2|foobaz", id="ahead"),
        pytest.param(
            {"blob": b"\x7fELF\x00x\n", "a.txt": "x\n"},
            FILES,
            "a.txt\n(Not searched, or not completely: blob: the pattern matches in it, but it is an ELF program or "
            "library.)",
            id="of binary files the names",
        ),
        pytest.param(
            [".git/config", ".deputize/x", "sub/.git/config", "a.txt"],
            {**FILES, "glob": "**"},
            "a.txt",
            id="neither git nor our directory, even for a glob for everything",
        ),
    ],
)
async def test_what_is_found_of_some_files(
    desk: Toolbench, files: Iterable[str] | dict[str, str | bytes], asked: dict[str, str], content: str
) -> None:
    for name in files:
        desk.write(name, files[name] if isinstance(files, dict) else "x\n", age=5)
    assert (await desk.call_with("grep", asked)).content == content


async def test_what_is_not_shown_is_counted(desk: Toolbench) -> None:
    desk.write("a.txt", "x\n" * 250)
    result = await desk.call("grep", pattern="x", max_results=100)
    lines = result.content.splitlines()
    assert (len(lines), lines[100]) == (102, "   100|x")
    assert lines[101] == "(100 of 250 shown. Use a narrower pattern, path or glob to see the others.)"
    assert result.metadata["truncated"] is True


async def test_nothing_found_is_no_error(desk: Toolbench) -> None:
    desk.write("a.txt", "x\n")
    result = await desk.call("grep", pattern="y+", path="a.txt")
    assert result.success
    assert (result.content, result.title) == ("Nothing matches 'y+' in a.txt.", "Found 0 matches")


@pytest.mark.parametrize("pattern", ["foo(", "[z", "a{2,1}", "(?P<"])
async def test_a_wrong_pattern_is_explained(desk: Toolbench, pattern: str) -> None:
    desk.write("a.txt", "x\n")
    result = await desk.call("grep", pattern=pattern)
    assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
    assert result.error is not None
    assert result.error.startswith("grep: regex parse error:")
    assert "PCRE2" not in result.error


@pytest.mark.parametrize("pattern", ["-v", "--files", "-e", "--", "-"])
async def test_a_pattern_that_looks_like_an_option_is_a_pattern(desk: Toolbench, pattern: str) -> None:
    desk.write("a.txt", f"run {pattern} now\n")
    desk.write("-v.txt", "nothing here\n")
    assert (await desk.call("grep", pattern=pattern)).content == f"a.txt\n     1|run {pattern} now"


async def test_only_files_of_a_glob(desk: Toolbench) -> None:
    for name in ("a.py", "src/b.py", "src/c.ts", "src/d.tsx", "e.md"):
        desk.write(name, "x\n", age=1)

    async def files(glob: str) -> str:
        return (await desk.call("grep", pattern="x", output_mode="files", glob=glob)).content

    assert await files("*.py") == "a.py\nsrc/b.py"
    assert await files("src/**/*.{ts,tsx}") == "src/c.ts\nsrc/d.tsx"
    assert await files("src/*.py") == "src/b.py"


async def test_only_files_of_a_type(desk: Toolbench) -> None:
    desk.write("a.py", "x\n")
    desk.write("b.js", "x\n")
    assert (await desk.call("grep", pattern="x", type="py", output_mode="files")).content == "a.py"
    wrong = await desk.call("grep", pattern="x", type="nope")
    assert wrong.error == "grep: unrecognized file type: nope"


async def test_case_matters_unless_switched_off_and_a_miss_by_case_is_reported(desk: Toolbench) -> None:
    desk.write("a.txt", "Total\n")
    missed = await desk.call("grep", pattern="total", output_mode="count")
    assert missed.metadata["total"] == 0
    assert missed.content == (
        "Nothing matches 'total' in .. It matches case-insensitively (ignore_case: true), in a.txt."
    )
    assert (await desk.call("grep", pattern="total", ignore_case=True)).metadata["total"] == 1


async def test_hidden_files_are_searched_and_ignored_ones_are_not(desk: Toolbench) -> None:
    desk.write(".gitignore", "*.log\n")
    for name in (".github/ci.yml", "a.log", ".git/config", ".deputize/x", ".ignore"):
        desk.write(name, "needle\n", age=1)
    assert (await desk.call("grep", pattern="needle", output_mode="files")).content == ".github/ci.yml\n.ignore"
    everything = await desk.call("grep", pattern="needle", output_mode="files", respect_gitignore=False)
    assert everything.content == ".github/ci.yml\n.ignore\na.log"
    assert (await desk.call("grep", pattern="needle", path="a.log")).content == "a.log\n     1|needle"
    assert (await desk.call("grep", pattern="needle", path=".deputize")).content == ".deputize/x\n     1|needle"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"needle\r\n", "needle"),
        ("nädel needle 針\n".encode(), "nädel needle 針"),
        (b"caf\xe9 needle\n", "caf\ufffd needle"),
        (b"needle:12:with colons - and dashes", "needle:12:with colons - and dashes"),
        ("\ufeffneedle\n".encode("utf-16-le"), "needle"),
    ],
)
async def test_lines_come_as_they_are_read(desk: Toolbench, content: bytes, line: str) -> None:
    desk.write("a.txt", content)
    assert (await desk.call("grep", pattern="needle")).content == f"a.txt\n     1|{line}"


async def test_an_overlong_line_is_cut(desk: Toolbench) -> None:
    desk.write("min.js", "x" * 100_000 + "\n")
    result = await desk.call("grep", pattern="x")
    assert len(result.content) < 600


@pytest.mark.parametrize("context", [0, 1])
@pytest.mark.parametrize("filler", ["x", "ä", "针"])
async def test_a_match_far_along_a_line_is_shown(desk: Toolbench, filler: str, context: int) -> None:
    desk.write("min.js", f"first\n{filler * 70_000}needle{filler * 70_000}\nlast needle\n")
    result = await desk.call("grep", pattern="needle", context=context)
    [line] = [line for line in result.content.splitlines() if line.startswith("     2|")]
    assert f"{filler}needle{filler}" in line
    assert (line[7:10], line[-3:]) == ("[…]", "[…]")
    assert len(line) < 600
    assert result.content.endswith("     3|last needle")


async def test_a_match_at_the_end_of_a_long_line_is_shown_to_its_end(desk: Toolbench) -> None:
    desk.write("min.js", f"{'x' * 1000}needle\n")
    assert (await desk.call("grep", pattern="needle$")).content.endswith("xneedle")
    assert (await desk.call("grep", pattern="Needle$", ignore_case=True)).content.endswith("xneedle")


async def test_files_and_directories_can_be_left_out(desk: Toolbench) -> None:
    for name in ("a.py", "a_test.py", "docs/a.py", "docs/deep/b.py", "src/docs/c.py"):
        desk.write(name, "x\n", age=1)

    async def files(exclude: str, **more: object) -> str:
        return (await desk.call("grep", pattern="x", output_mode="files", exclude=exclude, **more)).content

    assert await files("*_test.py") == "a.py\ndocs/a.py\ndocs/deep/b.py\nsrc/docs/c.py"
    assert await files("docs") == "a.py\na_test.py"
    assert await files("docs/**") == "a.py\na_test.py\nsrc/docs/c.py"
    assert await files("!docs/", glob="*.py") == "a.py\na_test.py"
    assert await files("{*_test.py,docs}") == "a.py"
    assert await files("*.py") == "Nothing matches 'x' in .."


@pytest.mark.parametrize(
    ("context", "content"),
    [
        (0, "b.txt\n     1|x\na.txt\n     1|x\n     3|x"),
        (1, "b.txt\n     1|x\na.txt\n     1|x\n     2-y\n     3|x\n     4-y"),
    ],
)
async def test_only_so_many_lines_of_one_file(desk: Toolbench, context: int, content: str) -> None:
    desk.write("a.txt", "x\ny\nx\ny\nz\nx\nx\n", age=2)
    desk.write("b.txt", "x\n", age=1)
    result = await desk.call("grep", pattern="x", max_per_file=2, context=context)
    assert result.content == f"{content}\n(More than 2 lines match in: a.txt)"
    counts = await desk.call("grep", pattern="x", max_per_file=2, output_mode="count")
    assert counts.content == "b.txt: 1\na.txt: 4"


async def test_links_are_not_followed(desk: Toolbench) -> None:
    (desk.root.parent / "outside.txt").write_text("needle\n")
    (desk.root / "link.txt").symlink_to("../outside.txt")
    (desk.root / "up").symlink_to("..")
    assert (await desk.call("grep", pattern="needle")).metadata["total"] == 0
    for path in ("link.txt", "up", "up/outside.txt", "../outside.txt"):
        assert (await desk.call("grep", pattern="needle", path=path)).error_type is ErrorType.PATH_NOT_ALLOWED


async def test_a_missing_path_is_an_error(desk: Toolbench) -> None:
    desk.write("source.py")
    result = await desk.call("grep", pattern="x", path="sorce.py")
    assert result.error == "File not found: sorce.py. Did you mean source.py?"


async def test_without_a_sandbox_nothing_is_searched_and_the_reason_is_given(bare_desk: Toolbench) -> None:
    bare_desk.write("a.txt", "x\n")
    for name in ("grep", "glob"):
        error = await bare_desk.refusal(ErrorType.SANDBOX_UNAVAILABLE, name, pattern="x")
        assert error == "files cannot be searched here: this test has no sandbox. Read them by name."


def test_where_ripgrep_is_missing_no_run_is_offered_a_search() -> None:
    for tool in (Grep, Glob):
        assert tool(lambda: False).configured(Settings()) is None
        assert tool(lambda: True).configured(Settings()) is not None


class LackingRipgrep(Bubblewrap):
    def program(self, name: str) -> str | None:
        return None if name == "rg" else super().program(name)


async def test_where_ripgrep_is_missing_a_search_is_an_error_and_finds_not_nothing(desk: Toolbench) -> None:
    desk.write("a.txt", "needle\n")
    with LackingRipgrep(desk.root) as desk.sandbox:
        for name in ("grep", "glob"):
            error = await desk.refusal(ErrorType.SANDBOX_UNAVAILABLE, name, pattern="needle")
            why = "ripgrep is missing on this worker"
            assert error == f"files cannot be searched here: {why}. Read them by name."


@pytest.mark.requirement("S004-018")
async def test_ripgrep_runs_in_the_sandbox_over_the_workspace_alone(desk: Toolbench) -> None:
    desk.write("a.txt", "root needle\n")
    assert os.path.exists("/etc/passwd")  # noqa: PTH110
    assert (await desk.call("grep", pattern="root", path="/etc")).error_type is ErrorType.PATH_NOT_ALLOWED
    (desk.root / "etc").symlink_to("/etc")
    assert (await desk.call("grep", pattern="root")).content == "a.txt\n     1|root needle"


def test_output_that_is_no_match_is_passed_over() -> None:
    output = b'a.txt\x001:x\nblob: binary file matches (found "\\0" byte around offset 3)\nb.txt\x002-y\n'
    assert parse_hits(output) == {"a.txt": ["1:x"], "b.txt": ["2-y"]}


def test_context_after_the_last_shown_match_is_kept_and_before_the_next_is_not_needed() -> None:
    assert format_hits({"a": ["1:x", "2-y", "9:x"]}, "content", 1, context=1) == ("a\n     1|x\n     2-y", 1, 2)


def test_the_description_states_that_numbers_are_not_part_of_the_file() -> None:
    assert "Number and bar are not part of the file" in EVERYTHING["grep"].description


NUL = "needle\n\0\0\nneedle again\n"


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        ({}, "b.txt\n     1|needle\nnul.log\n     1|needle\n     4|needle again\n(NUL"),
        ({"path": "nul.log"}, "nul.log\n     1|needle\n     4|needle again\n(NUL"),
        ({"context": 1, "path": "nul.log"}, "nul.log\n     1|needle\n     2-\u2400\u2400\n     3-"),
        ({"output_mode": "files"}, "b.txt\nnul.log"),
        ({"output_mode": "count"}, "b.txt: 1\nnul.log: 2"),
        ({"pattern": "again$", "glob": "*.log"}, "nul.log\n     4|needle again\n(NUL"),
        ({"exclude": "*.log"}, "b.txt\n     1|needle"),
    ],
)
async def test_a_text_with_a_nul_is_found(desk: Toolbench, asked: dict[str, object], content: str) -> None:
    desk.write("b.txt", "needle\n", age=1)
    data = NUL.replace("\0\n", "\0\nx\n") if "context" in asked else NUL.replace("\0\n", "\0\n\n")
    desk.write("nul.log", data, age=2)
    result = await desk.call_with("grep", {"pattern": "needle"} | asked)
    assert result.content.startswith(content)
    assert result.metadata["truncated"] is False


async def test_texts_in_other_encodings_are_named_where_nothing_else_matches(desk: Toolbench) -> None:
    desk.write("wide.txt", "class Foo and some more words\n".encode("utf-16-le"))
    desk.write("old.txt", "日本語の文章です。いくつか書きます\n".encode("cp932"))
    desk.write("plain.txt", "日本 and Foo\n")
    wide = await desk.call("grep", pattern="class Foo")
    assert wide.content.endswith(" It matches in text in utf-16le, in wide.txt: read_file shows it.")
    old = await desk.call("grep", pattern="文章")
    assert old.content.endswith(" It matches in text in Shift_JIS, in old.txt: read_file shows it.")
    none = await desk.call("grep", pattern="語日本文")
    assert none.content == "Nothing matches '語日本文' in .."


@pytest.mark.parametrize(
    ("pattern", "way"),
    [
        ("foo(", "To take its signs literally pass `foo\\(`: it matches in a.py."),
        ("[", "To take its signs literally pass `\\[`: it matches in a.py."),
        (r"\d+(x", r"To take its signs literally pass `\d+\(x`."),
        ("(?<a", "To take its signs literally pass `\\(\\?<a`: it matches in a.py."),
        ("*.js", "To find files by their names use glob with pattern '*.js', or the parameter glob here."),
    ],
)
async def test_a_pattern_that_is_no_expression_gets_a_way_on(desk: Toolbench, pattern: str, way: str) -> None:
    desk.write("a.py", "foo(1)\n[2]\n(?<a\n")
    assert (await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "grep", pattern=pattern)).endswith(f"\n{way}")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        (r"foo\|bar", " It matches as `foo|bar`, because only | without \\ separates alternatives, in a.py."),
        ("foo(1)", " It matches as plain text, which is `foo\\(1\\)`, in a.py."),
        ("foo(1)\nfoo(2)", r" It matches with its first line alone, `foo\(1\)`, as each line is searched by itself"),
        (r"foo\(1\)\nfoo", r" It matches with its first line alone, `foo\(1\)`, as each line is searched by itself"),
        ("FOO", " It matches case-insensitively (ignore_case: true), in a.py."),
        ("nothing(at)all", "Nothing matches 'nothing(at)all' in .."),
    ],
)
async def test_a_pattern_that_nearly_matches_gets_a_hint(desk: Toolbench, pattern: str, hint: str) -> None:
    desk.write("a.py", "foo(1)\nfoo(2)\n")
    content = (await desk.call("grep", pattern=pattern)).content
    assert hint in content
    assert content.count("It matches") == ("It matches" in hint)
