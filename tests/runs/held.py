"""A model whose replies wait for the test, so that a message can come at a known moment of a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from deputize.shared.events import MessageRead, MessageReceived, WrapUpRequested
from deputize.shared.message import Message, MessageMode
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.messages import send
from deputize.shared.runs.store import RunStore
from deputize.worker.models.base import Part, Prompt
from deputize.worker.models.scripted import Script, ScriptedModel
from deputize.worker.task import carry_out
from tests.runs.bench import Bench
from tests.waiting import until

NAME = "held"


class HeldModel(ScriptedModel):
    """Plays its turns, each reply when ``release`` was called for it."""

    def __init__(self, *turns: Any, **more: Any) -> None:
        rules = [{"turns": [*turns], "summary": "The report."}]
        super().__init__(Script.model_validate({"rules": rules, "label": "", **more}), NAME)
        self.prompts: list[list[dict[str, Any]]] = []
        """The messages of each request."""
        self.tools_allowed: list[bool] = []
        self._released = asyncio.Semaphore(0)

    def release(self, replies: int = 1) -> None:
        for _ in range(replies):
            self._released.release()

    async def asked(self, times: int) -> None:
        await until(lambda: len(self.prompts) >= times, timeout=20)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part, None]:
        self.prompts.append([json.loads(message) for message in prompt.messages])
        self.tools_allowed.append(prompt.allow_tools)
        await self._released.acquire()
        async for part in super().reply(prompt):
            yield part

    def texts(self, request: int) -> list[str]:
        """The texts that the user messages of that request have, in order."""
        blocks = [block for each in self.prompts[request] if each["role"] == "user" for block in each["content"]]
        return [block["text"] for block in blocks if block["type"] == "text"]


def provide(bench: Bench, model: HeldModel) -> HeldModel:
    """Makes the model the one of requests with its name."""

    async def opened() -> HeldModel:
        return model

    bench.services.models[NAME] = asyncio.ensure_future(opened())
    return model


@asynccontextmanager
async def under_way(bench: Bench, id: str) -> AsyncGenerator[asyncio.Task[Any]]:
    """Carries the delegation out beside the block, to its end."""
    running = asyncio.create_task(carry_out(bench.services, id))
    try:
        yield running
        async with asyncio.timeout(30):
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def accepted(bench: Bench, **fields: Any) -> str:
    return await bench.accept(DelegationRequest(task="do it", model=NAME, **fields))


async def post(store: RunStore, id: str, text: str = "", mode: MessageMode = MessageMode.STEER) -> str:
    """Sends a message. Returns its id."""
    return await send(store.redis, id, Message.new(text, mode, "tester"), store.retention)


async def steer(bench: Bench, id: str, *texts: str) -> list[str]:
    """Sends these messages and waits until the run reports them. Returns their ids."""
    sent = [await post(bench.store, id, text) for text in texts]
    await until(lambda: reported(bench, id, sent))
    return sent


async def wrap_up(bench: Bench, id: str, text: str = "") -> str:
    sent = await post(bench.store, id, text, MessageMode.WRAP_UP)
    await until(lambda: reported(bench, id, [sent]))
    return sent


async def reported(bench: Bench, id: str, sent: list[str]) -> bool:
    found = await bench.seen(id, MessageReceived, WrapUpRequested)
    return {*sent} <= {event.message_id for event in found}


async def receipts(bench: Bench, id: str) -> list[tuple[str, int]]:
    """The messages that were read, with the turns."""
    return [(event.message_id, event.turn) for event in await bench.seen(id, MessageRead)]
