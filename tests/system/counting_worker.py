"""A worker whose runs can also ask an HTTP endpoint to count, and bring it to a standstill."""

from __future__ import annotations

from urllib.request import urlopen

from deputize.worker import __main__ as worker
from deputize.worker.threads import run_in_thread
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.context import ToolContext
from tests.system.standing_worker import Hold


class CountParams(Params):
    url: str


class Count(Tool[CountParams]):
    """Adds one to a counter outside. It cannot be asked whether it has happened."""

    name = "count"
    kind = Kind.EDIT
    effect = Effect.EFFECTFUL
    params = CountParams

    async def run(self, ctx: ToolContext, params: CountParams) -> ToolResult:
        await run_in_thread(lambda: urlopen(params.url, timeout=60).read())
        return ToolResult(content="counted")


def main() -> int:
    return worker.main(tools=(*BUILTIN, Count(), Hold()))
