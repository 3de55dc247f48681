"""Calls and rules of files for tests of the policy, written and random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from deputize.shared.request import ApprovalMode
from deputize.worker.policy import PolicyCall, PolicyContext, Rule, Verdict, decide
from deputize.worker.policy.explanation import AbsentTool
from deputize.worker.policy.rule_file import FileRule, RuleFields, load_rules
from deputize.worker.policy.shell import Decision
from deputize.worker.tools.base import AnyTool
from deputize.worker.tools.builtin import BUILTIN

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


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "git status"}),
    ("bash", {"command": "git status && make"}),
    ("read_file", {"path": "src/a.py"}),
    ("write_file", {"path": "/etc/passwd", "content": "x"}),
    ("web_fetch", {"url": "https://docs.example.org/"}),
    ("mcp__git__push", {"force": True}),
]
MATCHERS: dict[str, st.SearchStrategy[Any]] = {
    "tool": st.sampled_from(["bash", "*_file", "mcp__*", "*"]),
    "kind": st.sampled_from(["execute", "read", "edit", "fetch", "other"]),
    "server": st.sampled_from(["git", "x"]),
    "annotations": st.builds(lambda value: {"readOnlyHint": value}, st.booleans()),
    "argument": st.sampled_from([{"command": "git.*"}, {"path": ".*"}]),
    "command_prefix": st.sampled_from(["git", "make"]),
    "path": st.sampled_from(["src/**", "/**", "**"]),
    "mode": st.sampled_from(list(ApprovalMode)),
    "depth": st.sampled_from([0, ">= 1"]),
    "label": st.sampled_from([{"team": "d*"}, {"team": "x"}]),
    "host": st.sampled_from(["*.example.org", "x"]),
    "taint": st.sampled_from(["web", "mcp:*", "*"]),
}
RULES = st.builds(
    dict,
    st.fixed_dictionaries({"decision": st.sampled_from(Decision), "priority": st.integers(-1, 1)}, optional=MATCHERS),
    reason=st.just("because"),
    name=st.sampled_from("abc"),
)


def file_rules(values: list[dict[str, Any]]) -> list[FileRule]:
    return [FileRule.of(RuleFields.model_validate(each), f"rules.toml:{at}") for at, each in enumerate(values)]
