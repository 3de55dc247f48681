"""What the policy decides about a call that is not made, and why: for ``deputize policy``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deputize.shared.errors import ErrorType, Invalid, ToolError
from deputize.shared.facts import Trust
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy import PolicyCall, PolicyContext, Rule, decide, matched
from deputize.worker.policy.rule_file import by_priority, read_file
from deputize.worker.toolkit.registry import available_tools, find_tool
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool, Effect, Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.traits import Origin

_MCP = re.compile("mcp__.+__.+")


class AbsentTool(Tool[Any]):
    """Stands for a tool of an MCP server, which is not asked: it may do anything, with any arguments."""

    kind = Kind.OTHER
    effect = Effect.EFFECTFUL
    params = Params

    def __init__(self, name: str) -> None:
        self.name = name
        _, server, *remote = name.split("__")
        self.origin = Origin("mcp", server, "__".join(remote))

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return arguments

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        raise ToolError(ErrorType.UNKNOWN_TOOL, f"{self.name} is only explained here, and cannot be called.")


@dataclass(frozen=True, slots=True)
class Situation:
    """The run that a call would belong to; its sandbox works."""

    mode: ApprovalMode = ApprovalMode.SANDBOXED
    depth: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    workspace: Path | None = None
    tainted_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains calls under these settings and rules."""

    settings: Settings
    rules: Sequence[Rule]
    tools: Sequence[AnyTool] = BUILTIN

    def explain(self, text: str, situation: Situation) -> dict[str, Any]:
        """Returns the decision about a call such as ``bash {"command": "ls"}`` as JSON. Raises Invalid."""
        call, where = self._call(text), self._context(situation)
        before, verdict = matched(call, where), decide(call, where)
        notes = [f"approvalMode {situation.mode} turns {before.decision} into {verdict.decision}"]
        if isinstance(call.tool, AbsentTool):
            server = call.tool.origin.server
            notes.append(f"the MCP server {server} is not asked: its tool counts as one that changes something")
        return {
            "decision": verdict.decision,
            "rule": verdict.rule,
            "place": verdict.place or None,
            "reason": verdict.reason,
            "ruleDecision": before.decision,
            "notes": notes if verdict.decision != before.decision else notes[1:],
        }

    def _context(self, situation: Situation) -> PolicyContext:
        return PolicyContext(
            situation.mode,
            allowed_hosts=self.settings.tools.allowed_hosts,
            rules=self.rules,
            depth=situation.depth,
            labels=situation.labels,
            workspace=situation.workspace,
            trust=Trust(tainted_by=list(situation.tainted_by)),
        )

    def _call(self, text: str) -> PolicyCall:
        name, _, given = text.strip().partition(" ")
        try:
            arguments = json.loads(given or "{}")
            tool = AbsentTool(name) if _MCP.fullmatch(name) else find_tool(self._kit(), name)
            if not isinstance(arguments, dict):
                raise Invalid(f'the arguments of {name} are not a JSON object; write {name} {{"name": "value"}}')
            return PolicyCall.of(tool, tool.parse(arguments), arguments)
        except json.JSONDecodeError as error:
            raise Invalid(f"the arguments of {name} are not valid JSON: {error}") from None
        except ToolError as error:
            raise Invalid(error.message) from None

    def _kit(self) -> dict[str, AnyTool]:
        """Returns all tools, those that are available as configured."""
        return {tool.name: tool for tool in (*self.tools, *available_tools(self.settings, self.tools))}


def try_examples(settings: Settings, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns an entry for each example of the files, judged by the rules of its own file and the built-in ones.

    Raises Misconfigured for a wrong file, and Invalid for an example whose call is none.
    """
    tried: list[dict[str, Any]] = []
    for path in paths:
        file = read_file(path)
        rules = by_priority(file.rules)
        for example, place in file.examples:
            situation = Situation(example.mode, example.depth, example.label, tainted_by=example.taint)
            try:
                found = Explainer(settings, rules).explain(example.call, situation)
            except Invalid as error:
                raise Invalid(f"{place}: {error}") from None
            tried.append({"example": place, "call": example.call, "expect": example.expect, **found})
    return tried
