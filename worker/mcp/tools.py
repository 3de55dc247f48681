"""The tools of MCP servers: names that every model takes, and calls that go to the server they came from."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import mcp_types as types

from shared.errors import Misconfigured
from worker.mcp.content import result_of
from worker.mcp.entry import Server, matches
from worker.mcp.link import Link
from worker.mcp.names import exposed
from worker.mcp.spelling import unmatched
from worker.output import clip
from worker.schemas.declared import Declared
from worker.schemas.pool import ValidatorPool
from worker.toolkit.declared import DeclaredTool
from worker.tools.base import Effect, Kind, ToolContext, ToolResult

MAX_DESCRIPTION = 4000
_MAX_UNMATCHED = 10
PROGRESS_SECONDS = 0.1
"""Between two pieces of news of one call; a server may report each byte."""


class McpTool(DeclaredTool):
    """One tool of one server. Raises ``Misconfigured`` for a declaration that models cannot be given."""

    source = "mcp"

    def __init__(self, link: Link, told: types.Tool, name: str, declared: Declared) -> None:
        hints = told.annotations or types.ToolAnnotations()
        effect = (
            Effect.PURE if hints.read_only_hint else Effect.IDEMPOTENT if hints.idempotent_hint else Effect.EFFECTFUL
        )
        kind = Kind.READ if hints.read_only_hint else Kind.OTHER
        words = clip(told.description or told.title or told.name, MAX_DESCRIPTION)
        super().__init__(name, words, declared, kind=kind, effect=effect)
        self.server = link.server.name
        self.remote = self._called = told.name
        self.trusted = link.server.trusts(told.name)
        self._link = link
        self._title = clip(f"{self.server}: {told.title or hints.title or told.name}", 120)

    def title(self, params: Any) -> str:
        return self._title

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        last = -PROGRESS_SECONDS

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                said = {"message": clip(message, 500)} if message else {}
                ctx.metadata(progress=progress, **({} if total is None else {"total": total}), **said)

        answer = await self._link.call(
            self._called, params, tell, repeatable=self.effect in (Effect.PURE, Effect.IDEMPOTENT)
        )
        return await result_of(answer, ctx, self._title)


async def tools_of(
    link: Link, listed: Iterable[types.Tool], taken: set[str], validators: ValidatorPool
) -> tuple[list[McpTool], list[str]]:
    """The server's tools that are allowed and usable, and what is wrong with the others. ``taken`` gets their names."""
    tools: dict[str, McpTool] = {}
    listed = [*listed]
    problems = [f"the MCP server {link.server.name!r}: {each}" for each in _unmatched(link.server, listed)]
    for told in listed:
        if not link.server.tools.lets(told.name):
            continue
        try:
            if told.name in tools:
                raise Misconfigured("the server names it twice")
            name = exposed(link.server.name, told.name, taken)
            declared = await Declared.by_stranger(name, told.input_schema, validators)
            tools[told.name] = tool = McpTool(link, told, name, declared)
            taken.add(tool.name)
        except Misconfigured as error:
            problems.append(f"the tool {told.name[:100]!r} of the MCP server {link.server.name!r} is left out: {error}")
    return list(tools.values()), problems


def _unmatched(server: Server, listed: Sequence[types.Tool]) -> list[str]:
    """What is said of patterns that fit no tool: a filter that is spelt wrongly hides or shows others than meant."""
    names = [told.name for told in listed]
    allowed, denied = "list of allowed tools", "list of denied tools"
    lists = {allowed: server.tools.allow, denied: server.tools.deny, "trust": server.trust}
    said: list[str] = []
    for kind, patterns in lists.items():
        patterns = patterns if isinstance(patterns, list) else []
        fits = [pattern for pattern in patterns if any(matches(name, [pattern]) for name in names)]
        said += unmatched(kind, patterns, names, fits)
    return said[:_MAX_UNMATCHED]
