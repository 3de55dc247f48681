"""`deputize mcp` as a process: signals, and a standard input that its client holds open."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import DirectoryWorkspace
from tests.orchestrator.command_line import PROGRAM, deputize, environment
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import connected, content, delegate, hello, message
from tests.waiting import until


@asynccontextmanager
async def process(url: str) -> AsyncIterator[Process]:
    running = await asyncio.create_subprocess_exec(
        PROGRAM, "mcp", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment(DEPUTIZE_URL=url)
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def say(running: Process, *lines: str) -> None:
    assert running.stdin is not None
    running.stdin.write("".join(f"{line}\n" for line in lines).encode())
    await running.stdin.drain()


async def heard(running: Process) -> dict[str, Any]:
    assert running.stdout is not None
    return json.loads(await running.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_at_once_with_what_its_client_waits_for(
    url: str, service: FakeService, number: signal.Signals
) -> None:
    async with process(url) as running:
        await say(running, hello())
        assert (await heard(running))["result"]["serverInfo"]["name"] == "deputize"
        await say(running, message("notifications/initialized", None), delegate("x"))
        await until(lambda: service.following == 1)
        running.send_signal(number)
        assert await asyncio.wait_for(running.wait(), 30) == 0
    assert [run.status for run in service.runs.values()] == ["cancelled"]


async def test_lines_without_a_message_are_answered_without_an_id_and_do_not_end_it(url: str) -> None:
    lines = ["no message", "\x80", "[", "[]", " [ ] ", "[1]", "[[]]", "null", "7", "{}", "[1, 2]"]
    silent = [
        *("", " ", '{"jsonrpc":"2.0","method":"notifications/x","params":[1]}'),
        *('{"jsonrpc":"1.0","method":"notifications/x"}', '{"method":"notifications/x"}'),
    ]
    async with process(url) as running:
        await say(running, *lines, *silent, hello())
        answers = [await asyncio.wait_for(heard(running), 30) for _ in range(len(lines) + 1)]
        assert "result" in await asyncio.wait_for(heard(running), 30)
    assert {(each["id"], each["error"]["code"]) for each in answers} == {(None, -32700)}


async def test_a_message_after_a_byte_order_mark_and_those_of_a_batch_are_answered(url: str) -> None:
    ping = '{"jsonrpc":"2.0","id":%d,"method":"ping"}'
    async with process(url) as running:
        await say(running, f"\ufeff{hello()}")
        await heard(running)
        await say(running, message("notifications/initialized", None))
        await say(running, f"[{ping % 7}]", f" \ufeff [{ping % 8}, {ping % 9}]", "[", "[1]", ping % 10)
        answers = [await asyncio.wait_for(heard(running), 30) for _ in range(6)]
    assert sorted(answer["id"] for answer in answers if "result" in answer) == [7, 8, 9, 10]


async def test_a_message_that_cannot_be_read_is_mended_or_answered_with_the_reason(
    url: str, service: FakeService
) -> None:
    async with process(url) as running:
        await say(running, hello())
        await heard(running)
        await say(running, message("notifications/initialized", None))
        for line in (
            '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + "[" * 100_000,
            '{"method":"tools/call","params":{"id":3,"a":'
            + '{"a":' * 300
            + "1"
            + "}" * 301
            + ',"jsonrpc":"2.0","id":7}',
            '{"jsonrpc":"2.0","id":7,"method":["tools/call"]}',
            '{"jsonrpc":"2.0","id":7}',
            '{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\0"}}',
        ):
            await say(running, line)
            answer = await asyncio.wait_for(heard(running), 30)
            assert (answer["id"], answer["error"]["code"]) == (7, -32700), line[:100]
            assert answer["error"]["message"].startswith("the message cannot be read: "), line[:100]
        await say(running, message("tools/call", 8, name="delegate_start", arguments={"task": "a\ud83d b"}))
        assert not (await asyncio.wait_for(heard(running), 30))["result"].get("isError")
    assert [run.request.task for run in service.runs.values()] == ["a\ufffd b"]


@pytest.mark.parametrize("workspace", [{"kind": "directory", "path": "src"}, "src"], ids=["object", "string"])
async def test_relative_paths_start_where_it_was_started(
    url: str, service: FakeService, tmp_path: Path, workspace: object
) -> None:
    async with connected("stdio", url, cwd=tmp_path) as client:
        id = content(await client.call_tool("delegate_start", {"task": "x", "workspace": workspace}))["id"]
    assert service.runs[id].request.workspace == DirectoryWorkspace(kind="directory", path=str(tmp_path / "src"))


async def test_without_a_model_the_call_names_what_is_missing(tmp_path: Path) -> None:
    async with connected("stdio", "", cwd=tmp_path, home=tmp_path / "home") as client:
        result = await client.call_tool("delegate", {"task": "x"})
    assert result.is_error
    assert "there is no model to ask: set ANTHROPIC_API_KEY" in str(result.content)
    assert not tmp_path.joinpath("home", "stack.json").exists()


async def test_a_closed_input_is_its_end(url: str) -> None:
    done = await deputize("mcp", stdin="", DEPUTIZE_URL=url)
    assert (done.code, done.out, done.err) == (0, "", "")
