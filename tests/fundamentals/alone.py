"""What a loop needs of the rooms around it in its plainest form: all is permitted, and nothing is waited for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from deputize.shared.message import Message
from deputize.shared.request import DelegationRequest
from deputize.worker.core.conversation import Conversation
from deputize.worker.core.emit import Emitter
from deputize.worker.core.ledger import Ledger
from deputize.worker.core.loop import Loop
from deputize.worker.core.model_calls import ModelCalls
from deputize.worker.core.prompt import first_message
from deputize.worker.core.run_context import RunContext
from deputize.worker.core.run_contracts import Accepted, Judged, Permitted
from deputize.worker.core.tool_calls import ToolCalls
from deputize.worker.models.base import Model, Retrying, ToolSpec
from deputize.worker.tools.base import AnyTool, ToolContext, ToolResult
from tests.runs.memory_record import MemoryRecord

UNUSED: Any = None
"""Files and sandbox, for tools that use neither."""


def loop_of(task: str, model: Model, tools: Sequence[AnyTool], record: MemoryRecord) -> Loop:
    """The loop of a run that goes on where the record ends."""
    claim = record.claim(DelegationRequest(task=task))
    emit = Emitter(record, claim, [], on_fenced=lambda: None)
    run = RunContext.of(claim, emit)
    conversation = Conversation(claim.history, emit.store_message, task=first_message(claim.request))
    model_calls = ModelCalls(
        run=run,
        model=model,
        system="You work alone.",
        tools=tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools),
        tool_names=[tool.name for tool in tools],
        conversation=conversation,
        wait=NoWait(),
        shared=NoPrefix(),
        count=lambda usage: None,
        spending=NoCaps(),
    )
    context, ledger = ToolContext(claim.id, "", files=UNUSED, sandbox=UNUSED), Ledger(emit, claim.ledger)
    kit = {tool.name: tool for tool in tools}
    tool_calls = ToolCalls(run, kit, context, Permission(), ledger)
    return Loop(run, NoMessages(), conversation, model_calls, tool_calls, repetition=None)


class Permission:
    """Permits every call."""

    async def judge(self, calls: Sequence[Accepted], context: ToolContext) -> Mapping[str, Judged]:
        return {each.call.key: Permitted(each.tool, each.params) for each in calls}

    async def answered(self, asked: object, context: object, waiting: object) -> ToolResult:
        raise AssertionError("no call is asked about")

    async def close(self) -> None: ...


class NoMessages:
    """The inbox of a run without a caller."""

    unread: Sequence[Message] = ()

    def notify(self) -> None: ...

    def note(self, stored: int) -> None: ...

    def close(self) -> None: ...

    async def settled(self) -> None: ...

    def read(self, ask: object, turn: int) -> None: ...

    def repeated(self) -> str:
        return ""

    def ends_work(self, waits: object, check: object) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class NoWait:
    """Sends each request at once, and a failed one again after its delay."""

    error = ""

    def call(self, endpoint: str | None, keep: object) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def retry(self, turn: int, failed: Retrying, *, begun: bool) -> None:
        await failed.wait()

    async def may_pass(self, error: Exception) -> None:
        raise error

    def works(self) -> None: ...


class NoPrefix:
    """Waits for no other run."""

    def request(
        self, endpoint: str | None, find: object, price: object, *, hour: bool
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def sends(self) -> None: ...

    def works(self, usage: object) -> None: ...

    def failed(self) -> None: ...


class NoCaps:
    """Spends without a limit."""

    is_capped = under_way = False

    @asynccontextmanager
    async def reserved(self, prompt_tokens: int, wanted: int) -> AsyncGenerator[int]:
        yield wanted

    async def room(self) -> None:
        raise AssertionError("there is no cap to wait at")
