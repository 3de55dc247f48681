"""A worker whose runs may bring it to a standstill, or down."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

from deputize.worker import __main__ as worker
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.context import ToolContext


class Held(Params):
    seconds: int


class Hold(Tool[Held]):
    """Holds the interpreter, so that no thread of this process goes on."""

    name = "hold"
    kind = Kind.READ
    effect = Effect.PURE
    params = Held

    async def run(self, ctx: ToolContext, params: Held) -> ToolResult:
        ctypes.PyDLL(None).usleep(params.seconds * 1_000_000)
        return ToolResult("held")


class Fall(Tool[Params]):
    """Brings the process down."""

    name = "fall"
    kind = Kind.READ
    effect = Effect.PURE
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        os.kill(os.getpid(), signal.SIGKILL)
        return ToolResult("never")


class Unfit(Fall):
    """Ends each process that is given it."""

    name = "unfit"

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def main() -> int:
    further = [Unfit()] if "--unfit" in sys.argv else []
    return worker.main([each for each in sys.argv[1:] if each != "--unfit"], tools=[*BUILTIN, Hold(), Fall(), *further])
