"""The fleet: which workers are alive, their tools and their load, as they announce it themselves."""

from __future__ import annotations

import time
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from .delegation import Usage
from .errors import NotFound
from .runs.keys import DRAIN, TOOLS, WORKERS, worker_key
from .wire import Timestamp, Wire

if TYPE_CHECKING:
    from redis.asyncio import Redis

ANNOUNCE_SECONDS = 3
"""Seconds between two announcements of a worker; after three missed ones it counts as gone."""
MCP = "mcp__"
"""Prefix of the names of all tools of MCP servers. Servers come and go, so only a worker knows their tools."""
VERSION_HEADER = "X-Deputize-Version"
"""Of every response of the service."""
TOOLS_SECONDS = 7 * 24 * 3600
"""Seconds for which the fleet's tools are kept after the last announcement."""


class ToolCard(Wire):
    """A tool as the fleet announces it."""

    name: str
    """The name by which requests and models refer to it."""
    description: str
    """Its description, as the model reads it."""
    kind: str
    """Its class of operation: read, edit, delete, move, search, execute, think, fetch or other."""
    effect: str
    """The effect of a repeated call: pure, idempotent or effectful."""
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""
    source: str = "builtin"
    """``builtin``, ``discovered`` or ``mcp:SERVER``."""
    aliases: list[str] = Field(default_factory=list)
    """Other names that a model may use."""


EnvironmentState = Literal["preparing", "ready", "failed"]


class PreparedEnvironment(Wire):
    """What was prepared for the commands of runs, or is to be."""

    environment: str
    """Its table in the settings."""
    key: str
    """The name of the table, and the digest of all that decides about the result."""
    state: EnvironmentState = "ready"
    """``failed`` until a later preparation of the environment succeeds; its log has why."""
    bytes: int
    """What it takes on disk; 0 unless it is ready."""
    seconds: float
    """How long it took to prepare it, or has taken so far; 0 where that failed."""
    prepared_at: Timestamp
    """When that had ended, or began."""
    used_at: Timestamp
    """When a run last began with it."""
    workers: list[str] = Field(default_factory=list)
    """The workers that have it."""


class WorkerCard(Wire):
    """One worker process."""

    name: str
    """The name of the process, with its host."""
    pid: int
    """The process id on its host."""
    started_at: Timestamp
    """When the process started."""
    running: int
    """Runs that it executes now."""
    concurrency: int
    """How many runs it executes at most at a time."""
    model: str
    """The configured model, for requests that name none."""
    sandbox: str | None
    """Null where commands can run, else the reason why they cannot."""
    tools: list[str]
    """Names of the tools that it can offer."""
    loop_lag_seconds: float = 0.0
    """The longest time of the last minute by which its event loop was late."""
    usage: Usage = Usage()
    """Tokens and cost of the model calls that it has completed since it started."""
    environments: list[PreparedEnvironment] = Field(default_factory=list)
    """What it has prepared, or shares with other workers of its disk; at most 100."""
    version: str = ""
    """That of deputize; empty from a worker that announces none."""
    draining: bool = False
    """Whether it takes no more runs and hands over those it has; at 0 ``running`` it can be stopped or replaced."""


@cache
def own_version() -> str:
    """Returns the version of deputize that is installed here; empty if it is not installed."""
    return next((each.version for each in metadata.distributions(name="deputize")), "")


class Fleet:
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
        """Removes the announcement of a worker that stops."""
        await self._redis.zrem(WORKERS, name)
        await self._redis.delete(worker_key(name))

    async def workers(self) -> list[WorkerCard]:
        """Returns the workers that are alive, sorted by name.

        Raises the server's error where there is none because the server has no memory for what they announce.
        """
        await self._redis.zremrangebyscore(WORKERS, "-inf", time.time())
        names = await self._redis.zrange(WORKERS, 0, -1)
        if not names:
            await self._redis.zadd(WORKERS, {"": 0}, xx=True)  # adds nothing; refused without memory
        cards = await self._redis.mget([worker_key(name) for name in names]) if names else []
        return sorted((WorkerCard.model_validate_json(card) for card in cards if card), key=lambda card: card.name)

    async def environments(self) -> list[PreparedEnvironment]:
        """Returns what all workers have prepared, those first that were used last."""
        found: dict[tuple[str, str], PreparedEnvironment] = {}
        for card in await self.workers():
            for each in card.environments:
                known = found.get((each.key, each.state), each)
                newest = max(known, each, key=lambda one: one.used_at)
                found[each.key, each.state] = newest.model_copy(update={"workers": [*known.workers, card.name]})
        return sorted(found.values(), key=lambda each: each.used_at, reverse=True)

    async def drain(self, name: str) -> WorkerCard:
        """Asks a worker to drain; one that is just connecting again does not hear it. Raises ``NotFound``."""
        card = next((card for card in await self.workers() if card.name == name), None)
        if card is None:
            raise NotFound(f"no worker {name!r} is alive; `deputize workers` lists them")
        from .connection import publish

        await publish(self._redis, DRAIN, name)
        return card

    async def tools(self) -> list[ToolCard]:
        """Returns the fleet's tools, sorted by name; empty until a first worker has announced itself."""
        cards = (await self._redis.hgetall(TOOLS)).values()
        return sorted((ToolCard.model_validate_json(card) for card in cards), key=lambda card: card.name)
