"""What is printed before the copy of a large directory."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.large_copies import LARGE_BYTES, LOOK_SECONDS, NotedCopies, large_copies
from deputize.orchestrator.request_fields import request_of
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import settings
from tests.orchestrator.terminal import on_terminal
from tests.waiting import until, until_it_waits
from tests.worker.workspace.trees import git

PART = 64 * 1024**2
LINKS = LARGE_BYTES // PART + 1
"""Names of one file: each of them is copied, and only one takes room here."""


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    with (folder / "0").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, PART)
    for number in range(1, LINKS):
        (folder / str(number)).hardlink_to(folder / "0")
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("large") / "data")


def of(folder: Path, **workspace: Any) -> Any:
    return request_of("x", {"workspace": {"kind": "directory", "path": str(folder), **workspace}})


def test_a_large_directory_is_named_with_its_size_and_the_seconds(large: Path) -> None:
    (sentence,) = large_copies([of(large)], settings())
    assert sentence == f"the run copies 1.0 GB of {large}, which may take 10 s; `exclude` leaves files out"
    (sentence,) = large_copies([of(large), of(large), of(large.parent, exclude=["data"])], settings())
    assert sentence.startswith("each of 2 runs copies 1.0 GB of ")


@pytest.mark.parametrize("why", ["excluded", "ignored", "with holes", "elsewhere", "gone", "slow", "goes on", "empty"])
def test_what_is_not_copied_from_here_is_not_counted(large: Path, tmp_path: Path, why: str) -> None:
    folder, exclude, more = tmp_path / "project", list[str](), dict[str, Any]()
    clock = itertools.repeat(0.0)
    if why == "with holes":
        folder.mkdir()
        with (folder / "sparse").open("wb") as file:
            file.truncate(10 * LARGE_BYTES)
    elif why == "ignored":
        fill(folder / "built")
        git(folder, "init", "-q")
        (folder / ".gitignore").write_text("built/\n")
        assert large_copies([of(folder, ignored=True)], settings())
    elif why != "gone":
        folder = large
    if why == "excluded":
        exclude = ["[1-9]*"]
    if why == "slow":
        clock = itertools.count(0.0, 5.0)
    request = of(folder, exclude=exclude)
    if why == "goes on":
        request = request.model_copy(update={"continues": "dlg_x"})
    if why == "empty":
        request = request_of("x", {})
    if why == "elsewhere":
        more["url"] = "https://deputize.example.org"
    assert large_copies([request], settings(**more), lambda: next(clock)) == []


@pytest.mark.parametrize("calls", [1, LINKS, LINKS + 5, 2 * LINKS])
@pytest.mark.parametrize("more", [{}, {"ignored": True}], ids=["git", "all"])
def test_a_look_ends_wherever_its_time_is_over(large: Path, calls: int, more: dict[str, Any]) -> None:
    clock = itertools.chain(itertools.repeat(0.0, calls), itertools.repeat(LOOK_SECONDS + 1))
    assert large_copies([of(large, **more)], settings(), lambda: next(clock)) == []


def test_all_directories_of_a_call_share_one_time_and_one_walk(large: Path) -> None:
    clock = itertools.count(0.0, 0.01)
    requests = [of(large, exclude=[f"no{number}"], ignored=True) for number in range(100)]
    found = large_copies(requests, settings(), lambda: next(clock))
    assert LOOK_SECONDS / 0.01 / LINKS / 2 < len(found) < LOOK_SECONDS / 0.01 / LINKS
    assert next(clock) < LOOK_SECONDS + 0.01 * 2 * len(requests)


async def test_a_program_finds_one_warning_for_a_directory_in_its_log(
    large: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copies, request = NotedCopies(settings()), of(large)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert [*await copies.noted([request, request])] == [request, request]
    assert [each.getMessage()[:20] for each in caplog.records] == ["the run copies 1.0 G"]


@pytest.mark.parametrize("command", [["run", "x"], ["batch", "{tasks}", "--format", "text"]], ids=["run", "batch"])
@pytest.mark.parametrize(("answer", "code"), [("n\n", 4), ("", 130)], ids=["no", "Ctrl-C"])
async def test_a_person_at_a_terminal_is_asked_before_a_large_copy(
    url: str, service: FakeService, large: Path, tmp_path: Path, command: list[str], answer: str, code: int
) -> None:
    (tmp_path / "tasks").write_text("one\n")
    words = [each.format(tasks=tmp_path / "tasks") for each in command]
    async with on_terminal(*words, "-w", str(large), DEPUTIZE_URL=url) as terminal:
        await until(lambda: "Go on? [y/N]:" in terminal.drawn, 60)
        assert "1.0 GB" in terminal.drawn
        assert "--exclude PATTERN" in terminal.drawn
        if answer:
            terminal.type(answer)
        else:
            await until_it_waits(terminal.process.pid)
            terminal.send(signal.SIGINT)
        assert await terminal.ended() == code
        assert "Traceback" not in terminal.drawn
    assert service.runs == {}


async def test_without_a_terminal_the_size_is_printed_and_the_work_begins(
    url: str, service: FakeService, large: Path
) -> None:
    done = await deputize("run", "x", "-w", str(large), "--wait", "0", DEPUTIZE_URL=url)
    assert (done.code, len(service.runs)) == (124, 1)
    assert "the run copies 1.0 GB of " in done.err
