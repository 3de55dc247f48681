"""The example of README.md that makes one pull request of several fixes, over real git, with a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.network.git_server import TOKEN, USER, git, git_server, make_repository
from tests.network.github_api import github_api
from tests.orchestrator.command_line import started
from tests.orchestrator.front_page import FAN_OUT
from tests.runs.bench import call, say
from tests.shared.git.cloning import write_credentials
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

NAMES = ("tax", "discount", "shipping", "rounding")
TEST = (
    "import unittest, {0}\nclass T(unittest.TestCase):\n    def test_{0}(self):\n        self.assertTrue({0}.right())\n"
)
FILES = {f"{name}.py": "def right():\n    return False\n" for name in NAMES}
FILES |= {f"test_{name}.py": TEST.format(name) for name in NAMES}
WRITE = call("write_file", path="{{task /test_(\\w+)/}}.py", content="def right():\n    return True\n")
RULES = [
    {"match": {"contains": "test_rounding"}, "turns": [[say("All tests pass now.")]]},
    {"turns": [[WRITE], [say("It is repaired.")]]},
]


async def test_verified_fixes_become_one_pull_request_and_a_lie_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"rules": RULES}))
    with git_server(tmp_path / "served") as server, github_api(TOKEN) as api:
        server.credentials = (USER, TOKEN)
        (server.root / "o").mkdir()
        url = server.add(make_repository(tmp_path / "source", FILES), "o/r.git")
        here: dict[str, Any] = {
            "DEPUTIZE_HOME": str(tmp_path / "home"),
            "DEPUTIZE_MODEL": f"scripted:{tmp_path / 'script.json'}",
            "DEPUTIZE_GIT_HOSTS": server.host,
            "DEPUTIZE_GIT_CREDENTIALS_FILE": str(write_credentials(tmp_path / "credentials", server.host)),
            "DEPUTIZE_GITHUB_API_URL": api.url,
        }
        for name, value in here.items():
            monkeypatch.setenv(name, value)
        async with started("up", "--port", "0", **here) as stack:
            await until(lambda: b"Stop" in stack.out, 60)
            block = FAN_OUT.replace("https://github.com/you/shop", url)
            assert block != FAN_OUT
            await asyncio.to_thread(exec, block, {})
            lie_alone = block.replace('("tax", "discount", "shipping", "rounding")', '("rounding",)')
            with pytest.raises(SystemExit, match="nothing was verified"):
                await asyncio.to_thread(exec, lie_alone, {})
            stack.interrupt()
            await stack.done()
        assert capfd.readouterr().out == "https://github.example/o/r/pull/1\n"
        (pull,) = api.pulls
        assert pull["base"] == "trunk"
        served = server.root / "o/r.git"
        assert git(served, "for-each-ref", "--format=%(refname:short)", "refs/heads").split() == [pull["head"], "main"]
        assert git(served, "diff", "--name-only", "main", pull["head"]).split() == [
            "discount.py",
            "shipping.py",
            "tax.py",
        ]


def test_the_example_of_the_readme_is_short() -> None:
    assert len(FAN_OUT.splitlines()) < 30
