"""What the policy decides about a call that is not made, and why: for ``deputize policy``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...shared.errors import Invalid, ToolError
from ...shared.facts import Trust
from ...shared.request import ApprovalMode
from ...shared.settings import Settings
from . import PolicyCall, PolicyContext, Rule, decide, matched
from .known_tools import MCP_NAME, AbsentTool, KnownTools
from .rule_file import by_priority, read_file
from .shell import Classified


@dataclass(frozen=True, slots=True)
class Situation:
    """The run that a call would belong to; its sandbox works."""

    mode: ApprovalMode = ApprovalMode.SANDBOXED
    depth: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    workspace: Path | None = None
    tainted_by: Sequence[str] = ()

    def context(self, settings: Settings, rules: Sequence[Rule]) -> PolicyContext:
        """Returns the policy's input about such a run, on a worker with these settings and rules of files."""
        return PolicyContext(
            self.mode,
            allowed_hosts=settings.tools.allowed_hosts,
            rules=rules,
            depth=self.depth,
            labels=self.labels,
            workspace=self.workspace,
            trust=Trust(tainted_by=list(self.tainted_by)),
        )


class Explainer:
    """Explains calls under these settings and rules."""

    def __init__(self, settings: Settings, rules: Sequence[Rule], tools: KnownTools | None = None) -> None:
        self.settings = settings
        self.rules = rules
        self.tools = tools or KnownTools(settings)

    def explain(self, text: str, situation: Situation) -> dict[str, Any]:
        """Returns the decision about a call such as ``bash {"command": "ls"}`` as JSON. Raises Invalid."""
        call, where = self._call(text), situation.context(self.settings, self.rules)
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
            "commandLine": _explained(call.classified) if call.classified else None,
        }

    def _call(self, text: str) -> PolicyCall:
        name, _, given = text.strip().partition(" ")
        try:
            arguments = json.loads(given or "{}")
            if not isinstance(arguments, dict):
                raise Invalid(f'the arguments of {name} are not a JSON object; write {name} {{"name": "value"}}')
            if MCP_NAME.fullmatch(name):
                return self.tools.absent(name, arguments)
            return self.tools.call(name, arguments)
        except json.JSONDecodeError as error:
            raise Invalid(f"the arguments of {name} are not valid JSON: {error}") from None
        except ToolError as error:
            raise Invalid(error.message) from None


def _explained(line: Classified) -> dict[str, Any]:
    """Returns the class of a command line, with that of each of its commands, as JSON."""
    commands = [
        {"words": each.words, "class": each.decision, "reason": each.reason, "pattern": each.pattern}
        for each in line.commands
    ]
    return {"class": line.decision, "reason": line.reason, "commands": commands, "effects": line.effects}


def try_examples(settings: Settings, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns an entry for each example of the files, judged by the rules of its own file and the built-in ones.

    Raises Misconfigured for a wrong file, and Invalid for an example whose call is none.
    """
    tried: list[dict[str, Any]] = []
    tools = KnownTools(settings)
    for path in paths:
        file = read_file(path)
        rules = by_priority(file.rules)
        for example, place in file.examples:
            situation = Situation(example.mode, example.depth, example.label, tainted_by=example.taint)
            try:
                found = Explainer(settings, rules, tools).explain(example.call, situation)
            except Invalid as error:
                raise Invalid(f"{place}: {error}") from None
            tried.append({"example": place, "call": example.call, "expect": example.expect, **found})
    return tried
