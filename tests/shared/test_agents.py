"""Named agents: what they fill in of a request, and who may define them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.limits import Limits
from deputize.shared.request import ApprovalMode, DelegationRequest
from deputize.shared.request_rules import unknown_agent, with_agent
from deputize.shared.settings import Settings

REVIEWER = """
[agents.reviewer]
system_prompt = "You review."
model = "claude-opus-5-5"
effort = "max"
economy = true
tools = ["read_*", "grep"]
limits = {max_turns = 7, maxCostUsd = 0.5}
approval_mode = "readOnly"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "mine.toml").write_text(REVIEWER)
    return Settings.load(tmp_path / "mine.toml", environ={})


def test_an_agent_fills_in_what_the_request_leaves_open(settings: Settings) -> None:
    asked = DelegationRequest(task="t", agent="reviewer", limits=Limits(max_turns=3))
    filled = with_agent(asked, settings.agents)
    assert (filled.system_prompt, filled.effort, filled.economy) == ("You review.", "max", True)
    assert (filled.model, filled.tools, filled.approval_mode) == ("claude-opus-5-5", ["read_*", "grep"], "readOnly")
    assert (filled.limits.max_turns, filled.limits.max_cost_usd, filled.limits.max_tool_calls) == (3, 0.5, 50)


def test_what_the_request_sets_itself_stays(settings: Settings) -> None:
    said = {
        "system_prompt": "You write.",
        "model": "m",
        "effort": "low",
        "tools": [],
        "approval_mode": ApprovalMode.SANDBOXED,
    }
    filled = with_agent(DelegationRequest(task="t", agent="reviewer", **said, economy=False), settings.agents)
    assert not filled.economy
    assert filled.model_dump(include={*said}) == said
    assert with_agent(DelegationRequest(task="t"), settings.agents) == DelegationRequest(task="t")


def test_defaults_do_not_travel_so_that_an_agent_can_fill_them_in(settings: Settings) -> None:
    asked = DelegationRequest(task="t", agent="reviewer", limits=Limits(max_tool_calls=9))
    sent = asked.given_json()
    assert json.loads(sent) == {"task": "t", "agent": "reviewer", "limits": {"maxToolCalls": 9}}
    filled = with_agent(DelegationRequest.model_validate_json(sent), settings.agents)
    assert (filled.limits.max_turns, filled.limits.max_tool_calls, filled.approval_mode) == (7, 9, "readOnly")
    whole = DelegationRequest.model_validate({"task": "t", "workspace": {"kind": "empty"}, "priority": 5})
    assert json.loads(whole.given_json()) == {"task": "t", "workspace": {"kind": "empty"}, "priority": 5}


def test_a_wrong_name_is_reported_with_the_closest_one(settings: Settings) -> None:
    assert "did you mean reviewer?" in (unknown_agent("reviwer", settings.agents) or "")
    assert "there are reviewer" in (unknown_agent("zzz", settings.agents) or "")
    assert "define none" in (unknown_agent("reviewer", {}) or "")
    assert unknown_agent("reviewer", settings.agents) is None
    assert unknown_agent(None, {}) is None


def test_a_child_process_knows_the_same_agents(settings: Settings) -> None:
    environ = settings.child_environment()
    again = Settings.load(environ={name: text for name, text in environ.items() if name.startswith("DEPUTIZE_")})
    assert again.agents == settings.agents


@pytest.mark.parametrize("wrong", ["limits = {max_turns = 0}", "limits = {turns = 1}", "promt = 'x'"])
def test_a_mistake_in_an_agent_stops_the_start(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "mine.toml").write_text(f"[agents.reviewer]\n{wrong}\n")
    with pytest.raises(Misconfigured, match="agents/reviewer"):
        Settings.load(tmp_path / "mine.toml", environ={})


def test_a_file_that_was_only_found_defines_no_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, here = tmp_path / "config/deputize", tmp_path / "here"
    for folder in (own, here):
        folder.mkdir(parents=True)
    (own / "deputize.toml").write_text('[agents.mine]\nsystem_prompt = "Mine."\n')
    (here / "deputize.toml").write_text(
        '[agents.mine]\nsystem_prompt = "Theirs."\n[agents.plain]\nsystem_prompt = "Plain."\n'
    )
    monkeypatch.chdir(here)
    agents = Settings.load(environ={"XDG_CONFIG_HOME": str(tmp_path / "config")}).agents
    assert {name: agent.system_prompt for name, agent in agents.items()} == {"mine": "Mine."}
