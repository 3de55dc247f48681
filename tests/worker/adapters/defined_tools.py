"""Tools as Tool.define makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from deputize.worker.adapters.base_classes import DefinedContext, Tool
from deputize.worker.tools import base
from deputize.worker.tools.base import Effect, InitContext, Kind


async def tell_place(args: Mapping[str, Any], ctx: DefinedContext) -> dict[str, Any]:
    """As that design writes ``execute``."""
    ctx.metadata({"title": "Looking", "files": 0})
    where = [ctx.session_id, ctx.message_id, ctx.tool_call_id != "", ctx.abort_signal.aborted]
    return {
        "title": f"Told of {args['what']}",
        "output": f"{where} {ctx.working_directory.rsplit('/', 1)[-1]}",
        "metadata": {"what": args["what"]},
    }


WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

place_tool = Tool.define(
    "tell_place",
    {
        "name": "Tell place",
        "description": "Tells where it runs.",
        "category": "custom",
        "parameters": WHAT,
        "execute": tell_place,
        "format_validation_error": lambda error: f"Say what, please. ({error})",
    },
)


class Librarian:
    """Counts how often it was asked what there is."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = 0

    async def __call__(self, ctx: InitContext) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked <= self.fails:
            raise ConnectionError("the library is closed")
        return {
            "description": f"Load a skill. Available: {', '.join(ctx.skills)}",
            "parameters": {"properties": {"skill": {"enum": list(ctx.skills)}}, "required": ["skill"]},
            "execute": self.load,
        }

    async def load(self, args: Mapping[str, Any], ctx: DefinedContext) -> dict[str, Any]:
        return {"title": "", "output": f"All about {args['skill']}."}


class ServersTool(base.Tool[base.Params]):
    """A tool as an MCP server's would be."""

    name = "mcp__git__log"
    kind = Kind.OTHER
    effect = Effect.EFFECTFUL
    origin = base.Origin("mcp", "git")
    params = base.Params

    async def run(self, ctx: base.ToolContext, params: base.Params) -> base.ToolResult:
        return base.ToolResult("one commit")
