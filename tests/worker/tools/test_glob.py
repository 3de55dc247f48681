"""glob: which files, in which order, and the message when there are too many or none."""

from __future__ import annotations

import os

import pytest

from deputize.shared.errors import ErrorType
from tests.runs.toolbench import EVERYTHING, Toolbench


async def found(desk: Toolbench, pattern: str, **more: object) -> list[str]:
    result = await desk.call("glob", pattern=pattern, **more)
    assert result.success
    return [] if result.metadata["total"] == 0 else result.content.splitlines()


@pytest.mark.requirement("S002-029", "S002-034", "S004-016")
async def test_the_most_recently_changed_file_comes_first_and_ties_go_by_path(desk: Toolbench) -> None:
    desk.write("old.py", age=300)
    desk.write("src/b.py", age=100)
    desk.write("src/a.py", age=100)
    desk.write("src/deep/new.py", age=1)
    assert await found(desk, "**/*.py") == ["src/deep/new.py", "src/a.py", "src/b.py", "old.py"]


@pytest.mark.requirement("S002-033", "S002-035")
async def test_all_are_sorted_before_a_hundred_are_shown(desk: Toolbench) -> None:
    for number in range(150):
        desk.write(f"d{number % 7}/{number:03d}.txt", age=number)
    result = await desk.call("glob", pattern="**/*.txt")
    lines = result.content.splitlines()
    assert [line[-7:-4] for line in lines[:100]] == [f"{number:03d}" for number in range(100)]
    assert lines[100:] == [
        "(100 of 150 files, the most recently changed ones. Use a narrower pattern or path to see the others.)"
    ]
    assert result.title == "Found 150 files"
    assert result.metadata == {"pattern": "**/*.txt", "searchPath": ".", "count": 100, "total": 150, "truncated": True}


@pytest.mark.parametrize(("count", "truncated"), [(99, False), (100, False), (101, True)])
async def test_a_hundred_files_are_all_of_them(desk: Toolbench, count: int, truncated: bool) -> None:
    for number in range(count):
        desk.write(f"{number:03d}.txt")
    result = await desk.call("glob", pattern="*")
    assert result.metadata["truncated"] is truncated
    assert ("of 101 files" in result.content) is truncated


NAMES = ("app/[slug]/page.tsx", "app/s/page.tsx", "app/[[...all]]/x.ts", "file[1].txt", "file1.txt", "a*b/[c].md")


@pytest.mark.parametrize(
    ("pattern", "path", "wanted"),
    [
        ("app/[slug]/page.tsx", ".", {"app/[slug]/page.tsx"}),
        ("app/[slug]/*.tsx", ".", {"app/[slug]/page.tsx"}),
        ("[slug]/page.tsx", "app", {"app/[slug]/page.tsx"}),
        ("/workspace/app/[slug]/*", ".", {"app/[slug]/page.tsx"}),
        ("app/[[...all]]/*", ".", {"app/[[...all]]/x.ts"}),
        ("file[1].txt", ".", {"file[1].txt"}),
        ("{file[1],other}.txt", ".", {"file[1].txt"}),
        ("file\\[1\\].txt", ".", {"file[1].txt"}),
        ("file[[]1].txt", ".", {"file[1].txt"}),
        ("file[0-9].txt", ".", {"file1.txt"}),
        ("app/[a-z]/*.tsx", ".", {"app/s/page.tsx"}),
        ("**/[slug]/*", ".", {"app/[slug]/page.tsx", "app/s/page.tsx"}),
        ("a*/[c].md", ".", {"a*b/[c].md"}),
    ],
)
async def test_brackets_of_real_names_mean_themselves(
    desk: Toolbench, pattern: str, path: str, wanted: set[str]
) -> None:
    for name in NAMES:
        desk.write(name, "needle\n")
    assert set(await found(desk, pattern, path=path)) == wanted


@pytest.mark.parametrize(
    ("glob", "wanted"),
    [("app/[slug]/*.tsx", ["app/[slug]/page.tsx"]), ("file[1].txt", ["file[1].txt"]), ("file[0-9].txt", ["file1.txt"])],
)
async def test_grep_reads_brackets_the_same_way(desk: Toolbench, glob: str, wanted: list[str]) -> None:
    for name in NAMES:
        desk.write(name, "needle\n")
    result = await desk.call("grep", pattern="needle", glob=glob, output_mode="files")
    assert result.content.splitlines() == wanted


async def test_several_files_are_read_by_a_pattern_with_brackets_of_real_names(desk: Toolbench) -> None:
    for name in NAMES:
        desk.write(name, "needle\n")
    result = await desk.call("read_many_files", paths=["app/[slug]/*.tsx"])
    assert result.metadata["read"] == ["app/[slug]/page.tsx"]


async def test_case_matters_unless_switched_off_and_a_miss_by_case_is_reported(desk: Toolbench) -> None:
    desk.write("docs/README.md")
    assert await found(desk, "docs/readme.md", ignore_case=True) == ["docs/README.md"]
    assert (await desk.call("glob", pattern="docs/readme.md")).content == (
        "No file below . matches 'docs/readme.md'. 1 match case-insensitively (ignore_case: true): docs/README.md."
    )
    assert (await desk.call("glob", pattern="readme.md")).content == (
        "No file below . matches 'readme.md'. "
        "1 match '**/readme.md' case-insensitively (ignore_case: true): docs/README.md."
    )


async def test_a_miss_by_gitignore_is_reported(desk: Toolbench) -> None:
    desk.write(".gitignore", "dist/\n")
    desk.write("dist/app.js")
    assert (await desk.call("glob", pattern="dist/*.js")).content == (
        "No file below . matches 'dist/*.js'. "
        "1 match among the files that .gitignore excludes (respect_gitignore: false): dist/app.js."
    )


