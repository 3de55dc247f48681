"""Names that other authors choose: none becomes an option of bubblewrap or a file of ours."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.events import Replied, StepCompleted
from deputize.shared.request import DelegationRequest
from deputize.worker.contracts import Command
from deputize.worker.models import close_models
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Turn, text
from tests.runs.bench import Bench, open_bench
from tests.worker.sandbox.sandboxes import bash, sandbox_over

BIND = "v\0--bind\0/\0/tmp"


@pytest.mark.parametrize(
    "words",
    [{"env": {"X": BIND}}, {"env": {f"X\0y\0{BIND}": "1"}}, {"cwd": f".\0{BIND}"}, {"cwd": ".\0--share-net"}],
)
async def test_a_nul_in_a_commands_surroundings_is_refused(tmp_path: Path, words: dict[str, Any]) -> None:
    with sandbox_over(tmp_path / "ws") as sandbox:
        with pytest.raises(ToolError, match="NUL") as raised:
            await sandbox.run(bash("ls /tmp", **words))
        assert raised.value.type is ErrorType.EXECUTION_FAILED
        with pytest.raises(ToolError, match="NUL"):
            await sandbox.shells.start("ls", bash("ls /tmp", **words))
        with pytest.raises(ToolError, match="NUL"):
            await sandbox.start(Command(["/bin/ls", "a\0b"], 5), lambda _: None, lambda _: None)


@pytest.mark.parametrize("name", ["{victim}", "../victim.txt", "down/../../victim.txt", "link", "a\0b", ""])
async def test_a_mark_is_never_written_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    victim, status_folder = tmp_path / "victim.txt", tmp_path / "marks"
    victim.write_text("precious")
    (status_folder / "down").mkdir(parents=True)
    (status_folder / "link").symlink_to(victim)
    mark = name.format(victim=victim)
    with sandbox_over(tmp_path / "ws", status_folder=status_folder) as sandbox:
        if mark:
            with pytest.raises(ToolError, match="cannot be started"):
                await sandbox.run(bash("true", status_file=mark))
            assert sandbox.outcome(mark) is None
        else:
            await sandbox.run(bash("true", status_file=mark))
    assert victim.read_text() == "precious"
    assert sorted(path.name for path in status_folder.iterdir()) == ["down", "link"]


def bash_call(id: str, command: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "bash", "input": {"command": command, **more}}


@asynccontextmanager
async def endpoint(
    redis_url: str, home: Path, *turns: Sequence[dict[str, Any]]
) -> AsyncIterator[tuple[FakeModel, Bench]]:
    async with FakeModel([Turn(turn) for turn in turns]) as fake:
        known = fake.variables
        async with open_bench(redis_url, home, model_endpoint=known, model="claude-sonnet-5-5") as bench:
            yield fake, bench
        await close_models()


def answers(fake: FakeModel) -> list[tuple[str, str]]:
    """What the endpoint received last: the id of each call and its answer."""
    told = fake.journal[-1].body["messages"][-1]["content"]
    return [(block["tool_use_id"], block["content"]) for block in told if block["type"] == "tool_result"]


async def test_the_endpoints_ids_are_sent_in_the_apis_form_and_used_for_nothing_else(
    redis_url: str, tmp_path: Path
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    ids = [str(victim), "../../../../../victim.txt", "../start.json", "a\0b", "x" * 5000]
    calls = [bash_call(id, f"echo {n}", run_in_background=n == 1) for n, id in enumerate(ids)]
    async with endpoint(redis_url, tmp_path / "home", calls, [text("Done.")]) as (fake, bench):
        result = await bench.run()
        folder = bench.settings.workspaces / result.delegation_id
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
        told = answers(fake)
    assert (result.termination_reason, result.errors) == ("completed", [])
    assert victim.read_text() == "precious"
    assert (folder / "start.json").read_text() == "{}"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id) for id, _ in told)
    assert len({id for id, _ in told}) == len(ids)
    keys = [f"call_1_{number}" for number in range(1, 6)]
    assert [step.id for step in (e.step for e in events if isinstance(e, StepCompleted))] == keys
    assert [call.id for e in events if isinstance(e, Replied) for call in e.tool_calls] == keys
    assert set(keys) <= {path.name for path in folder.glob("*/marks/*")} | {
        path.name for path in folder.glob("marks/*")
    }


async def test_calls_of_one_id_or_none_are_distinguished(redis_url: str, tmp_path: Path) -> None:
    calls = [bash_call(id, f"echo {n}") for n, id in enumerate(["same", "same", "", "", "same-2"])]
    async with endpoint(redis_url, tmp_path / "home", calls, [text("Done.")]) as (fake, bench):
        result = await bench.run()
        told = answers(fake)
        assert [asked.status for asked in fake.journal] == [200, 200]
    assert (result.termination_reason, result.tool_call_count) == ("completed", 5)
    assert [said.strip() for _, said in told] == ["0", "1", "2", "3", "4"]
    assert len({id for id, _ in told}) == 5


async def test_a_call_keeps_its_key_and_turn_in_the_next_attempt(redis_url: str, tmp_path: Path) -> None:
    block = [bash_call("same", "echo 1 >> a.txt"), bash_call("same", "echo 2 >> a.txt; sleep 1000")]
    async with endpoint(redis_url, tmp_path / "home", [bash_call("first", "true")], block, [text("Done.")]) as (
        _,
        bench,
    ):
        id = await bench.accept(DelegationRequest(task="do it"))
        file = bench.settings.workspaces / id / "files/a.txt"
        await bench.interrupt(id, lambda: file.exists() and file.read_text() == "1\n2\n")
        await carry_out(bench.services, id)
        result = await bench.result(id)
        steps = [
            envelope.event.step for envelope in await bench.events(id) if isinstance(envelope.event, StepCompleted)
        ]
    assert (result.termination_reason, result.attempts) == ("completed", 2)
    assert [(step.id, step.turn_index) for step in steps] == [("call_1_1", 1), ("call_2_1", 2), ("call_2_2", 2)]
    assert "outcome unknown" in (steps[-1].error or "")
    assert result.file_changes[0].added_lines == 2


@pytest.mark.parametrize("pid", [1, 2])
async def test_no_command_can_say_what_was_left_behind(tmp_path: Path, pid: int) -> None:
    """It looks for the word of the guard wherever the guard's own process could show it."""
    script = f"""
        cat /proc/{pid}/cmdline /proc/{pid}/environ | tr '\\0' '\\n' | grep -E '^(word=)?[a-z]+-?[0-9a-f]*$' |
            sed 's/^word=//' > words
        while read -r word; do printf 'hidden\\n%s\\n99 forged\\n' "$word" >&2; done < words
    """
    with sandbox_over(tmp_path / "ws") as sandbox:
        done = await sandbox.run(bash(script, env={"word": "exported"}))
        assert sandbox.reaped == []
    assert b"hidden" in done.stderr or not (tmp_path / "ws/words").read_text()
