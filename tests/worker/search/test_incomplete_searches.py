"""Searches that could not look at everything: they never say that nothing is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.sandbox.base import NoSandbox
from deputize.worker.sandbox.command import Command, Completed
from deputize.worker.search.gitignore import MAX_COMPARED, MAX_COMPARED_IN_ALL, GitIgnore, GitIgnoreTree
from deputize.worker.search.walk import SkippedPaths, find_files, walk
from deputize.worker.workspace.files import Files
from tests.toolbench import Toolbench, open_toolbench

SLOW = r"(?=a)(a|a)*$(?<!q)"
"""Needs an engine that goes back, which gives up at a limit of its own."""


@dataclass
class Answering(NoSandbox):
    """A sandbox whose every command gives the same answer."""

    done: Completed

    def __post_init__(self) -> None:
        super().__init__("")

    @property
    def broken(self) -> str | None:
        return None

    def program(self, name: str) -> str | None:
        return f"/usr/bin/{name}"

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        return self.done


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[[Completed], Toolbench]]:
    with open_toolbench(tmp_path / "workspace") as desk:
        desk.write("a.txt", "x\n")

        def with_answer(done: Completed) -> Toolbench:
            desk.sandbox = Answering(done)
            return desk

        yield with_answer


async def test_an_engine_that_gave_up_is_told_of(desk: Toolbench) -> None:
    desk.write("a.txt", "a" * 5000 + "!\n")
    desk.write("b.txt", "plain\n")
    result = await desk.call("grep", pattern=SLOW)
    assert result.content == (
        f"Nothing matches {SLOW!r} in ., as far as it could be searched.\n"
        "(Not searched, or not completely: a.txt: the pattern takes too long there; use a simpler one.)"
    )
    assert result.metadata["truncated"] is True
    desk.write("c.txt", "aaa\n")
    result = await desk.call("grep", pattern=SLOW)
    assert result.content.startswith("c.txt\n     1|aaa\n(Not searched, or not completely: a.txt: ")


@pytest.mark.parametrize(("path", "pattern"), [("locked", "needle"), (".", "nothing")])
async def test_what_ripgrep_may_not_read_is_told_of(desk: Toolbench, path: str, pattern: str) -> None:
    desk.write("locked/a.txt", "needle\n")
    desk.write("b.txt", "other\n")
    (desk.root / "locked/a.txt").chmod(0)
    done = await desk.sandbox.run(Command(["cat", "locked/a.txt"], 10))
    if done.exit_code == 0:
        pytest.skip("modes do not bind commands here")
    result = await desk.call("grep", pattern=pattern, path=path)
    assert (
        "as far as it could be searched.\n(Not searched, or not completely: locked/a.txt: Permission" in result.content
    )


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (b"rg: ./sub: Permission denied (os error 13)\n", "sub: Permission denied."),
        (b"rg: ./a.txt: PCRE2: error matching: match limit exceeded\n", "a.txt: the pattern takes too long there"),
        (b"".join(b"rg: ./d%d: Is odd\n" % n for n in range(9)), "d4: Is odd; and 4 more."),
    ],
)
async def test_ripgreps_complaints_are_passed_on(
    answering: Callable[[Completed], Toolbench], stderr: bytes, said: str
) -> None:
    result = await answering(Completed(2, b"", stderr)).call("grep", pattern="x")
    assert result.success
    assert result.content.startswith("Nothing matches 'x' in ., as far as it could be searched.\n(Not searched")
    assert said in result.content


async def test_what_vanished_meanwhile_is_not_missed(answering: Callable[[Completed], Toolbench]) -> None:
    gone = b"rg: ./gone.txt: IO error for operation on ./gone.txt: No such file or directory (os error 2)\n"
    result = await answering(Completed(2, b"", gone)).call("grep", pattern="x")
    assert result.content == "Nothing matches 'x' in .."


@pytest.mark.parametrize("code", [137, 139, -9, 2, 127])
async def test_a_search_that_was_killed_is_no_answer(answering: Callable[[Completed], Toolbench], code: int) -> None:
    result = await answering(Completed(code, b"", b"")).call("grep", pattern="x")
    assert result.error_type is ErrorType.EXECUTION_FAILED
    assert result.error is not None
    assert "before it was complete" in result.error


async def test_a_binary_file_asked_for_by_name_is_no_silent_no(desk: Toolbench) -> None:
    desk.write("blob", b"\0\nneedle\n")
    result = await desk.call("grep", pattern="needle", path="blob")
    assert result.content.endswith("blob: it is binary, and the pattern matches in it.)")
    desk.write("late", b"needle\n" + b"x" * 200_000 + b"\0needle\n")
    result = await desk.call("grep", pattern="needle")
    assert result.content.startswith("late\n     1|needle\n")
    assert "late: only up to its first NUL" in result.content


async def test_the_search_without_ripgrep_tells_what_it_leaves_out(bare_desk: Toolbench) -> None:
    bare_desk.write("blob", b"\0\0needle\0")
    bare_desk.write("large.txt", b"x" * (9 * 1024 * 1024))
    result = await bare_desk.call("grep", pattern="needle")
    assert result.content.startswith("Nothing matches 'needle' in ., as far as it could be searched.\n")
    assert "large.txt" in result.content
    assert "blob" not in result.content  # binary files are left out, as the description says
    result = await bare_desk.call("grep", pattern="needle", path="blob")
    assert "as far as it could be searched" in result.content


def test_a_search_that_ends_at_the_roof_says_so(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
    skipped = SkippedPaths()
    with Files(tmp_path) as files:
        assert [*walk(files, ".", gitignore=True, stop=Event(), skipped=skipped, most=3)] == []
    assert skipped
    assert [*skipped.sentences()] == ["(Only the first 3 files and directories were searched. Use a narrower path.)"]


class Locked(Files):
    """Files below a directory that may not be opened, whoever we are."""

    def open_fd(self, path: str, flags: int = os.O_RDONLY) -> int:
        if path == "locked":
            raise ToolError(ErrorType.PERMISSION_DENIED, f"Permission denied: {path}")
        return super().open_fd(path, flags)


def test_directories_that_may_not_be_opened_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    skipped = SkippedPaths()
    with Locked(tmp_path) as files:
        assert find_files(files, "**/*", ".", gitignore=True, stop=Event(), skipped=skipped) == []
    assert [*skipped.sentences()] == ["(Not searched, or not completely: locked: Permission denied.)"]


def test_hostile_gitignores_have_a_roof(tmp_path: Path) -> None:
    """Of one file, and of all together: what is over it is not respected, and that is said."""
    starred = "".join(f"*a*{number}*b\n" for number in range(MAX_COMPARED * 4))
    assert not GitIgnore(starred).complete
    count = 2 * MAX_COMPARED_IN_ALL // MAX_COMPARED
    with Files(tmp_path) as files:
        for number in range(count):
            (tmp_path / f"{number:02d}").mkdir()
            (tmp_path / f"{number:02d}/.gitignore").write_text("".join(f"*a*{n}*b\n" for n in range(MAX_COMPARED)))
        ignoring = GitIgnoreTree(files)
        for number in range(count):
            ignoring.rules_of(f"{number:02d}")
        assert len(ignoring.truncated) == count // 2
        skipped = SkippedPaths()
        assert len(find_files(files, "**/*", ".", gitignore=True, stop=Event(), skipped=skipped)) == count
        assert not skipped
        [sentence] = skipped.sentences()
        assert sentence.startswith("(Too large to be respected completely: 0")


def test_lines_that_are_looked_up_have_no_such_roof() -> None:
    rules = GitIgnore("".join(f"name{n}\n*.end{n}\n/dir/path{n}\n" for n in range(5000)))
    assert rules.complete
    assert rules.decision(["x", "name4999"], directory=False)
    assert rules.decision(["a.end4999"], directory=False)
    assert rules.decision(["dir", "path4999"], directory=False)
    assert rules.decision(["dir", "path5000"], directory=False) is None


def test_a_search_is_stopped_inside_one_directory(tmp_path: Path) -> None:
    class StopsAfter(Event):
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 10

    for number in range(100):
        (tmp_path / f"{number}.txt").touch()
    stop = StopsAfter()
    with Files(tmp_path) as files:
        assert find_files(files, "*", ".", gitignore=True, stop=stop) == []
    assert stop.asked < 20
