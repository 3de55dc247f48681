"""Kill -9 while a repository is cloned, checked and delivered to: one branch, one commit, one pull request."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import pytest

from deputize.shared.delegation import ToolAgentResult
from tests.network.git_server import TOKEN, USER, GitServer, git, git_server, make_repository
from tests.network.github_api import GithubApi, github_api
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.shared.git.cloning import write_credentials
from tests.system.crashing import WORKER, hand_to
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]


MOMENTS = (
    *("cloning", "run_started", "step_completed", "check_completed 1", "check_completed 2", "check_completed 3"),
    *("pushing", "pushed", "asked", "delivered"),
)
"""Moments of the host, and events; of several of one type the one with that number."""
CANARY = "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1,2 +1 @@\n one\n-two\n"
CHECK = {"kind": "command", "run": "grep -q two app.py", "canary": CANARY}
HELD: dict[str, Literal["before", "after", ""]] = {"cloning": "", "pushing": "before", "pushed": "after"}


async def crashed(
    fleet: Fleet, server: GitServer, folder: Path, name: str, moment: Callable[[], object] | str
) -> tuple[ToolAgentResult, list[str]]:
    """Kills the worker at the moment, or the event of that type, and returns the result of the next one."""
    await fleet.start(name, "--queues", name, program=WORKER)
    # Killed during the first call, the next worker does not repeat it; then the second one does its work.
    work = call("bash", command="grep -q two app.py || echo two >> app.py; git commit -qam mine || true")
    model = script(folder, [work], [work], [say("done")])
    workspace = {"kind": "git", "url": server.url("o/r.git")}
    deliver = {"branch": f"of-{name}", "pullRequest": {"title": name}}
    id = await hand_to(fleet, name, model=model, workspace=workspace, deliver=deliver, verify=[CHECK])
    if isinstance(moment, str):
        type, _, number = moment.partition(" ")
        left = int(number or 1)
        async with aclosing(fleet.service.follow(id)) as events:
            async for envelope in events:
                left -= envelope.event.type == type
                if not left:
                    break
    else:
        await until(moment, 60)
    await fleet.kill(name)
    if server.hold:
        server.hold.set()
    result = await fleet.result(id, 60)
    return result, [each.event.type for each in await fleet.service.events(id)]


def prepare(server: GitServer, api: GithubApi, name: str) -> Callable[[], object] | str:
    """Makes the host wait at the moment of that name. Returns how to see that it is there."""
    server.hold, server.held, server.hold_push = None, threading.Event(), ""
    api.hold, api.held = None, threading.Event()
    if name in HELD:
        server.hold = threading.Event()
        server.hold_push = HELD[name]
        return server.held.is_set
    if name == "asked":
        api.hold = threading.Event()
        return api.held.is_set
    return name


@pytest.mark.costly
async def test_a_worker_killed_at_any_moment_delivers_once(redis_url: str, tmp_path: Path, is_thorough: bool) -> None:
    source = make_repository(tmp_path / "source", {"app.py": "one\n"})
    with git_server(tmp_path / "served") as server, github_api(TOKEN) as api:
        (server.root / "o").mkdir()
        server.add(source, "o/r.git")
        served = server.root / "o/r.git"
        server.credentials = (USER, TOKEN)
        own = {
            "git_hosts": [server.host],
            "git_credentials_file": write_credentials(tmp_path / "credentials", server.host),
            "github_api_url": api.url,
            "lease_seconds": 1,
            "claim_seconds": 3,
        }
        async with open_fleet(redis_url, tmp_path / "home", **own) as fleet:
            await fleet.start("survivor", program=WORKER)
            wrong: list[str] = []
            # In their order: while it is cloned there is no earlier clone.
            for name in MOMENTS if is_thorough else sorted(random.sample(MOMENTS, 4), key=MOMENTS.index):
                moment = prepare(server, api, name)
                made = len(api.pulls)
                plain = name.replace("_", "-").replace(" ", "-")
                result, types = await crashed(fleet, server, tmp_path, plain, moment)
                branch = f"of-{plain}"
                there = git(
                    served, "for-each-ref", "--format=%(objectname) %(parent)", f"refs/heads/{branch}"
                ).splitlines()
                if result.git is None or there != [f"{result.git.commit} {git(source, 'rev-parse', 'HEAD')}"]:
                    wrong.append(f"{name}: {there} {result.git} {result.errors}")
                if len(api.pulls) != made + 1 or result.git is None or not result.git.pull_request_url:
                    wrong.append(f"{name}: {len(api.pulls) - made} pull requests, {result.git}")
                if result.verification.verdict != "verified":
                    wrong.append(f"{name}: {result.verification}")
                if not result.success or (types.count("delivered"), types[-1]) != (1, "run_finished"):
                    wrong.append(f"{name}: {result.summary} {types}")
            assert wrong == []
