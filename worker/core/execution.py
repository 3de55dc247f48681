"""The execution of one call by its tool: measured, and with a result in every case."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...shared.delegation import StepStatus
from ...shared.errors import ErrorType, Fenced, ToolError
from ...shared.log import log
from ...shared.metrics import SANDBOX_FAILURES, TOOL
from ..linux.system import exhausted
from ..threads import EXIT_EXCEPTIONS
from ..tools.base import AnyTool, ToolContext, ToolResult


async def caught(tool: AnyTool, call: Awaitable[ToolResult]) -> ToolResult:
    """Awaits a call of the tool. An exception fails the call, and an unexpected one is also logged."""
    try:
        return await call
    except ToolError as error:
        return ToolResult.failed(error)
    except (Fenced, *EXIT_EXCEPTIONS):
        raise
    except BaseException as error:  # noqa: BLE001 - a defect of one tool fails its call, not the run
        log.exception("tool %s failed", tool.name)
        why = exhausted(error) or f"{tool.name} failed inside: {error}"
        return ToolResult.failed(ToolError(ErrorType.EXECUTION_FAILED, why))


async def timed(
    tool: AnyTool, context: ToolContext, params: Any, count_in: Callable[[Mapping[str, int]], None]
) -> ToolResult:
    """Runs the tool; the duration is counted with the end of its step."""
    begun, succeeded = time.monotonic(), False
    try:
        result = await tool.run(context, params)
        succeeded = result.success
        return result
    except ToolError as error:
        if error.type is ErrorType.SANDBOX_UNAVAILABLE:
            count_in({SANDBOX_FAILURES.field(): 1})
        raise
    finally:
        # Names of tools that are not built in are the choice of a server or a command.
        name = tool.name if tool.origin.source == "builtin" else str(tool.origin)
        status = (StepStatus.COMPLETED if succeeded else StepStatus.FAILED).value
        count_in(TOOL.observed(time.monotonic() - begun, name, status))
