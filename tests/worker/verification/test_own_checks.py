"""Kinds of checks of a user's own package: the files that they see, and what becomes of a mistake in one."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import TerminationReason, ToolAgentResult
from deputize.shared.libc import closing_fd
from deputize.worker.verification.own_checks import CheckArguments, CheckedFiles, CheckKind
from deputize.worker.workspace.manifest import Difference
from deputize.worker.workspace.workspace import Changed
from tests.runs.bench import call, open_bench, say, script


class Words(CheckArguments):
    words: tuple[str, ...] = ()


class Listed(CheckKind[Words]):
    """Finds everything wrong, and names all that it sees."""

    name = "listed"
    arguments = Words

    def problem(self, files: CheckedFiles, arguments: Words) -> str:
        return " ".join(f"{path}={files.read(path)!r}" for path in files.paths())


class Broken(CheckKind[CheckArguments]):
    name = "broken"
    arguments = CheckArguments

    def problem(self, files: CheckedFiles, arguments: CheckArguments) -> str:
        raise KeyError("no such table")


class Mistaken(CheckKind[Words]):
    """Makes the mistake that its word names."""

    name = "mistaken"
    arguments = Words

    def problem(self, files: CheckedFiles, arguments: Words) -> Any:
        (mistake,) = arguments.words
        if mistake == "exits":
            sys.exit(3)
        if mistake == "is cancelled":
            raise asyncio.CancelledError("stop")
        return files.read("a.txt") if mistake == "returns bytes" else None


class Lacks(CheckKind[Words]):
    """No file may hold one of the words."""

    name = "lacks"
    arguments = Words

    def problem(self, files: CheckedFiles, arguments: Words) -> str:
        found = [
            each for each in arguments.words for path in files.paths() if each.encode() in (files.read(path) or b"")
        ]
        return f"found {found[0]}" if found else ""


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "own", "name": name, "arguments": arguments}


async def checked(redis_url: str, folder: Path, *calls: Any, verify: list[Any], **fields: Any) -> ToolAgentResult:
    source = folder / "source"
    source.mkdir(exist_ok=True)
    (source / "a.txt").write_text("old\n")
    (source / "gone.txt").write_text("gone\n")
    (source / ".gitignore").write_text("*.log\n")
    model = script(folder, *([[*calls]] if calls else []), [say("Done.")])
    asked = {"workspace": {"kind": "directory", "path": str(source)}, "max_verify_rounds": 0} | fields
    async with open_bench(redis_url, folder / "home", checks=[Listed(), Broken(), Mistaken(), Lacks()]) as bench:
        return await bench.run(model=model, verify=verify, **asked)


async def test_it_sees_the_files_with_the_changes_and_nothing_outside(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    line = (
        f"echo new > a.txt; rm gone.txt; mkdir b; echo made > b/made.txt; echo x > x.log; ln -s {tmp_path}/secret out"
    )
    result = await checked(redis_url, tmp_path, call("bash", command=line), verify=[own("listed")])
    assert result.verification
    seen = ".gitignore=b'*.log\\n' a.txt=b'new\\n' b/made.txt=b'made\\n' out=None"
    assert (result.verification.verdict, result.verification.why) == ("refuted", seen)


async def test_it_sees_the_files_before_the_run_without_its_changes(redis_url: str, tmp_path: Path) -> None:
    mends = call("write_file", path="a.txt", content="new\n")
    result = await checked(redis_url, tmp_path, mends, verify=[own("lacks", words=["old"])])
    assert result.verification
    (check,) = result.verification.checks
    assert (check.base, check.candidate, check.outcome) == ("red", "green", "evidence")
    assert check.item == own("lacks", words=["old"])
    assert result.verification.verdict == "passed"  # only a command that failed before makes it verified


@pytest.mark.parametrize(
    ("verify", "why"),
    [
        ([own("lack")], "this worker has no kind of check with the name lack; it has broken, lacks, listed, mistaken"),
        (["true", own("lacks", word=[])], "the arguments of the check lacks are not valid: word: "),
        ([own("lacks", words="old")], "the arguments of the check lacks are not valid: words: "),
    ],
)
@pytest.mark.parametrize("early", [True, False])
async def test_a_check_that_the_worker_cannot_carry_out_ends_the_run_before_its_first_turn(
    redis_url: str, tmp_path: Path, verify: list[Any], why: str, early: bool
) -> None:
    result = await checked(redis_url, tmp_path, verify=verify, verify_early=early)
    assert (result.termination_reason, result.turn_count) == (TerminationReason.CHECKS_CANNOT_START, 0)
    assert result.summary.startswith(why)


async def test_an_exception_decides_nothing_and_the_other_checks_go_on(redis_url: str, tmp_path: Path) -> None:
    result = await checked(redis_url, tmp_path, verify=[own("broken"), own("lacks", words=["x" * 3])])
    assert result.verification
    assert [each.outcome for each in result.verification.checks] == ["inconclusive", "no_regression"]
    assert result.verification.checks[0].why == "the check broken raised KeyError: 'no such table'"
    assert result.verification.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("mistake", "why"),
    [
        ("exits", "raised SystemExit: 3"),
        ("is cancelled", "raised CancelledError: stop"),
        ("returns bytes", "returned bytes, which is not str"),
        ("returns None", "returned NoneType, which is not str"),
    ],
)
async def test_a_mistake_in_a_kind_ends_no_run(redis_url: str, tmp_path: Path, mistake: str, why: str) -> None:
    result = await checked(redis_url, tmp_path, verify=[own("mistaken", words=[mistake]), own("lacks", words=["xxx"])])
    assert result.verification
    assert [each.outcome for each in result.verification.checks] == ["inconclusive", "no_regression"]
    assert result.verification.checks[0].why == f"the check mistaken {why}"


class Counted(list[Difference]):
    """Counts how often all changes are looked through."""

    walks = 0

    def __iter__(self) -> Iterator[Difference]:
        self.walks += 1
        return super().__iter__()


def test_reading_many_files_looks_through_the_changes_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    changes = Counted()
    with closing_fd(os.open(tmp_path, os.O_RDONLY)) as fd:
        files = CheckedFiles(Changed(fd, fd, changes), now=True)
        assert [files.read("a") for _ in range(10)] == [b"new"] * 10
    assert changes.walks == 1


async def test_it_runs_in_a_thread_however_long_it_takes(redis_url: str, tmp_path: Path) -> None:
    seen: list[bool] = []

    class Here(CheckKind[CheckArguments]):
        name = "here"
        arguments = CheckArguments

        def problem(self, files: CheckedFiles, arguments: CheckArguments) -> str:
            seen.append(threading.get_ident() == loop_thread)
            return ""

    loop_thread = threading.get_ident()
    async with open_bench(redis_url, tmp_path / "home", checks=[Here()]) as bench:
        result = await bench.run(model=script(tmp_path, [say("Done.")]), verify=[own("here")])
    assert result.verification
    assert (result.verification.verdict, seen) == ("passed", [False, False])
