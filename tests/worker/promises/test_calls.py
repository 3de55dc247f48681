"""What tries the promises about calls sees each of them broken; and all is tried by an ordinary user, too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy.explanation import Explainer, Situation
from deputize.worker.promises.__main__ import find
from deputize.worker.promises.calls import ASKS, FORBIDDEN, plant, try_decisions, try_file_tools, try_planted
from deputize.worker.sandbox.trials import Canaries
from deputize.worker.workspace.files import Files
from tests.ordinary_user import home_of_an_ordinary_user, need_ordinary_user
from tests.worker.forked import in_child


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Canaries]:
    with Canaries(tmp_path) as made:
        yield made


class Decided:
    """A policy that decides alike about all calls."""

    def __init__(self, decision: str) -> None:
        self._decision = decision

    def explain(self, text: str, situation: Situation) -> dict[str, Any]:
        return {"decision": self._decision}


def test_a_policy_that_lets_a_forbidden_command_run_or_asks_no_person_is_found() -> None:
    for calls, wanted, modes in ((FORBIDDEN, "deny", tuple(ApprovalMode)), (ASKS, "ask", (ApprovalMode.ASK,))):
        assert try_decisions(Explainer(Settings(), ()), calls, wanted, modes) == []
        found = try_decisions(Decided("allow"), calls, wanted, modes)
        assert found == [f"the decision about {call} ({mode}) is allow" for call in calls for mode in modes]
    assert len(FORBIDDEN) * len(ApprovalMode) >= 40


class Following(Files):
    """Opens every path, as a program does that knows of no workspace."""

    def relative(self, path: str) -> str:
        return path

    def open_fd(self, path: str, flags: int = os.O_RDONLY) -> int:
        with self._tool_errors(path):
            return os.open(self.root / path, flags)


async def test_file_tools_that_follow_a_link_or_a_name_are_found(canaries: Canaries) -> None:
    with Files(canaries.workspace("whole")) as files:
        assert await try_file_tools(files, canaries.private) == []
    with Following(canaries.workspace("tools")) as files:
        found = await try_file_tools(files, canaries.private)
    opened = {each.removeprefix("read_file opened ") for each in found if each.startswith("read_file")}
    names = ["absolute", "relative", "magic", "chain", f"folder/{canaries.name}", str(canaries.private)]
    assert {*names} <= opened


async def test_configuration_that_applies_is_found(canaries: Canaries, tmp_path: Path) -> None:
    """It does where the operator's own settings name it."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    folder, empty = canaries.workspace("planted"), canaries.workspace("empty")
    plant(folder, folder.with_name("executed"))
    assert await try_planted(folder, empty, environ) == []
    (empty / "deputize.toml").touch()
    (tmp_path / "deputize").mkdir()
    (tmp_path / "deputize/mcp.json").symlink_to(folder / "mcp.json")
    named = {"DEPUTIZE_CONFIG": "deputize.toml", "DEPUTIZE_SKILLS_DIR": "skills"}
    found = await try_planted(folder, empty, environ | named)
    names = ("policy", "sandbox", "mcp_config", "skills_dir")
    assert {f"the setting {name} of a file in a workspace applies" for name in names} <= {*found}
    assert found[-2:] == ["a skill in a workspace is offered", "a program that a workspace names was executed"]


@pytest.mark.system
def test_an_ordinary_user_tries_all_of_it_and_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    need_ordinary_user()
    monkeypatch.setenv("CANARY", f"deputize-canary-{'0' * 16}")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # this user's may lead where an ordinary one cannot go

    def work(home: Path) -> dict[str, Any]:
        settings = Settings(home=home)
        with Canaries(home) as canaries:
            return asdict(asyncio.run(find(settings, canaries)))

    with home_of_an_ordinary_user() as home:
        found = in_child(lambda: work(home), ordinary=True)
        assert list(home.iterdir()) == []
    assert (found["untried"], {promise: problems for promise, problems in found["problems"].items() if problems}) == (
        {},
        {},
    )
