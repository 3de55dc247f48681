"""A worker whose runs may bring it to a standstill, or down."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from deputize.worker import __main__ as worker
from deputize.worker.tools.base import AnyTool, Effect, Kind, Params, Tool, ToolResult
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
        _hold(params.seconds)
        return ToolResult("held")


def _hold(seconds: int) -> None:
    ctypes.PyDLL(None).usleep(seconds * 1_000_000)


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


class Endless(Fall):
    """Stops each process that is given it."""

    name = "endless"

    def __reduce__(self) -> tuple[Any, ...]:
        return _hold, (1000,)


class Linger(Tool[Params]):
    """Starts a thread that its process waits for when it ends."""

    name = "linger"
    kind = Kind.READ
    effect = Effect.PURE
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return ToolResult("lingers")


FURTHER: Mapping[str, AnyTool] = {"--unfit": Unfit(), "--endless": Endless()}
"""The tool that an option adds."""


def main() -> int:
    further = [tool for option, tool in FURTHER.items() if option in sys.argv]
    arguments = [each for each in sys.argv[1:] if each not in FURTHER]
    return worker.main(arguments, tools=[*BUILTIN, Hold(), Fall(), Linger(), *further])
