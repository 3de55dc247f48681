"""Random rules of files, and calls that they may match."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from deputize.shared.request import ApprovalMode
from deputize.worker.policy.rule_file import FileRule, RuleFields
from deputize.worker.policy.shell.classify import Decision

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
