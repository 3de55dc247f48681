"""An MCP server made with the SDK's own server side: what good servers answer, over every transport."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Audio, Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PNG = b"\x89PNG\r\n\x1a\n" + b"not really a picture"
READS = ToolAnnotations(read_only_hint=True)


class Weather(BaseModel):
    city: str
    degrees: float


def server(journal: Path) -> MCPServer:
    """The server, which writes what it sees into a file."""
    mcp = MCPServer("sdk")

    def note(what: str) -> None:
        with journal.open("a") as notes:
            notes.write(what + "\n")

    @mcp.tool(annotations=READS, title="Forecast")
    def weather(city: str) -> Weather:
        """The weather in a city."""
        return Weather(city=city, degrees=21.5)

    @mcp.tool()
    def picture() -> Image:
        return Image(data=PNG, format="png")

    @mcp.tool()
    def sound() -> Audio:
        return Audio(data=b"RIFF", format="wav")

    @mcp.tool()
    def resources() -> CallToolResult:
        text = TextResourceContents(uri="memo://1", mime_type="text/plain", text="remember the milk")
        blob = BlobResourceContents(uri="memo://2", mime_type="application/pdf", blob="JVBERi0=")
        broken = BlobResourceContents(uri="memo://3", blob="=")
        link = ResourceLink(name="notes", uri="memo://4", description="All notes", mime_type="text/plain")
        embedded = [EmbeddedResource(resource=each) for each in (text, blob, broken)]
        return CallToolResult(content=[TextContent(text="Four:"), *embedded, link])

    @mcp.tool()
    def fail(loudly: bool = False) -> str:
        raise ToolError("line\n" * 2000 if loudly else "the printer is on fire")

    @mcp.tool()
    def say_nothing() -> CallToolResult:
        return CallToolResult(content=[], is_error=True)

    @mcp.tool()
    async def count(upto: int, ctx: Context) -> str:
        for number in range(upto):
            await ctx.report_progress(number + 1, upto, f"at {number + 1}")
        return f"counted to {upto}"

    @mcp.tool()
    async def wait() -> str:
        note("waiting")
        try:
            await asyncio.Event().wait()
        except BaseException:
            note("cancelled")
            raise
        return "never"

    return mcp


if __name__ == "__main__":
    server(Path(sys.argv[1])).run()
