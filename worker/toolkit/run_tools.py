"""What one run works with: its sandbox and its tools, made for this run alone and gone with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from shared.catalog import MCP
from shared.delegation import ApprovalMode
from shared.runs.record import Claim
from worker.models.base import ToolSpec
from worker.sandbox.base import Sandbox
from worker.schemas.pool import ValidatorPool
from worker.toolkit import pinned_tools
from worker.toolkit.registry import Registry, made_ready
from worker.toolkit.sources import Source, ToolSourceContext
from worker.tools.base import AnyTool
from worker.tools.context import InitContext, Subagents, ToolContext
from worker.tools.get_skill import skills_of
from worker.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RunTools:
    """The kit by name, the same as the model is told of it, and the context that every call gets."""

    kit: dict[str, AnyTool]
    specs: tuple[ToolSpec, ...]
    context: ToolContext
    kept: Mapping[str, str]
    """Fields of the record that let a later attempt tell the model of the same tools; none where they are kept."""

    @property
    def polled(self) -> set[str]:
        return {name for name, tool in self.kit.items() if tool.polls}


class Offer(Protocol):
    """What a worker has for every run."""

    tools: Sequence[AnyTool]
    sources: Sequence[Source]
    default_kit: Sequence[str]
    validators: ValidatorPool

    def sandbox(self, workspace: Workspace, *, read_only: bool = False) -> AbstractContextManager[Sandbox]: ...


@asynccontextmanager
async def open_tools(
    claim: Claim,
    services: Offer,
    workspace: Workspace,
    children: Subagents,
    *,
    warn: Callable[[str], None],
    hide: Callable[[Sequence[str]], None],
) -> AsyncGenerator[RunTools]:
    """Opens sandbox and tools; when the block ends, nothing of them is alive.

    ``warn`` hears of tools that cannot be had, ``hide`` of secrets that tools are given. Raises ``Invalid`` for a
    request that names tools nobody offers.
    """
    request = claim.request
    async with AsyncExitStack() as opened:
        read_only = request.approval_mode is ApprovalMode.READ_ONLY
        sandbox = opened.enter_context(services.sandbox(workspace, read_only=read_only))
        opened.push_async_callback(sandbox.shells.end)
        told = None if claim.tools is None else pinned_tools.read(claim.tools)
        asked = request.tools if told is None else [each.name for each in told]
        place = ToolSourceContext(
            claim.id, asked, workspace.files, sandbox, warn, hide, services.validators, read_only=read_only
        )
        registry = Registry(services.tools)
        for source in services.sources:
            for tool in await opened.enter_async_context(source.open(place)):
                registry.register(tool)
        if told is not None:
            pinned_tools.restore(registry, told)
            place.miss(MCP)  # what was missing at the start is so for good, and was told then
        init = InitContext(claim.id, skills_of(services.tools), depth_left=children.depth_left)
        kit = await made_ready(registry.kit(request.tools, services.default_kit, place.excuses), init, warn)
        conversation = request.session_id, request.message_id
        context = ToolContext(
            claim.id, "", workspace.files, sandbox, *conversation, children, validators=services.validators
        )
        kept = {"tools": pinned_tools.written(kit)} if told is None else {}
        yield RunTools(kit, _told_of(kit, told or ()), context, kept)


def _told_of(kit: Mapping[str, AnyTool], told: Sequence[pinned_tools.PinnedTool]) -> tuple[ToolSpec, ...]:
    """What the model is told of the kit: of tools that come and go, what it was told before."""
    builtin = _specs(tuple(tool for tool in kit.values() if tool.source == "builtin"))
    before = pinned_tools.specs(told)
    further = [tool for tool in kit.values() if tool.source != "builtin"]
    return builtin + tuple(before.get(tool.name) or _spec(tool) for tool in further) if further else builtin


@lru_cache(maxsize=64)
def _specs(tools: tuple[AnyTool, ...]) -> tuple[ToolSpec, ...]:
    """Kept for all runs: a schema takes a millisecond to make, and models encode the same object only once."""
    return tuple(map(_spec, tools))


def _spec(tool: AnyTool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.schema)
