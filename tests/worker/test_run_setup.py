"""Runs whose project is set up first: what the set-up command reaches, and what ends it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import ProgressMade
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from deputize.worker.task import carry_out
from tests.network.internet import response
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until
from tests.worker.sandbox.sandboxes import processes_named
from tests.worker.web.servers import saying, serving

ENDLESS = "touch /opt/setup/begun; sleep 98766 & exec sleep 98765"


@pytest.fixture
def project(tmp_path: Path) -> DirectoryWorkspace:
    (tmp_path / "project").mkdir()
    return DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))


async def told(bench: Bench, result: ToolAgentResult) -> list[str]:
    return [event.message for event in await bench.seen(result, ProgressMade)]


async def test_it_reaches_the_hosts_it_may(redis_url: str, tmp_path: Path, project: DirectoryWorkspace) -> None:
    model = script(tmp_path, [call("bash", command="grep 'from the index' /opt/setup/got >found")], [say("done")])
    async with serving(saying(response("from the index", "text/plain"))) as at:
        line = f"curl -sS --noproxy '' http://{at}/ >/opt/setup/got"
        sandbox = {"setup": line, "setup_hosts": ["localhost"]}
        async with open_bench(redis_url, tmp_path / "h", sandbox=sandbox, tools={"private_hosts": [at]}) as bench:
            result = await bench.run(model=model, workspace=project)
            begun, ended = await told(bench, result)
    assert result.files_modified == ["found"]
    assert begun == f"setting up: {line}"
    assert re.fullmatch(r"the set-up command took \d+\.\d s", ended)


async def test_a_host_that_it_may_not_reach_is_named_while_it_runs_and_in_the_result(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    sandbox = {"setup": "curl -sS https://other.test/", "setup_hosts": ["localhost"]}
    async with open_bench(redis_url, tmp_path / "h", sandbox=sandbox) as bench:
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
        assert "refused to the set-up command: other.test is not in sandbox.setup_hosts" in await told(bench, result)
    assert (result.termination_reason, result.turn_count) == ("refused", 0)
    assert result.summary.endswith("It was refused: other.test is not in sandbox.setup_hosts")


async def test_every_command_has_the_hosts_and_the_time_that_the_operator_sets(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    async with serving(saying(response("from the host", "text/plain"))) as at:
        fetch = f"curl -sS --noproxy '' http://{at}/"
        model = script(
            tmp_path,
            [call("bash", command=f"{fetch} >found; cat /opt/setup/found >>found; sleep 99; touch late")],
            [call("bash", command="curl -sS https://other.test 2>refused || true")],
            [say("done")],
        )
        sandbox = {"setup": f"{fetch} >/opt/setup/found", "allowed_hosts": ["localhost"], "command_seconds": 2}
        async with open_bench(redis_url, tmp_path / "h", sandbox=sandbox, tools={"private_hosts": [at]}) as bench:
            result = await bench.run(model=model, workspace=project)
            files = bench.settings.workspaces / result.delegation_id / "files"
            assert (files / "found").read_text() == "from the host" * 2
            assert "response 403" in (files / "refused").read_text()
    assert result.files_modified == ["found", "refused"]
    assert "was stopped after 2 seconds" in result.errors[0]


@asynccontextmanager
async def setting_up(
    redis_url: str, home: Path, project: DirectoryWorkspace, timeout: float = 600
) -> AsyncGenerator[tuple[Bench, str, asyncio.Task[Any]]]:
    """A run whose set-up command, with what it has started, does not end by itself."""
    async with open_bench(redis_url, home, sandbox={"setup": ENDLESS}) as bench:
        request = DelegationRequest(
            task="x",
            model=script(home.parent, [say("never")]),
            workspace=project,
            limits=Limits(timeout_seconds=timeout),
        )
        id = await bench.accept(request)
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: [*(home / "workspaces/setup").glob("*/begun")])
        yield bench, id, running
    assert [*(home / "workspaces/setup").iterdir()] == []
    assert processes_named("sleep 9876") == []


async def test_a_cancel_ends_it_at_once(redis_url: str, tmp_path: Path, project: DirectoryWorkspace) -> None:
    async with setting_up(redis_url, tmp_path / "home", project) as (bench, id, running):
        asked = time.monotonic()
        assert await bench.store.cancel(id) == "asked"
        await running
        assert time.monotonic() - asked < 1
        result = await bench.result(id)
    assert (result.status, result.summary) == ("cancelled", "Cancelled while the project was set up.")


async def test_the_runs_own_time_ends_it(redis_url: str, tmp_path: Path, project: DirectoryWorkspace) -> None:
    async with setting_up(redis_url, tmp_path / "home", project, timeout=1.5) as (bench, id, running):
        await running
        result = await bench.result(id)
    assert (result.termination_reason, result.turn_count) == ("timeout", 0)
    assert result.summary == "Stopped: timeoutSeconds 1.5 reached while the project was set up."


async def test_a_worker_that_shuts_down_ends_it_and_the_next_attempt_runs_it_again(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    async with setting_up(redis_url, tmp_path / "home", project) as (bench, id, running):
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await bench.store.get(id)).status == "queued"
        assert [*(tmp_path / "home/workspaces/setup").iterdir()] == []
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: [*(tmp_path / "home/workspaces/setup").glob("*/begun")])
        await bench.store.cancel(id)
        await running
