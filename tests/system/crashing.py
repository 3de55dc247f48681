"""A delegation whose every step has an effect that can be counted, and workers that are killed while they do it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deputize.shared.delegation import Step, ToolAgentResult
from deputize.shared.events import StepCompleted
from deputize.shared.queue import Ticket, create_app, send_tickets
from deputize.shared.request import DelegationRequest
from deputize.worker.workspace.generation import Generation
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.runs.older_store import accept_unqueued


class Counting:
    """An HTTP endpoint outside every workspace: what was asked of it cannot be taken back, only counted."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        except asyncio.IncompleteReadError:  # the client was killed before it had asked
            writer.close()
            return
        self.seen[line.split()[1].decode().lstrip("/")] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncGenerator[Counting]:
        counting = cls()
        counting._server = await asyncio.start_server(counting._answer, "127.0.0.1", 0)
        async with counting._server:
            yield counting


REPORTED = (
    "outcome unknown",
    "The disk was full while this ran",
    "No space left on device",
    "completed with exit code 1, but the run was interrupted",
)
"""Marks in the answers of calls whose effects may be missing; the last two are those of commands on a full disk."""
LONG = "".join(f"{number}: naïve\n" for number in range(200))


def append(number: int) -> dict[str, Any]:
    return call("bash", command=f"echo line-{number} >> log.txt")


def effects(folder: Path, counting: Counting, name: str, delay: float = 0) -> str:
    """Thirteen steps: appending through bash, writing, editing, reading, counting; some of them in one turn.

    Each turn begins after ``delay`` seconds.
    """

    def count(number: int) -> dict[str, Any]:
        return call("count", url=f"http://127.0.0.1:{counting.port}/{name}-{number}")

    turns = [
        [say("I begin."), append(1)],
        [call("write_file", path="a.txt", content="alpha\nbeta\n"), count(1)],
        [append(2), call("edit_file", path="a.txt", old_string="alpha", new_string="alpha alpha")],
        [call("read_file", path="a.txt"), count(2), append(3)],
        [call("edit_file", path="a.txt", old_string="beta", new_string="beta beta")],
        [call("write_file", path="b.txt", content=LONG), count(3)],
        [call("read_file", path="b.txt"), append(4)],
        [say("All is done.")],
    ]
    return script(folder, *({"blocks": blocks, "delay": delay} for blocks in turns))


async def hand_to(fleet: Fleet, queue: str, task: str = "do it", **fields: Any) -> str:
    """Accepts a delegation and sends its ticket to one queue only: its first worker is the one that serves it."""
    request = DelegationRequest(task=task, **fields)
    id = await accept_unqueued(fleet.service.store, request)  # else the workers of other queues serve it, too
    app = create_app(fleet.settings, str(fleet.settings.redis_url))
    await asyncio.to_thread(send_tickets, app, [Ticket(id, request.title, queue=queue)])
    app.close()
    return id


async def check(fleet: Fleet, counting: Counting, result: ToolAgentResult, name: str) -> list[str]:
    """Every effect exactly once or reported in doubt, events without gap or double, a history the API takes.

    Returns what is wrong, in words.
    """
    wrong: list[str] = []
    if result.termination_reason != "completed":
        wrong.append(f"ended as {result.termination_reason}: {result.summary}")
    history = [json.loads(entry) for entry in (await fleet.service.store.conversation(result.delegation_id))[0]]
    doubts = _doubts(history)
    folder = fleet.settings.workspaces / result.delegation_id
    lines = Counter(_text(folder, "log.txt").split())
    for number in range(1, 5):
        wrong += _counted(f"line-{number}", lines[f"line-{number}"], doubts, f"echo line-{number} ")
    for number in range(1, 4):
        wrong += _counted(f"count {number}", counting.seen[f"{name}-{number}"], doubts, f"/{name}-{number}")
    if _text(folder, "a.txt") != "alpha alpha\nbeta beta\n" and not any("a.txt" in doubt for doubt in doubts):
        wrong.append(f"a.txt is {_text(folder, 'a.txt')!r}")
    events = await fleet.service.events(result.delegation_id)
    steps = [each.event.step for each in events if isinstance(each.event, StepCompleted)]
    wrong += _otherwise_read(history, steps)
    numbers = [envelope.seq for envelope in events]
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"events are numbered {numbers}")
    wrong += _unanswered(history)
    return [*wrong, f"its steps: {[_outcome(step) for step in steps]}"] if wrong else []


def _outcome(step: Step) -> str:
    return f"{step.tool_name}: {step.error or step.result or ''}"[:200]


def _counted(what: str, times: int, doubts: list[str], mark: str) -> list[str]:
    if times == 1 or (times == 0 and any(mark in doubt for doubt in doubts)):
        return []
    return [f"{what} happened {times} times; in doubt: {[doubt[:80] for doubt in doubts]}"]


def _doubts(history: list[dict[str, Any]]) -> list[str]:
    """The arguments of the calls that are reported as of unknown outcome, or as failed on a full disk."""
    calls = {
        block["id"]: json.dumps(block["input"])
        for message in history
        for block in message["content"]
        if block["type"] == "tool_use"
    }
    return [
        calls[block["tool_use_id"]]
        for message in history
        for block in message["content"]
        if block["type"] == "tool_result" and any(mark in block["content"] for mark in REPORTED)
    ]


def _otherwise_read(history: list[dict[str, Any]], steps: list[Step]) -> list[str]:
    """What the model has got of files is what the events show: a long result is stored in one of them only."""
    blocks = [block for message in history for block in message["content"]]
    calls = {block["id"] for block in blocks if block["type"] == "tool_use" and block["name"] == "read_file"}
    got = [block["content"] for block in blocks if block["type"] == "tool_result" and block["tool_use_id"] in calls]
    shown = [step.result or f"Error: {step.error}" for step in steps if step.tool_name == "read_file"]
    if got == shown and len(got) == 2:
        last = got[-1]
        if last.startswith("Error: ") or all(line in last for line in LONG.splitlines()):
            return []
    return [f"of files the model got {got}, and the events show {shown}"]


def _unanswered(history: list[dict[str, Any]]) -> list[str]:
    wrong: list[str] = []
    for asked, answer in zip(history, [*history, {"content": []}][1:], strict=True):
        calls = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
        answers = [block["tool_use_id"] for block in answer["content"] if block["type"] == "tool_result"]
        if asked["role"] == "assistant" and calls != answers:
            wrong.append(f"calls {calls} are answered by {answers}")
    return wrong


def _text(folder: Path, name: str) -> str:
    """What the newest generation of the workspace has; attempts are numbered, and there may be more than nine."""
    latest = Generation.latest(folder)
    file = latest.files / name if latest else folder
    return file.read_text() if file.is_file() else ""


WORKER = "tests.system.counting_worker"
"""A worker with one more tool: ``count``."""
