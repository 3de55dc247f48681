"""Real Celery workers as processes, over a real Redis."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from deputize.shared.events import RunStarted, StepCompleted
from deputize.shared.limits import Limits
from deputize.shared.request import AutomaticRetry
from deputize.shared.settings import Settings
from tests.fake_model import FakeModel, Turn, refuse, text
from tests.fake_model import call as fake_call
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.system.stack_processes import child
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

WRITE = call("write_file", path="a.txt", content="one\n")


async def test_a_worker_carries_out_what_was_handed_over_before_it_came(fleet: Fleet, tmp_path: Path) -> None:
    id = await fleet.hand_over(model=script(tmp_path, [WRITE], [say("done")]))
    assert await fleet.service.workers() == []
    await fleet.start()
    assert (await fleet.result(id)).termination_reason == "completed"


@pytest.mark.costly
async def test_a_batch_is_spread_over_workers_and_every_event_is_heard_once(fleet: Fleet, tmp_path: Path) -> None:
    await asyncio.gather(fleet.start("1"), fleet.start("2"))
    model = script(tmp_path, {"blocks": [WRITE], "delay": 0.2}, [say("done")])
    ids = [await fleet.hand_over(model=model) for _ in range(60)]
    heard = await asyncio.gather(*(fleet.follow(id) for id in ids))
    durable = [[envelope.seq for envelope in events if envelope.seq] for events in heard]
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in durable)
    workers = {
        envelope.event.worker for events in heard for envelope in events if isinstance(envelope.event, RunStarted)
    }
    assert len(workers) == 2
    results = [await fleet.result(id) for id in ids]
    assert {result.termination_reason for result in results} == {"completed"}


@pytest.mark.requirement("P-15")
async def test_a_cancelled_command_is_gone_at_once(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start()
    model = script(tmp_path, [call("bash", command="echo begun > a.txt; exec sleep 1000")], [say("never")])
    id = await fleet.hand_over(model=model)
    await until((fleet.settings.workspaces / id / "files" / "a.txt").exists, 20)
    await fleet.service.cancel(id)
    result = await fleet.result(id, 5)
    assert (result.status, result.files_modified) == ("cancelled", ["a.txt"])


async def test_the_higher_priority_goes_first(fleet: Fleet, tmp_path: Path) -> None:
    model = script(tmp_path, [say("done")])
    ids = {priority: await fleet.hand_over(model=model, priority=priority) for priority in (0, 5, 9)}
    await fleet.start()
    results = {priority: await fleet.result(id) for priority, id in ids.items()}
    assert all(result.success for result in results.values())
    runs = {priority: await fleet.service.get(id) for priority, id in ids.items()}
    assert sorted(runs, key=lambda priority: str(runs[priority].started_at)) == [9, 5, 0]


async def test_a_worker_asked_to_stop_hands_its_runs_over(fleet: Fleet, tmp_path: Path) -> None:
    first = await fleet.start("1")
    hold = call("bash", command="echo $$ >> a.txt; exec sleep 1000")
    id = await fleet.hand_over(model=script(tmp_path, [WRITE], [hold], [say("done")]))
    file = fleet.settings.workspaces / id / "files" / "a.txt"
    await until(lambda: file.exists() and len(file.read_text().splitlines()) == 2, 60)
    await fleet.start("2")
    fleet.signal("1", signal.SIGTERM)
    result = await fleet.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 2)
    await until(lambda: first.poll() is not None, 60)
    assert [card.name.split("@")[0] for card in await fleet.service.workers()] == ["worker-2"]


async def test_a_worker_asked_to_stop_waits_for_the_call_under_way_and_begins_no_other(
    redis_url: str, tmp_path: Path
) -> None:
    """It has 1000 s for that call, and ends with it. Meanwhile it hands over a run of short calls."""
    async with open_fleet(redis_url, tmp_path / "home", lease_seconds=2, shutdown_seconds=1000) as fleet:
        first = await fleet.start("1")
        slow = call("bash", command="touch held; until [ -e go ]; do sleep 0.02; done")
        id = await fleet.hand_over(model=script(tmp_path, [slow, WRITE], [say("done")]))
        short = [[call("bash", command=f"sleep 0.1; echo {number}")] for number in range(50)]
        other = await fleet.hand_over(model=script(tmp_path, *short, [say("done")]), limits=Limits(max_turns=100))
        files = fleet.settings.workspaces / id / "files"
        await until((files / "held").exists, 60)
        await fleet.until_event(other, "step_started")
        fleet.signal("1", signal.SIGTERM)

        async def is_handed_over() -> bool:
            return (await fleet.service.get(other)).status == "queued"

        await until(is_handed_over, 60)
        ended = [e.event.step for e in await fleet.service.events(other) if isinstance(e.event, StepCompleted)]
        assert ended
        assert not any(step.error for step in ended)
        await fleet.service.cancel(other)
        assert (await fleet.service.get(id)).status == "running"
        (files / "go").touch()
        await until(lambda: first.poll() is not None, 60)
        assert not (files / "a.txt").exists()
        await fleet.start("2")
        result = await fleet.result(id)
        assert (result.termination_reason, result.attempts, result.errors) == ("completed", 2, [])
        assert result.files_modified == ["held", "go", "a.txt"]


async def test_a_killed_worker_is_replaced_by_another_and_the_work_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start("1")
    hold = call("bash", command="echo $$ >> a.txt; exec sleep 1000")
    id = await fleet.hand_over(model=script(tmp_path, [WRITE], [hold], [say("done")]))
    file = fleet.settings.workspaces / id / "files" / "a.txt"
    await until(lambda: file.exists() and len(file.read_text().splitlines()) == 2, 60)
    await fleet.start("2")
    await fleet.kill("1")
    result = await fleet.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 2)
    assert len(file.read_text().splitlines()) == 2


async def test_a_worker_that_is_ready_keeps_no_run_waiting_for_its_models_client(fleet: Fleet) -> None:
    """Started from nothing, as its imports are what this is about."""
    imports = fleet.settings.home / "imports"
    more = {"PYTHONPROFILEIMPORTTIME": "1", "ANTHROPIC_API_KEY": "key", "DEPUTIZE_MODEL": "claude-sonnet-5-5"}
    environment = fleet.settings.child_environment() | more
    with (
        imports.open("wb") as log,
        subprocess.Popen([sys.executable, "-m", "deputize.worker"], env=environment, stdout=log, stderr=log) as worker,
    ):
        await until(lambda: fleet.has_announced(worker.pid), 60)
        loaded = imports.read_text()
        worker.kill()
    assert "aiohttp.client" in loaded  # what sends a run's requests takes long to import


async def test_a_worker_killed_between_two_tries_costs_no_try(redis_url: str, tmp_path: Path) -> None:
    turns = [
        Turn([fake_call("write_file", path="a.txt", content="one")]),
        Turn([text("done")], faults=[refuse(529)]),
    ]
    async with FakeModel(turns) as model:
        endpoint = Settings.load(environ=model.variables)
        more = {"model_endpoint": endpoint.model_endpoint, "model_retry_seconds": 0.0, "lease_seconds": 2}
        async with open_fleet(redis_url, tmp_path / "home", **more) as fleet:
            await fleet.start("1")
            id = await fleet.hand_over(retry=AutomaticRetry(attempts=1))
            await fleet.until_event(id, "run_retried")
            await fleet.kill("1")
            await fleet.start("2")
            result = await fleet.result(id)
            kept = [envelope.event.type for envelope in await fleet.service.events(id)]
    assert (result.termination_reason, result.summary, result.files_modified) == ("completed", "done", ["a.txt"])
    assert [kept.count(each) for each in ("run_started", "run_retried", "run_resumed")] in ([2, 1, 0], [2, 1, 1])


@pytest.mark.requirement("P-16")
async def test_a_worker_has_its_standby_before_its_first_sandbox(fleet: Fleet) -> None:
    """Only the standby ends a sandbox that is half built when the worker is killed: `worker/standby/program.py`."""
    standby, was_seen = 0, False
    while not was_seen:  # the self-test is short, and this process may be slow to look
        worker = await fleet.start(wait=False)
        await until(partial(_tests_or_has_tested, fleet, worker.pid))
        worker.send_signal(signal.SIGSTOP)
        was_seen = _tests(fleet)
        standby = child(worker.pid, "standby/program.py")
        await fleet.kill("1")
    assert standby


async def _tests_or_has_tested(fleet: Fleet, pid: int) -> bool:
    return _tests(fleet) or await fleet.has_announced(pid)


def _tests(fleet: Fleet) -> bool:
    return any(fleet.settings.workspaces.glob("selftest-*"))


@pytest.mark.parametrize("lacking", ["aiohttp", "anthropic", "html_to_markdown"])
def test_a_worker_ends_at_once_without_a_package_of_its_extra(lacking: str, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.modules[{lacking!r}] = None; from deputize.worker.__main__ import main; sys.exit(main([]))"
    )
    env = {"PATH": "/usr/bin:/bin", "DEPUTIZE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", "-c", script], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"worker: no worker can run without {lacking}: `pip install '.[worker]'`")
