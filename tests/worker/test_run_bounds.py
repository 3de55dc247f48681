"""The limits of the sandbox in a run: the model, the step and the result state which one ended a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.events import ErrorSeen
from deputize.shared.request import DirectoryWorkspace
from deputize.worker.sandbox.project_tools import NO_TOOLS
from deputize.worker.sandbox.usage import disk_bytes
from deputize.worker.workspace.workspace import Workspace
from tests.running import Bench, call, open_bench, say, script
from tests.worker.run_history import history_of

HOLD = "python3 -c 'import signal; b = b\"x\" * (400 << 20); signal.pause()'"
MEMORY = {"memory_bytes": 256 << 20}


@pytest.mark.requirement("S004-042")
async def test_a_command_killed_for_a_limit_is_a_failed_step_that_names_it(redis_url: str, tmp_path: Path) -> None:
    asked = [call("bash", command=f"echo so far; {HOLD}")]
    async with open_bench(redis_url, tmp_path / "home", sandbox=MEMORY) as bench:
        result = await bench.run(model=script(tmp_path, asked, [say("done")]))
        answer = (await history_of(bench, result))[2]["content"][0]
        (step,) = await bench.steps(result)
    assert result.termination_reason == "completed"
    for text in (answer["content"], step.error or "", *result.errors):
        assert "the limit is 256 MiB (sandbox.memory_bytes)" in text
    assert "so far" in answer["content"]
    assert len(result.errors) == 1


async def test_a_background_command_killed_for_a_limit_is_an_error_of_the_delegation(
    redis_url: str, tmp_path: Path
) -> None:
    read = call("bash_output", bash_id=r"{{result:1 /Bash ID: (\w+)/}}")  # waits 5 s for the line that it is killed
    turns = [call("bash", command=HOLD, run_in_background=True)], *[[read]] * 4, [say("done")]
    async with open_bench(redis_url, tmp_path / "home", sandbox=MEMORY) as bench:
        result = await bench.run(model=script(tmp_path, *turns))
        (error,) = [event for event in await bench.seen(result, ErrorSeen) if event.kind == "limit"]
    assert error.message in result.errors
    assert error.message.startswith("python3 -c")
    assert "(sandbox.memory_bytes)" in error.message


async def test_a_set_up_command_that_takes_too_much_disk_refuses_the_run(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    line = "head -c 9M /dev/zero >/opt/scratch/a; exec sleep 1000"
    settings = {"setup": line, "setup_disk_bytes": 4 << 20}
    async with open_bench(redis_url, tmp_path / "home", sandbox=settings) as bench:
        workspace = {"kind": "directory", "path": str(tmp_path / "project")}
        result = await bench.run(model=script(tmp_path, [say("done")]), workspace=workspace)
    assert result.termination_reason == "refused"
    assert "the limit is 4 MiB (sandbox.setup_disk_bytes)" in result.summary


async def test_what_a_copy_takes_is_known_before_the_first_command_of_its_run(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "project/sub").mkdir(parents=True)
    (tmp_path / "project/sub/a").write_bytes(bytes(100_000))
    (tmp_path / "project/link").symlink_to("sub/a")
    spec, home = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project")), tmp_path / "home"
    offer = bench.services.offers.of([None])
    for attempt in (1, 2):
        workspace = await Workspace.create(spec, "dlg_1", home, attempt=attempt)
        async with offer.sandbox(workspace, NO_TOOLS) as sandbox:
            assert sandbox.bounds
            known = sandbox.bounds.begin()
            assert known.done() is (attempt == 1)  # a later attempt's files are measured meanwhile
            assert await known == disk_bytes([workspace.path]) > 100_000
        workspace.close()
