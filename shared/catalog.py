"""What workers announce of themselves: who is there, with which tools and how busy."""

from __future__ import annotations

from typing import Any

from shared.wire import Moment, Wire


class ToolCard(Wire):
    """A tool as the fleet announces it."""

    name: str
    description: str
    kind: str
    effect: str
    parameters: dict[str, Any]
    source: str = "builtin"
    aliases: list[str] = []


class WorkerCard(Wire):
    """One worker process. ``sandbox`` is null where commands can run, else the reason why they cannot."""

    name: str
    pid: int
    started_at: Moment
    running: int
    concurrency: int
    model: str
    sandbox: str | None
    tools: list[ToolCard]
