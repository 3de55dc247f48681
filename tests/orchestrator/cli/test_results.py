"""What `deputize run` says when the work is done: once, not at any length, and how to take it over."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from deputize.shared.delegation import TerminationReason
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize, environment
from tests.orchestrator.fake_service import FakeService

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
    assert done.err.count("  created ") == 50
    assert f"  and 10 more: deputize show {next(iter(service.runs))}" in done.err


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
