"""What `deputize run` says when the work is done: once, not at any length, and how to take it over."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import TerminationReason, Usage
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize, environment, started
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until

PATCH = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"


@pytest.mark.parametrize("folder", ["plain", "repository", "repository/be low"])
async def test_the_command_that_takes_the_changes_over_does_it(
    url: str, service: FakeService, tmp_path: Path, folder: str
) -> None:
    work = tmp_path / folder
    work.mkdir(parents=True)
    work.joinpath("a.txt").write_text("old\n")
    if "repository" in folder:
        subprocess.run(["git", "init", "-q", tmp_path / "repository"], check=True)

    def finish(id: str) -> None:
        service.patches[id] = PATCH
        service.finish(id, summary="Done.", file_changes=[{"path": "a.txt", "change": "modified"}])

    done = await run(url, service, "x", "--workspace", str(work), then=finish)
    said, _, command = done.err.splitlines()[-1].partition("; to take this over: ")
    assert said == f"  {work} itself is unchanged"
    variables = environment(DEPUTIZE_URL=url)
    await asyncio.to_thread(subprocess.run, ["bash", "-c", command], env=variables, check=True, cwd="/")
    assert work.joinpath("a.txt").read_text() == "new\n"


async def test_an_error_is_said_once_and_many_changes_are_counted(url: str, service: FakeService) -> None:
    changes = [{"path": f"{number}.txt", "change": "created"} for number in range(60)]

    def finish(id: str) -> None:
        said = {"summary": "It ended: the model is away.", "errors": ["the model is away", "another"]}
        service.finish(id, TerminationReason.ERROR, file_changes=changes, **said)

    done = await run(url, service, "x", then=finish)
    assert done.err.count("the model is away") == 0
    assert done.err.count("error: another") == 1
    assert done.err.count("  created ") == 20
    assert f"  and 40 more: deputize show {next(iter(service.runs))}" in done.err


async def test_what_was_not_copied_is_said_and_counted_beyond_five(url: str, service: FakeService) -> None:
    sentences = [f"{number}.sock is a socket and was not copied" for number in range(7)]

    def finish(id: str) -> None:
        large = {"path": "r.bin", "change": "created", "size": 60_000_000, "inPatch": False}
        service.finish(id, file_changes=[large], left_out=["r.bin is not in the patch: it is too large", *sentences])

    done = await run(url, service, "x", then=finish)
    shown = (await deputize("show", next(iter(service.runs)), DEPUTIZE_URL=url)).out.splitlines()
    for prefix, lines in (("  left out: ", done.err.splitlines()), ("left out   ", shown)):
        assert [line for line in lines if line.startswith(prefix)] == [
            *(f"{prefix}{sentence}" for sentence in sentences[:5]),
            f"{prefix}and 2 more",
        ]


async def test_what_the_patch_lacks_is_said_with_its_size_and_how_to_get_it(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    def finish(id: str) -> None:
        large = {"path": "r.bin", "change": "created", "size": 60_000_000, "inPatch": False}
        service.finish(id, file_changes=[large, {"path": "i.png", "change": "modified", "size": 2100}])

    done = await run(url, service, "x", "--workspace", str(tmp_path), then=finish)
    id = next(iter(service.runs))
    assert "  created r.bin (60 MB, not in the patch)" in done.err.splitlines()
    assert "  modified i.png (2.1 kB)" in done.err.splitlines()
    assert done.err.splitlines()[-1].startswith("  not in the patch: r.bin; to fetch: ")
    assert done.err.splitlines()[-1].endswith(f"pull {id}")


DENIED: dict[str, Any] = {"errors": ["the tool x is missing", "$ make: exit code 2", "write a.txt: denied: no"]}
DENIED |= {"failed_call_count": 2, "denied_call_count": 1}


async def test_a_success_counts_what_was_denied_and_recovered_and_what_did_not_change(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    done = await run(
        url, service, "x", "-w", str(tmp_path), then=lambda id: service.finish(id, summary="Fixed.", **DENIED)
    )
    shown = (await deputize("show", next(iter(service.runs)), DEPUTIZE_URL=url)).out
    ending = "✓ succeeded (completed, 1 call denied, 1 step failed, then recovered): "
    assert (done.code, done.err.count(ending), shown.count(ending)) == (0, 1, 1)
    errors = [line for line in (done.err + shown).splitlines() if "error" in line or "exit code" in line]
    assert errors == ["  error: the tool x is missing", "error      the tool x is missing"]
    assert "  no files changed" in done.err.splitlines()
    assert "changed    no files changed" in shown.splitlines()


async def test_nothing_is_said_of_files_where_there_are_none_or_they_are_not_known(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    done = await run(url, service, "x")
    assert "files changed" not in done.err
    done = await run(
        url, service, "x", "-w", str(tmp_path), then=lambda id: service.finish(id, truncated=True, left_out=["much"])
    )
    assert "files changed" not in done.err


async def test_a_failure_keeps_its_errors(url: str, service: FakeService) -> None:
    done = await run(
        url, service, "x", then=lambda id: service.finish(id, TerminationReason.MAX_TURNS, summary="Half.", **DENIED)
    )
    assert done.err.count("  error: ") == 3
    assert "✗ failed (max_turns, 1 call denied): " in done.err


@pytest.mark.parametrize(("denied", "code"), [(0, 0), (1, 4)])
async def test_denied_calls_fail_the_command_where_that_is_asked_for(
    url: str, service: FakeService, tmp_path: Path, denied: int, code: int
) -> None:
    def finish(id: str) -> None:
        service.finish(id, denied_call_count=denied, failed_call_count=denied)

    assert (await run(url, service, "x", "--fail-on-denied", then=finish)).code == code
    id = next(iter(service.runs))
    assert (await deputize("watch", id, "--fail-on-denied", DEPUTIZE_URL=url)).code == code
    assert (await deputize("watch", id, DEPUTIZE_URL=url)).code == 0
    tmp_path.joinpath("t.txt").write_text("one\n")
    async with started("batch", str(tmp_path / "t.txt"), "--fail-on-denied", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        finish(next(reversed(service.runs)))
        done = await command.done()
    assert (done.code, "1 call denied" in done.out) == (code, bool(denied))


async def test_the_line_of_a_batch_has_time_cost_and_changes(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("t.txt").write_text("one\ntwo\n")
    async with started("batch", str(tmp_path / "t.txt"), "-w", str(tmp_path), DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        first, second = service.runs
        changes = [{"path": f"{n}.txt", "change": "created", "addedLines": 2} for n in range(2)]
        used = {"execution_time_ms": 2100, "usage": Usage(cost_usd=0.01)}
        service.finish(first, summary="Did one.", file_changes=changes, **used)
        service.finish(second, summary="Did two.", **used)
        done = await command.done()
    assert sorted(done.out.splitlines()) == [
        f"✓ line 1  {first}  completed  2.1 s  $0.0100  2 files changed  Did one.",
        f"✓ line 2  {second}  completed  2.1 s  $0.0100  no files changed  Did two.",
    ]
