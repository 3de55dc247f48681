"""Searches that could not look at everything: they never say that nothing is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.contracts import Command, Completed
from deputize.worker.sandbox.bubblewrap import NoSandbox
from tests.runs.toolbench import Toolbench, open_toolbench

SLOW = r"(?=a)(a|a)*$(?<!q)"
"""Needs an engine that goes back, which gives up at a limit of its own."""


@dataclass
class Answering(NoSandbox):
    """A sandbox whose every command has the same answer."""

    done: Completed

    def __post_init__(self) -> None:
        super().__init__("")
        self.broken = None

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


async def test_an_engine_that_failed_is_reported(desk: Toolbench) -> None:
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
async def test_what_ripgrep_may_not_read_is_reported(desk: Toolbench, path: str, pattern: str) -> None:
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
    desk.write("blob", b"\x7fELF\0\nneedle\n")
    result = await desk.call("grep", pattern="needle", path="blob")
    assert result.content.endswith("blob: the pattern matches in it, but it is an ELF program or library.)")
    desk.write("late", b"needle\n" + b"x" * 200_000 + b"\0needle\n")
    result = await desk.call("grep", pattern="needle")
    assert result.content.startswith("late\n     1|needle\n     2|")
    assert "NUL characters are shown as \u2400 in: late" in result.content


async def test_more_files_with_nul_characters_than_are_shown_are_named(desk: Toolbench) -> None:
    for number in range(102):
        desk.write(f"{number:03d}.log", b"needle\0\n")
    result = await desk.call("grep", pattern="needle", max_results=1000)
    assert result.metadata["total"] == 100
    assert "but only so many files with NUL characters are shown at once" in result.content


async def test_a_listing_that_is_cut_off_names_its_end(answering: Callable[[Completed], Toolbench]) -> None:
    cut_off = Completed(0, b"./a.txt\0./b.t", b"", dropped_bytes=9)
    result = await answering(cut_off).call("glob", pattern="*")
    assert result.content == (
        "a.txt\n(Only 1 file could be listed, the most recently changed ones. Use a narrower path.)"
    )
    assert result.metadata["truncated"] is True


async def test_directories_that_cannot_be_listed_are_named(answering: Callable[[Completed], Toolbench]) -> None:
    locked = Completed(2, b"./a.txt\0", b"rg: ./locked: Permission denied (os error 13)\n")
    result = await answering(locked).call("glob", pattern="*.md")
    assert result.content.startswith("No file below . matches '*.md' among those that could be read.")
    assert "(Not searched, or not completely: locked: Permission denied.)" in result.content
    many = await answering(locked).call("read_many_files", paths=["*.md"])
    assert "No file that could be read matches '*.md'. (Not searched" in many.content
