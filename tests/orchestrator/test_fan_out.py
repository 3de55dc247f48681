"""The example of README.md that makes one pull request of several fixes, over real git, with a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.proof.keys import make_key
from tests.network.git_server import TOKEN, USER, git, git_server, make_repository
from tests.network.github_api import GithubApi, github_api
from tests.network.other_git_hosts import GiteaApi, GitlabApi
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.front_page import FAN_OUT
from tests.runs.bench import call, say
from tests.shared.git.cloning import write_credentials
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

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


ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""An API belongs to the git host of its name."""
SHOWN = '("tax", "discount", "shipping", "rounding")'
"""What the example shows; it is executed with fewer, too."""


@pytest.mark.costly
async def test_verified_fixes_become_one_pull_request_at_each_host_and_a_lie_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"rules": RULES}))
    with (
        git_server(tmp_path / "served", ("0.0.0.0", 0)) as server,
        github_api(TOKEN, GithubApi, ADDRESSES[0]) as github,
        github_api(TOKEN, GitlabApi, ADDRESSES[1]) as gitlab,
        github_api(TOKEN, GiteaApi, ADDRESSES[2]) as gitea,
    ):
        server.credentials = (USER, TOKEN)
        (server.root / "o").mkdir()
        url = server.add(make_repository(tmp_path / "source", FILES), "o/r.git")
        hosts = [f"{address}:{server.port}" for address in ADDRESSES]
        here: dict[str, Any] = {
            "DEPUTIZE_HOME": str(tmp_path / "home"),
            "DEPUTIZE_MODEL": f"scripted:{tmp_path / 'script.json'}",
            "DEPUTIZE_GIT_HOSTS": ",".join(hosts),
            "DEPUTIZE_GIT_CREDENTIALS_FILE": str(write_credentials(tmp_path / "credentials", *hosts)),
            "DEPUTIZE_GITHUB_API_URL": github.url,
            "DEPUTIZE_GITLAB_API_URL": gitlab.url,
            "DEPUTIZE_GITEA_API_URL": gitea.url,
        }
        for name, value in here.items():
            monkeypatch.setenv(name, value)
        key = make_key(tmp_path / "home/proof-keys").with_suffix(".pub")

        def executed(host: str, *names: str) -> str:
            block = FAN_OUT.replace("https://github.com/you/shop", url.replace(server.host, host))
            assert block.count(host) == block.count(SHOWN) == 1
            try:
                exec(block.replace(SHOWN, str(names)), {})
            except SystemExit as refusal:
                return str(refusal)
            return ""

        async with started("up", "--port", "0", **here) as stack:
            await until(lambda: b"Stop" in stack.out, 60)
            asked = zip((*hosts, hosts[0]), (NAMES, NAMES[::2], NAMES[::2], ("rounding",)), strict=True)
            executing = [asyncio.to_thread(executed, host, *names) for host, names in asked]
            *refusals, of_lies = await asyncio.gather(*executing)
            assert (refusals, of_lies[:20]) == (["", "", ""], "nothing was verified")
            tip = git(
                server.root / "o/r.git",
                "for-each-ref",
                "--format=%(trailers:key=Deputize-Run,valueonly)",
                "refs/heads/deputize",
            )
            proof = await deputize("show", "--proof", tip.split()[0], **here)
            stack.interrupt()
            await stack.done()
        (tmp_path / "proof.json").write_text(proof.out)
        proved = await deputize("prove", str(tmp_path / "proof.json"), "--repository", url, "--key", str(key), **here)
        assert proved.code == 0, proved
        made = [*github.pulls, *gitlab.pulls, *gitea.pulls]
        assert sorted(capfd.readouterr().out.split()) == [
            "https://gitea.example/o/r/pulls/1",
            "https://github.example/o/r/pull/1",
            "https://gitlab.example/o/r/-/merge_requests/1",
        ]
        heads = [pull.get("head") or pull["source_branch"] for pull in made]
        for pull, head, number in zip(made, heads, (3, 2, 2), strict=True):
            assert (pull.get("base") or pull["target_branch"], pull["title"]) == ("trunk", "Fix what the tests find")
            changed = git(server.root / "o/r.git", "diff", "--name-only", "main", head).split()
            assert changed == ["discount.py", "shipping.py", "tax.py"][-number:]
            assert "**Verdict: verified**" in (pull.get("body") or pull["description"])
        served = git(server.root / "o/r.git", "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
        assert sorted(served) == sorted([*heads, "main"])


def test_the_example_of_the_readme_is_short() -> None:
    assert len(FAN_OUT.splitlines()) < 30
