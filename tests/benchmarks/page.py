"""The web page: its first paint, the browser's CPU for a live view, and 500 open pages at one API process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Browser, async_playwright

from deputize.shared.connection import Pipe, connect
from deputize.shared.delegation import Step, StepStatus, Usage
from deputize.shared.events import (
    AskedCall,
    Event,
    ProgressMade,
    Replied,
    RunStarted,
    StepCompleted,
    StepStarted,
    TextDelta,
    TurnStarted,
)
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import Emitter
from deputize.worker.linux.tree import command_line, descendants
from deputize.worker.redis_record import RedisRecord
from tests.benchmarks.notifying import Follower
from tests.benchmarks.number import Number, percentile
from tests.benchmarks.parts import Parts, Worker, open_parts
from tests.orchestrator.web.conftest import ARGUMENTS, INSTALLED
from tests.waiting import until

LIVE_SECONDS = 10.0
PER_SECOND = 100
FLEET = 20
DELTAS = 5
PAGES = 500
EVENTS = 30
PAUSE_SECONDS = 0.2
CHECK_SECONDS = 30
"""How often an open page asks for all that it shows, as in ``orchestrator/web/main.js``."""
ASKED = (
    "permissions",
    "delegations?limit=100",
    *(f"delegations?status={status}&limit=500" for status in ("running", "waiting", "queued")),
    *("workers", "delegations:count", "cost"),
)
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
SIZE = """performance.getEntries().filter(({entryType, name}) => entryType === "navigation" || name.includes("/web/"))
    .reduce((sum, {transferSize}) => sum + transferSize, 0)"""


async def measure(runs: int) -> list[Number]:
    paints, sizes, shown, fleets, pages = (list[float]() for _ in range(5))
    async with open_parts() as parts, _browser() as browser:
        url = await parts.api()
        for _ in range(runs):
            paint, size = await _opened(browser, url)
            paints.append(paint)
            sizes.append(size)
            shown.append(await _live(parts, browser, url, 1))
            fleets.append(await _live(parts, browser, url, FLEET))
            pages.append(await _open_pages(parts, url))
    each = f"{PER_SECOND} events a second"
    return [
        Number("page: first paint", "ms", paints, at_most=500),
        Number("… all of its files, as they are sent", "kB", sizes, at_most=120),
        Number(f"… CPU of the browser for one live delegation, {each}", "% of a core", shown, at_most=10),
        Number(f"… for a fleet of {FLEET} delegations, {each}", "% of a core", fleets, at_most=10),
        Number(f"{PAGES} open pages, an event → each of them, p99", "ms", pages, at_most=100),
    ]


@asynccontextmanager
async def _browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=INSTALLED.read_text().strip(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


async def _opened(browser: Browser, url: str) -> tuple[float, float]:
    """Milliseconds until the page paints for the first time with an empty cache, and the kilobytes of its files."""
    page = await browser.new_page()
    await page.goto(url)
    await page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    paint, size = await page.evaluate(PAINT), await page.evaluate(SIZE)
    await page.close()
    return paint, size / 1000


async def _live(parts: Parts, browser: Browser, url: str, count: int) -> float:
    """Per cent of a core that all processes of the browser use while a page shows this many busy delegations."""
    parts.empty()
    async with _running(parts, count) as emitters:
        page = await browser.new_page(viewport={"width": 1200, "height": 900})
        await page.goto(f"{url}/#{emitters[0][0]}" if count == 1 else url)
        await page.locator(".tree-row" if count == 1 else ".row-link").first.wait_for()
        async with asyncio.TaskGroup() as group:
            speaking = group.create_task(_speak([emitter for _, emitter in emitters]))
            await asyncio.sleep(2)
            used, begun = _browser_cpu(), time.perf_counter()
            await asyncio.sleep(LIVE_SECONDS)
            share = (_browser_cpu() - used) / (time.perf_counter() - begun) * 100
            speaking.cancel()
        await page.close()
    return share


@asynccontextmanager
async def _running(parts: Parts, count: int) -> AsyncGenerator[list[tuple[str, Emitter]]]:
    """Delegations that a worker has, and what writes their events."""
    async with (
        connect(parts.redis_url) as redis,
        connect(parts.redis_url, timeout=None) as writing,
        Pipe(writing, WRITING) as pipe,
    ):
        store, emitters = RunStore(redis, 60), list[tuple[str, Emitter]]()
        for number in range(count):
            request = DelegationRequest(task=f"Review part {number} of the code")
            (accepted,) = await store.accept([(new_id(), request, request.limits)], 600)
            claim = await store.claim(accepted.id, "benchmark", "benchmark", 600)
            assert claim is not None
            emitter = Emitter(RedisRecord(pipe), claim, [], lambda: None)
            emitter.emit(RunStarted(worker="benchmark", model="m", tools=["bash"], limits=Limits()))
            emitter.flush()
            emitters.append((accepted.id, emitter))
        yield emitters


async def _speak(emitters: Sequence[Emitter]) -> None:
    """So many events a second, of all of these in turn: turns with text that grows, and one call each."""
    begun, sent, number = time.perf_counter(), 0, 0
    while True:
        number += 1
        for events in zip(*(_turn(number) for _ in emitters), strict=True):
            for emitter, event in zip(emitters, events, strict=True):
                emitter.emit(event)
                emitter.flush()
                sent += 1
                await asyncio.sleep(max(0.0, begun + sent / PER_SECOND - time.perf_counter()))


def _turn(number: int) -> list[Event]:
    id = f"call-{number}"
    step = Step(
        id=id,
        type="bash",
        title=f"$ make part-{number}",
        status=StepStatus.RUNNING,
        tool_name="bash",
        turn_index=number,
        timestamp=now(),
    )
    ended = step.model_copy(update={"status": StepStatus.COMPLETED, "result": "It was made.\n" * 20})
    usage, text = Usage(input_tokens=100, output_tokens=20, cost_usd=0.001), "Now I look at the next part of it. "
    calls = [AskedCall(id=id, name="bash")]
    return [
        TurnStarted(turn=number),
        *(TextDelta(turn=number, text=text) for _ in range(DELTAS)),
        Replied(turn=number, text=text * DELTAS, stop_reason="tool_use", usage=usage, tool_calls=calls),
        StepStarted(step=step),
        ProgressMade(message="half of it is made"),
        StepCompleted(step=ended),
    ]


def _browser_cpu() -> float:
    """Seconds of CPU that the browser's processes have used so far."""
    program = Path(INSTALLED.read_text().strip()).name
    found = [pid for pid in descendants(os.getpid()) if program in (command_line(pid) or "")]
    assert found, f"no process of {program}"
    return sum(Worker(pid).cpu_seconds() for pid in found)


