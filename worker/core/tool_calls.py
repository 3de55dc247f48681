"""The tool calls of a turn: judged by the policy, executed, and recorded in steps and ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from ...shared.delegation import Step
from ...shared.errors import ErrorType, ToolError
from ..models.base import Call
from ..tools.base import AnyTool, ToolContext, ToolResult
from ..tools.context import SUBMIT
from ..tools.naming import find_tool, own_call
from .execution import caught, timed
from .hooks import Around, PermittedCall
from .ledger import Ledger
from .run_context import RunContext, in_doubt, not_executed
from .run_contracts import Accepted, Approval, Asked, Judged, Permitted


@dataclass(slots=True)
class ToolCalls:
    """The tool calls of one run."""

    run: RunContext
    kit: Mapping[str, AnyTool]
    context: ToolContext
    approval: Approval
    ledger: Ledger
    around: Sequence[Around] = ()
    """Called around the execution of each call; the first one is the outermost."""
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """Results of the current turn by call key: a cancellation in its middle loses none."""
    _calls: Sequence[Call] = ()  # of the current turn

    async def execute(self, calls: Sequence[Call]) -> list[ToolResult]:
        """Judges all calls, then executes them, read-only ones concurrently; returns their results in call order."""
        calls = [own_call(self.kit, call) for call in calls]
        self.results, self._calls = {}, calls
        await self.ledger.record_retry(calls)
        checked = [(call, await self._check(call)) for call in calls]
        judged: dict[str, Judged] = {call.key: each for call, each in checked if isinstance(each, ToolResult)}
        judged |= await self.approval.judge([each for _, each in checked if isinstance(each, Accepted)], self.context)
        permitted = {key: each.tool for key, each in judged.items() if isinstance(each, Permitted)}
        side_by_side = {key for key, tool in permitted.items() if tool.side_by_side}
        for concurrent, group in groupby(calls, lambda call: call.key in side_by_side):
            if concurrent:
                async with asyncio.TaskGroup() as tasks:
                    for call in group:
                        tasks.create_task(self._process(call, judged[call.key]))
            else:
                for call in group:
                    await self._process(call, judged[call.key])
        await self.approval.close()  # of calls that did not wait, because the result was handed in before
        return [self.results[call.key] for call in calls]

    def known(self, call: str) -> ToolResult | None:
        """Returns the result of a call of the current turn, or what an earlier attempt left of it, or None."""
        return self.results.get(call) or self.ledger.left(call)

    async def _check(self, call: Call) -> Accepted | ToolResult:
        """Returns the call as its tool accepts it, or the result that states why the call is not executed."""
        if ended := self.run.meter.wraps_up:
            return self.ledger.left(call.key) or not_executed(str(ended))
        if not self.run.meter.take_call() and call.name != SUBMIT:
            return not_executed(f"limit reached (maxToolCalls {self.run.meter.limits.max_tool_calls})")
        try:
            self.ledger.check(call.key)
            if call.problem:
                raise ToolError(ErrorType.INVALID_TOOL_PARAMS, call.problem)
            tool = find_tool(self.kit, call.name)
            params = tool.parse(call.arguments)
        except ToolError as error:
            return ToolResult.failed(error)
        return self.ledger.finished(call.key) or Accepted(call, tool, params)

    async def _process(self, call: Call, judged: Judged) -> None:
        """Executes one judged call, where it may be; records its result. Its step ends in every case."""
        if self.run.output is not None and not self.ledger.finished(call.key):
            judged = not_executed("the result was handed in before")
        elif (ended := self.run.meter.wraps_up or self.run.emit.lacks_room()) and not isinstance(judged, ToolResult):
            judged = self.ledger.left(call.key) or not_executed(str(ended))
        if isinstance(judged, ToolResult):
            self.results[call.key] = judged
            self.run.steps.refuse(call, judged)
        elif isinstance(judged, Asked):
            await self._wait(judged)
        else:
            await self._execute(judged, self.run.steps.start(call, judged.tool, judged.title))

    async def _wait(self, asked: Asked) -> None:
        """Executes a call if a person permits it."""
        answered: Permitted | ToolResult = not_executed("the run was stopped while it waited for permission")
        waiting = partial(self.ledger.waiting, [each.key for each in self._calls if each.key not in self.results])
        try:
            with self.run.waits.noted(f"permission for {asked.step.title}"):
                answered = await self.approval.answered(asked, self._context(asked.step), waiting)
        finally:
            if isinstance(answered, ToolResult):
                self._record(asked.step, answered, executed=False)
        if isinstance(answered, Permitted):
            await self._execute(answered, asked.step)

    async def _execute(self, permitted: Permitted, step: Step) -> None:
        result = in_doubt("the run was stopped while this call was under way")
        try:
            with self.run.waits.noted(f"the call of {permitted.tool.name} ({step.title})"):
                result = await self._run(permitted, self._context(step))
        finally:
            self._record(step, result, executed=True)

    def _record(self, step: Step, result: ToolResult, *, executed: bool) -> None:
        self.results[step.id] = result
        self.run.note_output(result)
        self.run.steps.end(step, result, executed=executed)
        self.ledger.finish(step.id, result)

    def _context(self, step: Step) -> ToolContext:
        return replace(self.context, call_id=step.id, on_metadata=partial(self.run.steps.update, step))

    async def _run(self, permitted: Permitted, context: ToolContext) -> ToolResult:
        call = PermittedCall(permitted.tool, permitted.params, context)
        go_on = partial(self._caught, permitted, context)
        for around in reversed(self.around):
            go_on = partial(around, call, go_on)
        result = await go_on()
        return replace(result, content=f"{permitted.note}\n{result.content}".rstrip()) if permitted.note else result

    async def _caught(self, permitted: Permitted, context: ToolContext) -> ToolResult:
        return await caught(permitted.tool, self._result(permitted, context))

    async def _result(self, permitted: Permitted, context: ToolContext) -> ToolResult:
        """Runs the tool, unless an earlier attempt did."""
        tool, params = permitted.tool, permitted.params
        if result := await self.ledger.resolve(context.call_id, tool, params, context):
            return result
        await self.ledger.start(context.call_id, tool, params, context)
        return await timed(tool, replace(context, reads=permitted.reads), params, self.run.emit.count)
