"""`deputize batch`: many at once, into a file, and on again after a break."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from deputize.orchestrator.cli.batch import submit_in_chunks
from deputize.orchestrator.cli.batch_input import BatchInput
from deputize.orchestrator.cli.request_options import RequestOptions
from deputize.orchestrator.client import Client
from deputize.shared.delegation import TerminationReason
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task": "one"}\n\n{"task": "two", "limits": {"maxTurns": 2}}\n{"task": "three"}\n')
    return path


async def finish_each(service: FakeService, number: int) -> None:
    """Finishes delegations as they are followed, the newest first."""
    await until(lambda: service.following == number, 60)
    for id in reversed(service.runs):
        if not service.runs[id].status.finished:
            service.finish(id, summary=f"did {service.runs[id].request.task}")


async def test_results_come_as_they_finish_with_their_lines(url: str, service: FakeService, tasks: Path) -> None:
    async with started("batch", str(tasks), "--json", DEPUTIZE_URL=url) as command:
        await finish_each(service, 3)
        done = await command.done()
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert {row["line"]: row["summary"] for row in rows} == {1: "did one", 3: "did two", 4: "did three"}


async def test_stdin_is_read_and_people_get_a_line_each(url: str, service: FakeService) -> None:
    async with started("batch", "-", stdin='{"task": "one"}', DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        service.finish(id, TerminationReason.ERROR, summary="It broke.\nBadly.")
        done = await command.done()
    assert (done.code, done.out) == (1, f"✗ line 1  {id}  error  0.0 s  $0.0000  It broke. Badly.\n")


async def test_a_wrong_line_is_named_and_nothing_is_handed_over(url: str, service: FakeService, tasks: Path) -> None:
    tasks.write_text('{"task": "one"}\n{"task": "two", "limits": {"maxTurn": 2}}\n')
    done = await deputize("batch", str(tasks), DEPUTIZE_URL=url)
    assert done.code == 2
    assert "line 2: /limits/maxTurn: unknown key 'maxTurn'; did you mean 'maxTurns'?" in done.err
    assert service.runs == {}


async def test_after_a_break_resume_does_only_what_is_left_and_nothing_twice(
    url: str, service: FakeService, tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    arguments = ["batch", str(tasks), "--out", str(out)]
    async with started(*arguments, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 3, 60)
        first, second, third = service.runs
        service.finish(second, summary="did two")
        await until(out.read_text)
        await command.stop()  # killed: what it followed goes on without it
    service.finish(third, summary="did three")
    assert (await deputize(*arguments, DEPUTIZE_URL=url)).code == 2  # it has results already

    async with started(*arguments, "--resume", DEPUTIZE_URL=url) as command:
        await until(lambda: len(out.read_text().splitlines()) == 2, 60)
        await until(lambda: service.following == 1)
        service.finish(first, summary="did one")
        done = await command.done()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert done.code == 0
    assert len(service.runs) == 3
    assert {row["line"]: row["summary"] for row in rows} == {1: "did one", 3: "did two", 4: "did three"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.jsonl", "tasks.jsonl"]

    done = await deputize(*arguments, "--resume", DEPUTIZE_URL=url)
    assert (done.code, done.out) == (0, "")
    assert "3 done before, 0 requests left" in done.err


async def test_resume_without_out_is_wrong_use(tasks: Path) -> None:
    done = await deputize("batch", str(tasks), "--resume")
    assert done.code == 2
    assert "--out" in done.err


async def test_more_than_the_service_takes_at_once_is_sent_in_pieces(url: str, service: FakeService) -> None:
    source = BatchInput.of("-", "text", RequestOptions({}))
    lines = source.read(io.BytesIO(b"".join(b"t%d\n" % number for number in range(1001))))
    async with Client(url) as client:
        delegations = await submit_in_chunks(client, source, lines)
    assert [delegation.request.task for delegation in delegations] == [f"t{number}" for number in range(1001)]
