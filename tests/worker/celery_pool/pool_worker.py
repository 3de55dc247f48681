"""A worker process with small tasks, for tests of the pool.

What happens inside is pushed to the Redis list SEEN, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from deputize.shared import log
from deputize.shared.connection import retried
from deputize.shared.errors import Misconfigured
from deputize.shared.queue import TASK, create_app
from deputize.shared.settings import Settings
from deputize.worker.celery_pool import process
from deputize.worker.celery_pool.pool import AsyncPool, AsyncTask, set_service
from deputize.worker.celery_pool.process import ProgressEvents

SEEN = "deputize:test:seen"

redis: Redis
progress: ProgressEvents
breaking, released = asyncio.Event(), asyncio.Event()


async def seen(*what: Any) -> None:
    line = " ".join(map(str, what))
    await retried(lambda: redis.rpush(SEEN, line))


async def answer(self: AsyncTask, question: str) -> str:
    await seen("answer", question, "for", self.request.id)
    return question[::-1]


async def stay(self: AsyncTask, seconds: float, cleanup: float = 0) -> str:
    await seen("start", self.request.id)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(cleanup)
        await seen("cancelled", self.request.id)
        raise
    await seen("end", self.request.id)
    return "done"


async def hold(self: AsyncTask) -> None:
    """Goes on when ``release`` runs."""
    await seen("start", self.request.id)
    await released.wait()
    await seen("end", self.request.id)


async def release(self: AsyncTask) -> None:
    released.set()


async def stubborn(self: AsyncTask) -> None:
    await seen("start", self.request.id)
    for _ in range(2):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await seen("ignored", self.request.id)


async def wait(self: AsyncTask, seconds: float) -> None:
    with self.job.pool.waiting():
        await stay(self, seconds)


async def retry(self: AsyncTask) -> None:
    await seen("try", self.request.retries, "of", self.request.id)
    if self.request.retries < 2:
        raise self.retry(countdown=0)


async def child(self: AsyncTask) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(seen("child of", self.request.id))


async def fail(self: AsyncTask, how: str) -> None:
    raise {"error": ValueError("no"), "exit": SystemExit(7), "cancel": asyncio.CancelledError()}[how]


async def program(self: AsyncTask) -> None:
    echo = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    output, _ = await echo.communicate()
    await seen(output.decode().strip(), echo.returncode)


async def block(self: AsyncTask, seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - the mistake that the watchdog is for
    await seen("blocked")


async def run(self: AsyncTask, id: str) -> str:
    """Like the product's own task, as far as Flower can see it."""
    progress.update(id, "step 3 of 6: read a.py")
    return await stay(self, 60)


async def advance(self: AsyncTask, id: str, text: str) -> None:
    progress.update(id, text)


async def break_service(self: AsyncTask) -> None:
    breaking.set()


TASKS = (advance, break_service, answer, stay, hold, release, stubborn, wait, retry, child, fail, program, block)


@asynccontextmanager
async def service(pool: AsyncPool) -> AsyncGenerator[None]:
    await seen("opened in", os.getpid())
    try:
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(_break_when_asked()), group.create_task(progress.send_forever())]
            yield
            for task in background:
                task.cancel()
    finally:
        await seen("closed")


async def _break_when_asked() -> None:
    await breaking.wait()
    raise ConnectionError("the service lost what it needs")


@asynccontextmanager
async def broken_service(pool: AsyncPool) -> AsyncGenerator[None]:
    raise Misconfigured("this service cannot be opened")
    yield


@asynccontextmanager
async def stuck_service(pool: AsyncPool) -> AsyncGenerator[None]:
    log.log.info("opening for ever")
    await asyncio.Event().wait()
    yield


def main() -> int:
    global redis, progress  # noqa: PLW0603 - this module is the process
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--soft-seconds", type=float, default=1)
    parser.add_argument("--broken", action="store_const", dest="service", const=broken_service, default=service)
    parser.add_argument("--stuck", action="store_const", dest="service", const=stuck_service)
    options = parser.parse_args()
    log.set_up("INFO")
    app = create_app(Settings.load(environ={}, shutdown_seconds=options.soft_seconds), options.url)
    redis = Redis.from_url(options.url, max_connections=2000)
    hostname = process.full_name("1")
    progress = ProgressEvents(app, hostname)
    app.task(run, name=TASK, base=AsyncTask, bind=True)
    for function in TASKS:
        app.task(function, name=function.__name__, base=AsyncTask, bind=True)
    set_service(app, options.service)
    return process.run(app, hostname, options.concurrency, ["deputize"], "INFO")
