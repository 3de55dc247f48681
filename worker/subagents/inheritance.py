"""What a child delegation has from its parent, so that it never has more rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ...shared.errors import ErrorType, ToolError
from ...shared.request import ApprovalMode, DelegationRequest, DirectoryWorkspace, EmptyWorkspace
from ...shared.request_options import Effort
from ...shared.request_rules import no_effort, unknown_agent, with_agent, with_effort
from ...shared.runs.record import Claim
from ...shared.settings import Settings
from ..tools.base import AnyTool

_STRICTEST_FIRST = (ApprovalMode.READ_ONLY, ApprovalMode.ASK, ApprovalMode.SANDBOXED, ApprovalMode.AUTO)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The rights of one run. ``kit``: the tools that children may have. ``folder``: the files they may get a copy of.

    Raises ``ToolError`` for what the model can correct.
    """

    claim: Claim
    settings: Settings
    kit: Mapping[str, AnyTool]
    folder: Path

    def request(self, request: DelegationRequest, key: str, *, copy: bool) -> DelegationRequest:
        mine, agents = self.claim.request, self.settings.agents
        if reason := unknown_agent(request.agent, agents):
            raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"agent: {reason}")
        named, request = bool(request.agent), with_agent(request, agents)
        modes = {mine.approval_mode}
        if "approval_mode" in request.model_fields_set:  # by the child's agent
            modes.add(request.approval_mode)
        here = DirectoryWorkspace(kind="directory", path=str(self.folder), ignored=True)
        inherited = {
            "session_id": mine.session_id,
            "message_id": mine.message_id,
            "approval_mode": min(modes, key=_STRICTEST_FIRST.index),
            "model": request.model or mine.model,
            "effort": self._effort(request),
            "tool_call_style": mine.tool_call_style,
            "project_instructions": mine.project_instructions and request.project_instructions,
            "economy": self.is_economy(request),
            "deadline": mine.deadline,
            "priority": mine.priority,
            "on_cap": mine.on_cap,
            "labels": mine.labels | request.labels,
            "parent_id": self.claim.id,
            "idempotency_key": key,
            "tools": self._tools_of_agent(request.tools) if named and request.tools else self._tools(request.tools),
            "workspace": here if copy else EmptyWorkspace(),
        }
        return request.model_copy(update=inherited)

    def is_economy(self, request: DelegationRequest) -> bool:
        """Returns whether the child's turns go through message batches: as its agent has it, else as this run's do."""
        asked = with_agent(request, self.settings.agents)
        return asked.economy if "economy" in asked.model_fields_set else self.claim.request.economy

    def _effort(self, request: DelegationRequest) -> Effort | None:
        """Returns the child's own effort, else its model's, else this run's where both have the same model."""
        mine = self.claim.request
        asked = with_effort(request.model_copy(update={"model": request.model or mine.model}), self.settings)
        if reason := no_effort(asked, self.settings):
            raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"effort: {reason}")
        return asked.effort or (mine.effort if asked.model == mine.model else None)

    def _tools_of_agent(self, patterns: Sequence[str]) -> list[str]:
        """Returns those tools of the agent that this run has itself; a child never has more."""
        names = [
            tool_name
            for tool_name, tool in self.kit.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns for name in (tool.name, *tool.aliases))
        ]
        if not names:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                "agent: this run has none of its tools, so it could do nothing; do the work yourself",
            )
        return self._tools(names)

    def _tools(self, requested: Sequence[str] | None) -> list[str]:
        """Returns the names of the child's tools; without an explicit request, a child cannot have children."""
        if requested is None:
            return [name for name, tool in self.kit.items() if not tool.availability.by_name_only]
        return list(dict.fromkeys(self._tool(name).name for name in requested))

    def _tool(self, name: str) -> AnyTool:
        tool = next((tool for tool in self.kit.values() if name in (tool.name, *tool.aliases)), None)
        if tool is None:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"tools: {name[:100]!r} is not a tool of this run, so a subagent cannot have it. "
                f"There are {', '.join(self.kit)}.",
            )
        depth = self.settings.tools.max_depth
        if tool.delegates and depth - self.claim.depth < 2:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"tools: a subagent of this run cannot have {tool.name}: delegations are nested "
                f"{depth} deep at most. Leave it out.",
            )
        return tool
