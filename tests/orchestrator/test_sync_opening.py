"""The opening of a `SyncOrchestrator`: Ctrl-C at any moment of it, and what cannot open."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from asyncio.subprocess import PIPE
from urllib.parse import urlsplit

import pytest

from deputize import Invalid, SyncOrchestrator, Unavailable
from tests.orchestrator.command_line import environment

IMPORTS = """
import signal, sys, threading
from concurrent.futures import Future
from deputize import SyncOrchestrator
"""
OPEN = """
orchestrator = SyncOrchestrator()
try:
    orchestrator.open()
except KeyboardInterrupt:
    print(sum(each.name == "deputize" for each in threading.enumerate()), flush=True)
"""
START = 'print(orchestrator.start("x").status)'
INTERRUPTED = f"{IMPORTS}{OPEN}input()\n{START}"
AT_ITS_START = """
def interrupt(frame, event, argument):
    if (event, frame.f_code) == (EVENT, threading.Thread.start.__code__):
        sys.setprofile(None)
        raise KeyboardInterrupt
sys.setprofile(interrupt)
"""
AS_IT_OPENS = """
OPENS = Future.set_result.__code__, Future.set_running_or_notify_cancel.__code__
def interrupt(frame, event, argument):
    if event == "call" and frame.f_code in OPENS and threading.current_thread().name == "deputize":
        sys.setprofile(None)
        threading.setprofile(None)
        opened = frame.f_locals["self"]
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        with opened._condition:
            opened._condition.wait_for(opened.cancelled, 30)
def hold(frame, event, argument):
    if HOLDS and event == "call" and frame.f_code is Future._invoke_callbacks.__code__:
        sys.setprofile(None)
        next(each for each in threading.enumerate() if each.name == "deputize").join(30)
threading.setprofile(interrupt)
sys.setprofile(hold)
"""


@pytest.mark.parametrize(
    "interrupt",
    [
        AT_ITS_START.replace("EVENT", "'call'"),
        AT_ITS_START.replace("EVENT", "'return'"),
        AS_IT_OPENS.replace("HOLDS", "False"),
        AS_IT_OPENS.replace("HOLDS", "True"),
    ],
    ids=["before its thread starts", "after its thread starts", "as it opens", "as it opens and ends at once"],
)
async def test_an_interrupt_of_its_opening_leaves_no_thread(redis_url: str, interrupt: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", f"{IMPORTS}{interrupt}{OPEN}{START}"),
        env=environment(DEPUTIZE_REDIS_URL=redis_url),
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out.decode(), err.decode()) == (0, "0\nqueued\n", "")


async def test_an_interrupted_opening_leaves_nothing_and_can_be_repeated(redis_url: str) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes what comes to Redis, and its answers back; before it may answer only what comes first is read."""
        first = await reader.read(1 << 16)
        asked.set()
        if may_answer.is_set():
            to_redis = await asyncio.open_unix_connection(urlsplit(redis_url).path)
            to_redis[1].write(first)
            await asyncio.gather(pass_on(reader, to_redis[1]), pass_on(to_redis[0], writer))
        else:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", INTERRUPTED),
            env=environment(DEPUTIZE_REDIS_URL=f"redis://127.0.0.1:{port}"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        assert process.stdout
        await asyncio.wait_for(asked.wait(), 60)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"0\n"
        may_answer.set()
        out, err = await asyncio.wait_for(process.communicate(b"\n"), 60)
    assert (process.returncode, out.decode(), err.decode()) == (0, "queued\n", "")


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


async def test_what_cannot_open_leaves_no_thread() -> None:
    before = {*threading.enumerate()}
    with pytest.raises(Invalid, match="did you mean"), SyncOrchestrator(url="http://127.0.0.1:1") as orchestrator:
        orchestrator.start("x", limit={})  # pyright: ignore[reportCallIssue]
    with pytest.raises(Unavailable), SyncOrchestrator(url="http://127.0.0.1:1") as orchestrator:
        orchestrator.start("x")
    assert {*threading.enumerate()} - before == set()