@pytest.mark.requirement("S002-014", "S002-015", "S002-016", "S002-032", "S002-040")
async def test_the_search_reports_that_it_goes_on(desk: Toolbench) -> None:
    desk.write("a.py")
    result = await desk.call("glob", pattern="*.py")
    assert desk.news == [("Searching: *.py", {"pattern": "*.py", "searchPath": ".", "count": 0})]
    assert (result.title, result.content) == ("Found 1 file", "a.py")
    assert result.metadata == {"pattern": "*.py", "searchPath": ".", "count": 1, "total": 1, "truncated": False}


@pytest.mark.requirement("S002-031")
async def test_a_search_starts_at_the_workspace_or_at_the_path_in_it(desk: Toolbench) -> None:
    desk.write("a.py")
    desk.write("src/a.py")
    desk.write("src/deep/a.py")
    assert await found(desk, "*.py") == ["a.py"]
    assert await found(desk, "*.py", path="src") == ["src/a.py"]
    assert await found(desk, "deep/*.py", path="/workspace/src/") == ["src/deep/a.py"]
    assert await found(desk, "/workspace/src/*.py") == ["src/a.py"]
    assert await found(desk, "./src/*.py") == ["src/a.py"]


async def test_a_pattern_that_lacks_directories_is_reported(desk: Toolbench) -> None:
    desk.write("src/a.py")
    result = await desk.call("glob", pattern="*.py")
    assert result.success
    assert result.content == "No file below . matches '*.py'. 1 match '**/*.py'."
    assert (await desk.call("glob", pattern="*.rs")).content == "No file below . matches '*.rs'."


async def test_gitignore_is_respected_unless_switched_off(desk: Toolbench) -> None:
    desk.write(".gitignore", "*.log\nbuild/\n!keep.log\n")
    desk.write("sub/.gitignore", "/only.txt\n!b.log\n")
    for name in ("a.log", "keep.log", "build/x.txt", "sub/only.txt", "sub/deep/only.txt", "sub/b.log", ".git/config"):
        desk.write(name, age=1)
    shown = {".gitignore", "keep.log", "sub/.gitignore", "sub/b.log", "sub/deep/only.txt"}
    assert set(await found(desk, "**/*")) == shown
    everything = shown | {"a.log", "build/x.txt", "sub/only.txt"}
    assert set(await found(desk, "**/*", respect_gitignore=False)) == everything
    assert await found(desk, "*", path="build") == ["build/x.txt"]  # asked for by name


async def test_links_are_not_listed_and_not_followed(desk: Toolbench) -> None:
    desk.write("real.txt")
    desk.write("dir/inner.txt")
    (desk.root.parent / "outside.txt").write_text("secret")
    for link, target in {
        "in.txt": "real.txt",
        "out.txt": "../outside.txt",
        "gone.txt": "nope",
        "dirlink": "dir",
        "loop.txt": "loop.txt",
    }.items():
        (desk.root / link).symlink_to(target)
    assert set(await found(desk, "**/*")) == {"real.txt", "dir/inner.txt"}


async def test_odd_names_stay_on_one_line(desk: Toolbench) -> None:
    desk.write("a\nb.txt")
    with open(os.fsencode(desk.root) + b"/caf\xe9.txt", "wb"):  # noqa: PTH123 - pathlib takes no bytes
        pass
    assert set(await found(desk, "*.txt")) == {"a\\nb.txt", "caf\ufffd.txt"}


@pytest.mark.parametrize("pattern", ["../*", "src/../../*", "**/.."])
async def test_a_pattern_does_not_climb(desk: Toolbench, pattern: str) -> None:
    assert (await desk.call("glob", pattern=pattern)).error_type is ErrorType.INVALID_TOOL_PARAMS


async def test_a_path_that_is_no_directory_is_an_error(desk: Toolbench) -> None:
    desk.write("a.py")
    assert (await desk.call("glob", pattern="*", path="nope")).error_type is ErrorType.FILE_NOT_FOUND
    assert (await desk.call("glob", pattern="*", path="a.py")).error_type is ErrorType.NOT_A_DIRECTORY


async def test_too_many_alternatives_are_refused(desk: Toolbench) -> None:
    error = await desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "glob", pattern="{a,b}" * 12)
    assert error == "the pattern has more than 256 alternatives in braces"


@pytest.mark.requirement("S002-030")
def test_finding_files_changes_nothing() -> None:
    tool = EVERYTHING["glob"]
    assert tool.kind.looks
    assert tool.effect == "pure"


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("src", "It matches directories: src/. 'src/**' has their files."),
        ("src/", "It matches directories: src/. 'src/**' has their files."),
        ("**/tests", "It matches directories: src/tests/, tests/. '**/tests/**' has their files."),
        ("/workspace/src/tests", "It matches directories: src/tests/. '/workspace/src/tests/**' has their files."),
        ("[a-s]*", "It matches directories: a1/, a2/, a3/, …. '[a-s]*/**' has their files."),
        ("src\\\\*.py", "1 match 'src/*.py'."),
    ],
)
async def test_a_pattern_of_directories_gets_a_hint(desk: Toolbench, pattern: str, hint: str) -> None:
    for path in ("src/tests/a.py", "tests/b.py", "src/c.py", "a1/x", "a2/x", "a3/x"):
        desk.write(path)
    content = (await desk.call("glob", pattern=pattern.replace("\\\\", "\\"))).content
    assert content.endswith(hint)
