"""Calls and files of rules for tests of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deputize.shared.request import ApprovalMode
from deputize.worker.policy import PolicyCall, PolicyContext, Rule, Verdict, decide
from deputize.worker.policy.known_tools import AbsentTool
from deputize.worker.policy.rule_file import load_rules
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool

TOOLS: dict[str, AnyTool] = {tool.name: tool for tool in BUILTIN}


def rules_of(folder: Path, text: str) -> Sequence[Rule]:
    path = folder / "rules.toml"
    path.write_text(text)
    return load_rules([path])


def call_of(name: str, **arguments: Any) -> PolicyCall:
    tool = TOOLS.get(name) or AbsentTool(name)
    return PolicyCall.of(tool, tool.parse(arguments), arguments)


def verdict_of(folder: Path, text: str, call: PolicyCall, mode: str = "ask", **about_the_run: Any) -> Verdict:
    """What the policy with a file of this text decides."""
    return decide(call, PolicyContext(ApprovalMode(mode), rules=rules_of(folder, text), **about_the_run))


def matches(folder: Path, matcher: str, call: PolicyCall, decision: str = "deny", **about_the_run: Any) -> bool:
    """Whether a rule with this matcher is the one that decides."""
    text = f'[[rule]]\nname = "tried"\ndecision = "{decision}"\nreason = "of the test"\n{matcher}\n'
    return verdict_of(folder, text, call, **about_the_run).rule == "tried"