async def _open_pages(parts: Parts, url: str) -> float:
    """Milliseconds, p99, from an event of a run until each page has it in both of its streams.

    Each page follows the fleet and one delegation, and asks for all that it shows every half minute.
    """
    parts.empty()
    took, address = list[float](), urlsplit(url)
    assert address.hostname
    assert address.port
    loop = asyncio.get_running_loop()
    async with _running(parts, 1) as ((id, emitter),), AsyncExitStack() as opened, asyncio.TaskGroup() as group:
        for path in ("events", f"delegations/{id}/events"):
            for _ in range(PAGES):
                transport, _ = await loop.create_connection(lambda: Follower(took), address.hostname, address.port)
                transport.write(f"GET /v1/{path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
                opened.callback(transport.close)
        while len(took) != 2 * PAGES:  # until all of them follow
            took.clear()
            _tell(emitter)
            await asyncio.sleep(1)
        took.clear()
        asking = group.create_task(_ask(parts, url))
        for number in range(1, EVENTS + 1):
            _tell(emitter)
            await asyncio.sleep(PAUSE_SECONDS)
            await until(lambda number=number: len(took) == number * 2 * PAGES, 30)
        asking.cancel()
    return percentile(took, 99)


def _tell(emitter: Emitter) -> None:
    emitter.emit(ProgressMade(message=str(time.perf_counter_ns())))
    emitter.flush()


async def _ask(parts: Parts, url: str) -> None:
    """What all pages together ask for, evenly over the time."""
    number, begun = 0, time.perf_counter()
    async with asyncio.TaskGroup() as group:
        while True:
            for path in ASKED:
                group.create_task(_asked(parts, f"{url}/v1/{path}"))
                number += 1
                due = begun + number * CHECK_SECONDS / PAGES / len(ASKED)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def _asked(parts: Parts, url: str) -> None:
    (await parts.mock.http.get(url)).raise_for_status()
