"""The sandbox and the tools of one run, opened for this run alone and closed with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache

from ...shared.fleet import MCP, ToolTraits
from ...shared.request import ApprovalMode
from ...shared.runs.record import Claim
from ..models.base import ToolSpec
from ..sandbox.base import Sandbox
from ..sandbox.environment import owner
from ..sandbox.project_tools import ProjectTools
from ..tools.base import AnyTool, InitContext, ToolContext
from ..tools.skills import skills_of
from ..workspace.shown_files import ShownFiles
from ..workspace.workspace import Workspace
from . import pinned_tools
from .offer import RunOffer
from .registry import Registry, prepare_kit, tool_traits
from .sources import ToolSourceContext


@dataclass(frozen=True, slots=True)
class RunTools:
    """A run's tools by name, their definitions for the model, and the context of their calls."""

    kit: dict[str, AnyTool]
    specs: tuple[ToolSpec, ...]
    context: ToolContext
    kept: Mapping[str, str]
    """Fields of the record that pin the tools for later attempts; empty where they are pinned already."""

    @property
    def further(self) -> list[ToolTraits]:
        """The traits of those tools that are not built in."""
        return tool_traits(tool for tool in self.kit.values() if tool.origin.source != "builtin")


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
) -> AsyncGenerator[RunTools]:
    """Opens sandbox and tools; when the block ends, none of their processes is alive.

    ``project`` is what commands find. ``depth_left``: levels of child delegations allowed below the run. ``warn`` is
    called with a message for each tool that is not available, ``report`` with the limits for which background commands
    were killed, ``hide`` with the secrets that tools are passed. Raises ``Invalid`` if the request names unknown tools.
    """
    async with AsyncExitStack() as opened:
        read_only = claim.request.approval_mode is ApprovalMode.READ_ONLY
        opening = offer.sandbox(workspace, project, read_only=read_only, report=report)
        sandbox = await opened.enter_async_context(opening)
        opened.push_async_callback(sandbox.shells.end)
        pinned = None if claim.tools is None else pinned_tools.loads(claim.tools)
        patterns = claim.request.tools if pinned is None else [each.name for each in pinned]
        source_context = ToolSourceContext(
            claim.id, patterns, workspace.files, sandbox, warn, hide, read_only=read_only
        )
        registry = Registry(offer.tools)
        for source in offer.sources:
            for tool in await opened.enter_async_context(source.open(source_context)):
                registry.register(tool)
        if pinned is not None:
            pinned_tools.restore(registry, pinned)
            source_context.add_missing(MCP)  # what was missing at the start stays so; the first attempt has warned
        chosen = registry.kit(claim.request.tools, offer.default_kit, source_context.may_be_missing)
        kit = await prepare_kit(chosen, InitContext(claim.id, skills_of(offer.tools), depth_left=depth_left), warn)
        shown = [opened.enter_context(ShownFiles(root, owner())) for root in project.shown]
        context = _call_context(claim, workspace, sandbox, shown)
        kept = {"tools": pinned_tools.dumps(kit)} if pinned is None else {}
        yield RunTools(kit, _specs_of(kit, pinned or ()), context, kept)


def _call_context(claim: Claim, workspace: Workspace, sandbox: Sandbox, shown: Sequence[ShownFiles]) -> ToolContext:
    return ToolContext(
        delegation_id=claim.id,
        call_id="",
        files=workspace.files,
        sandbox=sandbox,
        session_id=claim.request.session_id,
        message_id=claim.request.message_id,
        shown=shown,
    )


def _specs_of(kit: Mapping[str, AnyTool], pinned: Sequence[pinned_tools.PinnedTool]) -> tuple[ToolSpec, ...]:
    """Returns the definitions for the model; those of tools that are not built in as the first attempt pinned them."""
    builtin = _specs(tuple(tool for tool in kit.values() if tool.origin.source == "builtin"))
    before = pinned_tools.specs(pinned)
    further = [tool for tool in kit.values() if tool.origin.source != "builtin"]
    return builtin + tuple(before.get(tool.name) or _spec(tool) for tool in further) if further else builtin


@lru_cache(maxsize=64)
def _specs(tools: tuple[AnyTool, ...]) -> tuple[ToolSpec, ...]:
    """Cached for all runs: a schema takes a millisecond to make, and models encode the same object only once."""
    return tuple(map(_spec, tools))


def _spec(tool: AnyTool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.schema)
