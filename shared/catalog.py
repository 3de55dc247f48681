"""What workers announce of themselves: who is there, with which tools and how busy."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field
from redis.asyncio import Redis

from shared.runs.keys import TOOLS, WORKERS, worker_key
from shared.wire import Timestamp, Wire

ANNOUNCE_SECONDS = 3
"""How often a worker says that it is there; after three silent times it counts as gone."""
MCP = "mcp__"
"""How the names of all tools of MCP servers begin. Servers come and go, so only a worker knows which there are."""
TOOLS_SECONDS = 7 * 24 * 3600
"""How long the fleet's tools are remembered after the last worker announced them."""


class ToolCard(Wire):
    """A tool as the fleet announces it."""

    name: str
    description: str
    kind: str
    effect: str
    parameters: dict[str, Any]
    source: str = "builtin"
    aliases: list[str] = Field(default_factory=list)


class WorkerCard(Wire):
    """One worker process. ``sandbox`` is null where commands can run, else the reason why they cannot."""

    name: str
    pid: int
    started_at: Timestamp
    running: int
    concurrency: int
    model: str
    sandbox: str | None
    tools: list[str]


class Catalog:
    """Reads and writes the announcements."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis

    async def announce(self, card: WorkerCard, tools: list[ToolCard]) -> None:
        silence = 3 * ANNOUNCE_SECONDS
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(worker_key(card.name), card.to_json(), ex=silence)
            pipeline.zadd(WORKERS, {card.name: time.time() + silence})
            pipeline.expire(WORKERS, TOOLS_SECONDS)
            if tools:
                pipeline.hset(TOOLS, mapping={tool.name: tool.to_json() for tool in tools})
                pipeline.expire(TOOLS, TOOLS_SECONDS)
            await pipeline.execute()

    async def leave(self, name: str) -> None:
        """A worker that stops says so, and is gone at once."""
        await self._redis.zrem(WORKERS, name)
        await self._redis.delete(worker_key(name))

    async def workers(self) -> list[WorkerCard]:
        """Those alive now, by name."""
        await self._redis.zremrangebyscore(WORKERS, "-inf", time.time())
        names = await self._redis.zrange(WORKERS, 0, -1)
        cards = await self._redis.mget([worker_key(name) for name in names]) if names else []
        return sorted((WorkerCard.model_validate_json(card) for card in cards if card), key=lambda card: card.name)

    async def tools(self) -> list[ToolCard]:
        """What the fleet can do, by name; empty until a first worker has announced itself."""
        cards = (await self._redis.hgetall(TOOLS)).values()
        return sorted((ToolCard.model_validate_json(card) for card in cards), key=lambda card: card.name)
