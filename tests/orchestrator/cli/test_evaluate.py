"""`deputize eval`: the runs of each task, their figures, and on again after a break."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import TerminationReason
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task": "one", "idempotencyKey": "k"}\n\n{"task": "two"}\n')
    return path


def finish(service: FakeService, *failing: int) -> None:
    """Finishes what is not finished; ``failing`` are the numbers of those that reach a limit, from 0."""
    for number, (id, run) in enumerate([*service.runs.items()]):
        if not run.status.finished:
            reason = TerminationReason.MAX_TURNS if number in failing else TerminationReason.COMPLETED
            service.finish(id, reason)


async def evaluated(
    url: str, service: FakeService, *arguments: str, failing: tuple[int, ...] = (), runs: int = 4
) -> Any:
    async with started("eval", *arguments, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 4, 60)
        finish(service, *failing)
        return await command.done()


async def test_each_task_runs_so_often_and_the_figures_come_last(url: str, service: FakeService, tasks: Path) -> None:
    done = await evaluated(url, service, str(tasks), "--runs", "2", "--json", failing=(3,))
    *rows, figures = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0, done.err
    assert sorted((row["task"], row["run"], row["title"]) for row in rows) == [
        (1, 1, "one"),
        (1, 2, "one"),
        (2, 1, "two"),
        (2, 2, "two"),
    ]
    assert len({run.request.idempotency_key for run in service.runs.values() if run.request.task == "one"}) == 2
    assert (figures["k"], figures["passAt1"]["value"], figures["passAllK"]["value"]) == (2, 0.75, 0.5)
    assert figures["ends"] == {"succeeded": 3, "max_turns": 1}
    assert [each["successes"] for each in figures["byTask"]] == [2, 1]


async def test_after_a_break_only_what_is_left_is_run_and_two_are_compared(
    url: str, service: FakeService, tasks: Path, tmp_path: Path
) -> None:
    out, page = tmp_path / "results.jsonl", tmp_path / "page.html"
    arguments = ("eval", str(tasks), "--runs", "2", "--out", str(out))
    async with started(*arguments, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 4, 60)
        service.finish([*service.runs][1], TerminationReason.MAX_TURNS)
        await until(out.read_text)
        await command.stop()
    finish(service)
    done = await deputize(*arguments, "--resume", "--html", str(page), DEPUTIZE_URL=url)
    assert (done.code, len(service.runs)) == (0, 4), done.err
    assert "1 done before, 3 requests left" in done.err
    assert "1 of 2" in done.out
    assert "pass^2" in done.out
    assert "<!doctype html>" in page.read_text()
    again = await deputize(*arguments, "--resume", "--against", str(out), DEPUTIZE_URL=url)
    assert (again.code, len(service.runs)) == (0, 4)
    assert "0 of 2 tasks differ, which is too few for a conclusion" in again.out


async def test_a_log_for_inspect_has_each_run_as_an_epoch_of_its_task(
    url: str, service: FakeService, tasks: Path, tmp_path: Path
) -> None:
    """The names are those that `read_eval_log` and `list_eval_logs` of inspect_ai 0.3.285 were seen to accept."""
    logs = tmp_path / "made" / "logs"
    arguments = (str(tasks), "--runs", "2", "--inspect", str(logs), "--model", "m")
    done = await evaluated(url, service, *arguments, failing=(3,))
    (path,) = logs.iterdir()
    assert done.code == 0, done.err
    assert f"inspect view --log-dir {logs}" in done.err
    assert re.match(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}.*_tasks_.*\.json$", path.name)
    log = json.loads(path.read_text())
    assert [*log] == ["version", "status", "eval", "plan", "results", "stats", "samples"]
    assert (log["version"], log["status"], log["plan"]) == (2, "success", {"name": "plan", "steps": []})
    assert {name: log["eval"][name] for name in ("task", "model", "config")} == {
        "task": "tasks",
        "model": "m",
        "config": {"epochs": 2},
    }
    begun, ended = (datetime.fromisoformat(log["stats"][name]) for name in ("started_at", "completed_at"))
    assert timedelta() < ended - begun < timedelta(minutes=2)
    assert log["eval"]["dataset"] == {"name": "tasks", "samples": 2, "sample_ids": [1, 2]}
    (score,) = log["results"]["scores"]
    assert {name: each["value"] for name, each in score["metrics"].items()} == {
        "pass@1": 0.75,
        "pass@k": 1.0,
        "pass^k": 0.5,
    }
    samples = [(each["id"], each["epoch"], each["scores"]["deputize"]["value"]) for each in log["samples"]]
    assert samples == [(1, 1, "C"), (1, 2, "C"), (2, 1, "C"), (2, 2, "I")]
    last = log["samples"][-1]
    assert (last["input"], last["output"]["choices"][0]["message"]["role"]) == ("two", "assistant")
    assert last["metadata"]["terminationReason"] == "max_turns"
    assert last["model_usage"]["m"].keys() >= {"input_tokens", "output_tokens", "total_tokens", "total_cost"}


async def test_without_a_run_that_ended_there_are_no_figures(url: str, service: FakeService, tasks: Path) -> None:
    async with started("eval", str(tasks), "--runs", "1", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        for id in [*service.runs]:
            service.finish(id, TerminationReason.CANCELLED)
        done = await command.done()
    assert (done.code, "pass@1" in done.out) == (4, False), done.err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--resume"], "--resume needs --out"),
        (["--against", "tasks.jsonl"], "line 1 is not a result of an evaluation"),
        (["--runs", "0"], "--runs"),
        (["--out", "tasks.jsonl"], "holds the requests"),
    ],
)
async def test_what_cannot_be_evaluated_is_refused_before_anything_runs(
    url: str, service: FakeService, tasks: Path, given: list[str], why: str
) -> None:
    done = await deputize("eval", "tasks.jsonl", *given, cwd=tasks.parent, DEPUTIZE_URL=url)
    assert (done.code, why in done.err) == (2, True), done.err
    assert service.runs == {}
