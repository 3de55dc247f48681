"""The tool calls of a turn: judged by the policy, executed, and recorded in steps and ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from ..shared.errors import ErrorType, Fenced, ToolError
from ..shared.log import log
from .ledger import Ledger
from .limits import Meter
from .linux.machine import exhausted
from .models.base import Call
from .permission.approval import Approval, Asked, Prepared
from .policy.trust import ReadSources
from .steps import StepLog, in_doubt, not_executed
from .threads import EXIT_EXCEPTIONS
from .toolkit.registry import find_tool, own_call
from .toolkit.run_tools import RunTools
from .tools.base import Effect, ToolContext, ToolResult
from .tools.bounded_result import bounded

Judged = Prepared | Asked | ToolResult
"""A call that may be executed, one that a person is asked about, or the result of one that is not executed."""


@dataclass(slots=True)
class ToolCalls:
    """The tool calls of one run."""

    run_tools: RunTools
    approval: Approval
    meter: Meter
    steps: StepLog
    reading: ReadSources
    ledger: Ledger
    after_effects: Callable[[], Awaitable[None]]
    """Called after every call that may have changed the workspace."""
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """Results of the current turn by call key: a cancellation in its middle loses none."""
    _calls: Sequence[Call] = ()
    """The calls of the current turn."""
    interrupted: bool = False
    """Whether a call was stopped in its middle, so that its changes of files are not noted."""

    async def execute(self, calls: Sequence[Call]) -> list[ToolResult]:
        """Judges all calls, then executes them, read-only ones concurrently; returns their results in call order."""
        calls = [own_call(self.run_tools.kit, call) for call in calls]
        self.results, self._calls = {}, calls
        await self.ledger.record_retry(calls)
        judged = await self._ask([(call, await self._judge(call)) for call in calls])
        for concurrent, group in groupby(judged, lambda pair: _runs_concurrently(pair[1])):
            if concurrent:
                async with asyncio.TaskGroup() as tasks:
                    for call, verdict in group:
                        tasks.create_task(self._process(call, verdict))
            else:
                for call, verdict in group:
                    await self._process(call, verdict)
        return [self.results[call.key] for call in calls]

    def known(self, call: str) -> ToolResult | None:
        """Returns the result of a call of the current turn, or what an earlier attempt left of it, or None."""
        return self.results.get(call) or self.ledger.left(call)

    async def _ask(self, judged: Sequence[tuple[Call, Judged]]) -> Sequence[tuple[Call, Judged]]:
        """Publishes the permission requests of the turn, all at once."""
        asked = [verdict for _, verdict in judged if isinstance(verdict, Asked)]
        if not asked:
            return judged
        published = iter(await self.approval.ask(asked, self.run_tools.context))
        return [(call, next(published) if isinstance(verdict, Asked) else verdict) for call, verdict in judged]

    async def _judge(self, call: Call) -> Judged:
        """Returns the call ready for execution, or asked about, or the result that states why it is not executed."""
        if not self.meter.take_call():
            return not_executed(f"limit reached (maxToolCalls {self.meter.limits.max_tool_calls})")
        try:
            self.ledger.check(call.key)
            if call.problem:
                raise ToolError(ErrorType.INVALID_TOOL_PARAMS, call.problem)
            tool = find_tool(self.run_tools.kit, call.name)
            params = tool.parse(call.arguments)
        except ToolError as error:
            return ToolResult.failed(error)
        if earlier := self.ledger.finished(call.key):
            return earlier
        return await self.approval.judge(call, tool, params)

    async def _process(self, call: Call, verdict: Judged) -> None:
        """Executes one judged call and records its result; its step ends in every case."""
        if isinstance(verdict, ToolResult):
            self.results[call.key] = verdict
            self.steps.refuse(call, verdict)
            return
        step = verdict.step or self.steps.start(call, verdict.tool, verdict.tool.title(verdict.params))
        result = not_executed("the run was stopped while it waited for permission")
        prepared: Prepared | None = None
        try:
            context = replace(self.run_tools.context, call_id=call.key, on_metadata=self.steps.updates(step))
            settled = await self._settled(verdict, context)
            if isinstance(settled, ToolResult):
                result = settled
            else:
                prepared, result = settled, in_doubt("the run was stopped while this call was under way")
                result = await self._run(prepared, context)
        finally:
            self.results[call.key] = result
            if prepared:
                self.reading.note(prepared.tool, prepared.params, result)
            self.steps.end(step, result, executed=prepared is not None)
            self.ledger.finish(call.key, result)

    async def _settled(self, verdict: Prepared | Asked, context: ToolContext) -> Prepared | ToolResult:
        """Returns the call when it may be executed, or the result of one that may not, after the person's answer."""
        if isinstance(verdict, Prepared):
            return verdict
        return await self.approval.settle(verdict, context, partial(self.ledger.waiting, self._not_begun))

    @property
    def _not_begun(self) -> list[str]:
        return [call.key for call in self._calls if call.key not in self.results]

    async def _run(self, prepared: Prepared, context: ToolContext) -> ToolResult:
        """Runs the tool, unless an earlier attempt did. An unexpected exception is logged and fails the call."""
        tool, params = prepared.tool, prepared.params
        try:
            result = await self.ledger.resolve(context.call_id, tool, params, context)
            if result is None:
                await self.ledger.start(context.call_id, tool, params, context)
                result = await tool.run(replace(context, reads=prepared.reads), params)
        except ToolError as error:
            result = ToolResult.failed(error)
        except (Fenced, *EXIT_EXCEPTIONS):
            self.interrupted = True
            raise
        except BaseException as error:  # noqa: BLE001 - a defect of one tool fails its call, not the run
            log.exception("tool %s failed", tool.name)
            why = exhausted(error) or f"{tool.name} failed inside: {error}"
            result = ToolResult.failed(ToolError(ErrorType.EXECUTION_FAILED, why))
        if tool.effect is not Effect.PURE:
            await self.after_effects()
        return prepared.noted(await bounded(result, tool, context, clean=self.reading.harmless))


def _runs_concurrently(verdict: Judged) -> bool:
    return isinstance(verdict, Prepared) and verdict.tool.side_by_side
