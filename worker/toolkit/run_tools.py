"""The sandbox and the tools of one run, opened for this run alone and closed with it.

Every attempt declares the same tools to the model: providers sign a model's thinking together with the exact list of
tools, and reject a conversation whose tools change. So MCP and discovered tools are pinned in the run's record; a later
attempt declares the same ones in the same order, and one that is no longer available fails its calls.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Self, cast

from ...shared.errors import ErrorType, ToolError
from ...shared.fleet import MCP
from ...shared.request import ApprovalMode
from ...shared.runs.record import TOOLS, Claim
from ..models.base import ToolSpec
from ..sandbox.bubblewrap import Sandbox
from ..sandbox.environment import owner
from ..sandbox.project_tools import ProjectTools
from ..tools.base import AnyTool, Effect, InitContext, Kind, Origin, Params, Source, Tool, ToolContext, ToolResult
from ..tools.skills import skills_of
from ..tools.submit_result import tools_for_output
from ..tools.traits import further_tools
from ..workspace.files import ShownFiles
from ..workspace.workspace import Workspace
from .offer import RunOffer
from .registry import Registry, prepare_kit
from .sources import ToolSourceContext


@dataclass(frozen=True, slots=True)
class RunTools:
    """A run's tools by name, their definitions for the model, and the context of their calls."""

    kit: dict[str, AnyTool]
    specs: tuple[ToolSpec, ...]
    context: ToolContext
    sandbox: Sandbox
    """The sandbox of its context, with what the run itself needs of it."""
    kept: Mapping[str, str]
    """Fields of the record that pin the tools for later attempts; empty where they are pinned already."""


@asynccontextmanager
async def open_tools(
    claim: Claim,
    offer: RunOffer,
    workspace: Workspace,
    project: ProjectTools,
    *,
    depth_left: int,
    warn: Callable[[str], None],
    report: Callable[[str], None],
    hide: Callable[[Sequence[str]], None],
    on_refused: Callable[[str], None],
    on_used: Callable[[str], None],
) -> AsyncGenerator[RunTools]:
    """Opens sandbox and tools; when the block ends, none of their processes is alive.

    ``depth_left``: levels of child delegations allowed below the run. ``warn`` gets a message for each tool that is not
    available, ``report`` the limits for which commands were killed, ``hide`` the secrets of tools, ``on_refused`` and
    ``on_used`` each refused host and each use of a credential. Raises ``Invalid`` for unknown tools.
    """
    async with AsyncExitStack() as opened:
        read_only = claim.request.approval_mode is ApprovalMode.READ_ONLY
        heard = {"report": report, "on_refused": on_refused, "on_used": on_used}
        opening = offer.sandbox(workspace, project, read_only=read_only, **heard)
        opened.push_async_callback((sandbox := await opened.enter_async_context(opening)).shells.end)
        pinned = [PinnedTool(**fields) for fields in json.loads(claim.kept[TOOLS])] if TOOLS in claim.kept else None
        patterns = claim.request.tools if pinned is None else [each.name for each in pinned]
        place = ToolSourceContext(claim.id, patterns, workspace.files, sandbox, warn, hide, read_only=read_only)
        registry = await _registry(offer, place, opened)
        if pinned is not None:
            _restore(registry, pinned)
            place.add_missing(MCP)  # what was missing at the start stays so; the first attempt has warned
        chosen = registry.kit(claim.request.tools, offer.default_kit, place.may_be_missing)
        kit = await prepare_kit(chosen, InitContext(claim.id, skills_of(offer.tools), depth_left=depth_left), warn)
        kit |= await tools_for_output(claim.request.output_schema)
        shown = [opened.enter_context(ShownFiles(root, owner())) for root in project.shown]
        caller = claim.request.session_id, claim.request.message_id
        context = ToolContext(claim.id, "", workspace.files, sandbox, *caller, shown=shown)
        further = [PinnedTool.from_tool(tool) for tool in further_tools(kit)]
        kept = {TOOLS: json.dumps([asdict(each) for each in further])} if pinned is None else {}
        yield RunTools(kit, _specs_of(kit, pinned or further), context, sandbox, kept)


async def _registry(offer: RunOffer, place: ToolSourceContext, opened: AsyncExitStack) -> Registry:
    """Returns the tools of the offer, and those of its sources, which stay open with ``opened``."""
    registry = Registry(offer.tools)
    for source in offer.sources:
        for tool in await opened.enter_async_context(source.open(place)):
            registry.register(tool)
    return registry


def _specs_of(kit: Mapping[str, AnyTool], pinned: Sequence[PinnedTool]) -> tuple[ToolSpec, ...]:
    """Returns the definitions for the model; those of tools that are not built in as the first attempt pinned them."""
    builtin = _specs(tuple(tool for tool in kit.values() if tool.origin.source == "builtin"))
    specs = {each.name: ToolSpec(each.name, each.description, each.schema) for each in pinned}
    return builtin + tuple(specs[tool.name] for tool in further_tools(kit))


@lru_cache(maxsize=64)
def _specs(tools: tuple[AnyTool, ...]) -> tuple[ToolSpec, ...]:
    """Cached for all runs: a schema takes a millisecond to make, and models encode the same object only once."""
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """One tool as the model knows it, with its identity: source, server, and its name on the server."""

    name: str
    description: str
    schema: dict[str, Any]
    effect: str
    source: str
    server: str | None
    remote: str | None

    @classmethod
    def from_tool(cls, tool: AnyTool) -> Self:
        return cls(tool.name, tool.description, tool.schema, tool.effect.value, **asdict(tool.origin))

    @property
    def origin(self) -> Origin:
        return Origin(cast(Source, self.source), self.server, self.remote)


class UnavailableTool(Tool[Any]):
    """Stands for a pinned tool that this worker does not have; every call fails, whatever its arguments are."""

    params = Params

    def __init__(self, pinned: PinnedTool) -> None:
        # The kind is READ, so that no rule asks for approval of a call that only fails. The effect is the real tool's,
        # because it decides about calls that were running when an earlier attempt ended.
        self.name, self.kind, self.effect = pinned.name, Kind.READ, Effect(pinned.effect)
        self.origin = pinned.origin
        self._pinned = pinned

    @property
    def description(self) -> str:
        return self._pinned.description

    @property
    def schema(self) -> dict[str, Any]:
        return self._pinned.schema

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return arguments

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        source = f"the MCP server {self.origin.server!r}" if self.origin.server else "its source"
        raise ToolError(
            ErrorType.EXECUTION_FAILED,
            f"{self.name} is no longer available: {source} is not reachable on this worker. Do without it, and say so.",
        )


def _restore(registry: Registry, pinned: Sequence[PinnedTool]) -> None:
    """Replaces the registry's MCP and discovered tools by the pinned ones, as UnavailableTool where one is missing."""
    available = {tool.name: tool for tool in registry if tool.origin.source != "builtin"}
    for name in available:
        registry.unregister(name)
    for each in pinned:
        tool = available.get(each.name)
        registry.register(tool if tool and tool.origin == each.origin else UnavailableTool(each))
