"""A rule that no call can match: nothing starts with one that denies or asks, and one that allows is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from deputize.worker.policy.explanation import Known, answer
from deputize.worker.policy.rule_file import load_rules
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.context import ToolContext, Touches
from tests.worker.policy.rule_files import TOOLS

SERVERS = {"mcpServers": {"github": {"command": "x"}, "my files": {"command": "x", "disabled": True}}}


def known(folder: Path, *, servers: Any = SERVERS, **settings: Any) -> Known:
    file = folder / "mcp.json"
    file.write_text(json.dumps(servers) if isinstance(servers, dict) else servers)
    environ = {"DEPUTIZE_TOOLS_MCP_CONFIG_PATH": str(file), **settings}
    return Known(Settings.load(environ=environ), BUILTIN)


def written(folder: Path, matchers: str, decision: str = "deny") -> Path:
    path = folder / "rules.toml"
    path.write_text(f'[[rule]]\nname = "tried"\ndecision = "{decision}"\nreason = "r"\n{matchers}\n')
    return path


WRONG = [
    ('tool = "bsh"', "there is no tool 'bsh'; did you mean bash?"),
    ('tool = ["bash", "wrte_file"]', "there is no tool 'wrte_file'; did you mean write_file?"),
    ('tool = "wbe_*"', "there is no tool 'wbe_*'"),
    ('tool = "mcp__githib__*"', "there is no tool 'mcp__githib__*'; did you mean mcp__github__*?"),
    ('tool = "mcp__githib__push"', "there is no tool 'mcp__githib__push'"),
    ('server = "githib"', "there is no MCP server 'githib'; did you mean github?"),
    ('server = ["github", "gitlab*"]', "there is no MCP server 'gitlab*'"),
    ('taint = "mcp:githib"', "there is no MCP server 'githib'"),
    ('tool = "read_file"\ncommand_prefix = "git"', "command_prefix: no call of read_file has a command line"),
    ('tool = "web_fetch"\npath = "a"', "path: no call of web_fetch names paths"),
    ('tool = "bash"\npath = "/etc/**"', "path: no call of bash names paths"),
    ('tool = "bash"\nhost = "*.example.org"', "host: no call of bash names hosts"),
    ('server = "github"\npath = "a"', "path: no call of a tool that it names names paths"),
    ('kind = "edit"\ncommand_prefix = "git"', "command_prefix: no call of write_file or edit_file has a command line"),
    ('tool = "bash"\nargument = { comand = ".*" }', "bash has no parameter 'comand'; did you mean command?"),
    ('tool = ["read_file", "write_file"]\nargument = { file = ".*" }', "has no parameter 'file'"),
]
RIGHT = [
    "",
    'tool = "shell"',
    'tool = "*"',
    'tool = "mcp__*"',
    'tool = "*push*"',
    'tool = "mcp__github__push"',
    'tool = "mcp__my_files__*"',
    'tool = "mcp__git*"',
    'server = "*"',
    'server = ["github", "my*"]',
    'taint = ["mcp:*", "web"]',
    'command_prefix = "git"',
    'path = "a"',
    'host = "example.org"',
    'tool = "web_search"\nhost = "example.org"',
    'tool = ["bash", "read_file"]\npath = "a"',
    'argument = { repository = ".*" }',
    'tool = "mcp__github__*"\nargument = { branch = ".*" }',
    'server = "github"\nargument = { branch = ".*" }',
    'tool = "run_shell_command"\nargument = { command = ".*" }',
    'tool = ["read_file", "write_file"]\nargument = { content = ".*" }',
    'tool = "bash"\nmode = "auto"\ndepth = ">= 1"\nlabel = { team = "x" }',
]


@pytest.mark.parametrize("decision", ["deny", "ask"])
@pytest.mark.parametrize(("matchers", "said"), WRONG)
def test_a_rule_that_forbids_what_cannot_be_is_refused(tmp_path: Path, matchers: str, said: str, decision: str) -> None:
    path = written(tmp_path, matchers, decision)
    with pytest.raises(Misconfigured) as refused:
        known(tmp_path).check(load_rules([path]))
    assert str(refused.value).startswith(f"{path}:1: the rule 'tried' cannot match as it is meant: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(("matchers", "said"), WRONG)
def test_a_rule_that_allows_what_cannot_be_is_reported(tmp_path: Path, matchers: str, said: str) -> None:
    (remark,) = known(tmp_path).check(load_rules([written(tmp_path, matchers, "allow")]))
    assert said in remark


@pytest.mark.parametrize("matchers", RIGHT)
def test_a_rule_that_may_match_is_taken(tmp_path: Path, matchers: str) -> None:
    assert known(tmp_path).check(load_rules([written(tmp_path, matchers)])) == []


def test_what_only_runs_know_is_not_judged(tmp_path: Path) -> None:
    """Names of servers where none is configured, or their file is broken, and of tools that a command declares."""
    rules = load_rules([written(tmp_path, 'tool = "mcp__githib__*"\nserver = "githib"')])
    for servers in ({"mcpServers": {}}, "{broken"):
        assert known(tmp_path, servers=servers).check(rules) == []
    discovered = {"DEPUTIZE_TOOLS_DISCOVERY_COMMAND": "list", "DEPUTIZE_TOOLS_CALL_COMMAND": "call"}
    rules = load_rules([written(tmp_path, 'tool = "deploy"\nargument = { stage = "prod" }')])
    assert known(tmp_path, **discovered).check(rules) == []
    with pytest.raises(Misconfigured, match="there is no tool 'deploy'"):
        known(tmp_path).check(rules)


def test_tools_that_a_worker_is_given_are_known(tmp_path: Path) -> None:
    rules = load_rules([written(tmp_path, 'tool = "web_fetch"')])
    assert Known(Settings(), list(TOOLS.values())).check(rules) == []
    with pytest.raises(Misconfigured, match="there is no tool 'web_fetch'"):
        Known(Settings(), [TOOLS["bash"]]).check(rules)


class Deploy(Tool[Params]):
    """Deploys the named place."""

    name = "deploy"
    kind = Kind.EXECUTE
    effect = Effect.EFFECTFUL
    params = Params

    def touches(self, params: Params) -> Touches:
        return Touches(paths=("place",))

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        return ToolResult("done")


def test_what_a_tool_of_ones_own_touches_is_not_judged(tmp_path: Path) -> None:
    rules = load_rules([written(tmp_path, 'tool = "deploy"\npath = "a"')])
    assert Known(Settings(), [*BUILTIN, Deploy()]).check(rules) == []


def test_without_mcp_no_server_is_known(tmp_path: Path) -> None:
    assert known(tmp_path, DEPUTIZE_TOOLS_ENABLE_MCP="false").servers == ()


def test_the_test_of_a_file_is_recognized_as_one(tmp_path: Path) -> None:
    question: dict[str, Any] = {"settings": {}, "test": [str(written(tmp_path, 'tool = "bsh"'))]}
    assert "there is no tool 'bsh'; did you mean bash?" in answer(question)["error"]
    written(tmp_path, 'tool = "bsh"', "allow")
    assert "there is no tool 'bsh'" in answer(question)["remarks"][0]


EXPLAINED = {"call": "bash", "mode": "ask", "depth": 0, "labels": {}, "workspace": None}


@pytest.mark.parametrize("matchers", [each for each, _ in WRONG if "mcp" not in each and "git" not in each])
@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_nothing_is_explained_or_replayed_with_files_that_keep_a_worker_from_starting(
    tmp_path: Path, matchers: str, decision: str
) -> None:
    path = str(written(tmp_path, matchers, decision))
    for question in (
        {**EXPLAINED, "settings": {"DEPUTIZE_POLICY": path}},
        {"settings": {}, "replay": [path], "runs": []},
        {"settings": {"DEPUTIZE_POLICY": path}, "replay": [], "runs": []},
    ):
        assert f"{path}:1: the rule 'tried' cannot match as it is meant" in answer(question)["error"]
    written(tmp_path, matchers, "allow")
    assert "error" not in answer({"settings": {}, "replay": [path], "runs": []})
