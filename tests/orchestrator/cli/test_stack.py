"""`deputize up`, `demo` and a `run` without any service: the whole thing, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from deputize.shared.delegation import TerminationReason, ToolAgentResult
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.terminal import on_terminal
from tests.processes.redis_server import RedisProcess
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@pytest.mark.costly
async def test_what_up_runs_is_found_by_the_other_commands(tmp_path: Path) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": "scripted"}
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/worker-3.log").write_text("of an earlier stack\n")
    async with started("up", "--port", "0", "--workers", "2", "--flower", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        assert {path.name for path in tmp_path.glob("logs/worker-*")} >= {"worker-1.log", "worker-3.log.1"}
        assert not (tmp_path / "logs/worker-3.log").exists()
        await _only_its_user_is_let_in(tmp_path, **here)
        token = (await deputize("token", **here)).out.strip()
        rotated = await deputize("token", "rotate", **here)
        assert (rotated.out.strip() != token, "still takes the old one" in rotated.err) == (True, True)
        (tmp_path / "token").write_text(token)
        done = await deputize("run", "Look around", "--json", **here)
        result = ToolAgentResult.model_validate_json(done.out)
        assert (done.code, result.success) == (1, False)
        assert result.termination_reason is TerminationReason.REFUSED  # a script does not claim to have done it
        assert "not a language model" in done.err
        done = await deputize("show", result.delegation_id, "--json", **here)
        assert json.loads(done.out)["result"] == result.to_dict()
        await until(partial(_have_announced, 2, here))  # it is ready with the first of them
        assert "read_file" in (await deputize("tools", **here)).out
        done = await deputize("up", **here)
        assert done.code == 3
        assert "already" in done.err
        stack.interrupt()
        done = await stack.done()
    assert done.code == 0
    assert re.fullmatch(
        r"(starting (Redis|the API|the worker) …\n)+stopping, within \d+ s; "
        r"Ctrl-C again kills the processes that still run\n"
        r"(\{.* did not stop within .*\n)*",
        done.err,
    )
    said = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert said["API"].startswith("http://127.0.0.1:")
    assert said["Page"] == f"{said['API']}/ (asks for the token; `deputize open` opens it)"
    assert said["Workers"].startswith("2,")
    assert "deputize token" in said["Token"]
    assert "@" not in done.out  # what is printed here is read by others, too
    assert f"flower_url in {tmp_path}/stack.json" in said["Flower"]
    assert "Ctrl-C" in said["Stop"]


@pytest.mark.costly
async def test_on_a_terminal_up_prints_the_link_that_opens_the_page(tmp_path: Path) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": "scripted"}
    async with on_terminal("up", "--port", "0", columns=200, **here) as stack:
        await until(lambda: "Stop" in stack.drawn, 60)
        info = json.loads((tmp_path / "stack.json").read_text())
        assert f"Page     {info['url']}/#token={info['token']}" in stack.drawn
        stack.send(signal.SIGINT)
        assert await stack.ended() == 0


async def _have_announced(workers: int, here: dict[str, Any]) -> bool:
    return len((await deputize("workers", **here)).out.splitlines()) == workers


async def _only_its_user_is_let_in(home: Path, **here: Any) -> None:
    url = json.loads((home / "stack.json").read_text())["url"]
    token = (await deputize("token", **here)).out.strip()
    assert len(token) > 30
    async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url) as http:
        assert (await http.get("/v1/delegations")).status_code == 401
        assert (await http.get("/v1/delegations", headers={"Authorization": f"Bearer {token}"})).status_code == 200
    assert home.stat().st_mode & 0o077 == 0
    assert [path.name for path in home.iterdir() if path.is_file() and path.stat().st_mode & 0o077] == []


@pytest.mark.costly
async def test_without_a_token_up_states_which_users_that_trusts_and_no_password(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    with redis.Redis.from_url(redis_process.url) as client:
        client.config_set("requirepass", "nobody-reads-this")
    url = redis_process.url.replace("unix://", "unix://:nobody-reads-this@", 1)
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": "scripted", "DEPUTIZE_REDIS_URL": url}
    async with started("up", "--port", "0", "--no-token", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        assert b"every user and every program of this machine" in stack.out
        assert b"\nRedis    unix:" in stack.out
        assert b"nobody-reads-this" not in stack.out
        assert (await deputize("list", **here)).code == 0
        done = await deputize("token", **here)
        assert (done.code, "--no-token" in done.err) == (3, True)
        stack.interrupt()
        await stack.done()


@pytest.mark.costly
async def test_without_a_service_run_brings_its_own_and_settings_that_were_mended_count_at_once(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"rules": [{"turns": [[{"text": "Right."}]]}]}))
    home: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home")}
    done = await deputize("run", "Look around", DEPUTIZE_MODEL="scripted", **home)
    assert done.code == 1
    assert done.out.startswith("the scripted model cannot do this task: ")
    mended: dict[str, Any] = {"DEPUTIZE_MODEL": f"scripted:{script}", "DEPUTIZE_CAP_MAX_TURNS": "7"}
    done = await deputize("run", "Look around", "--max-turns", "9", **mended, **home)
    assert (done.code, done.out.split("\n")[0]) == (0, "Right.")
    assert ("maxTurns" in done.err, "its own hold" in done.err) == (True, False), done.err


async def test_detached_it_needs_a_service_that_stays(tmp_path: Path) -> None:
    done = await deputize("run", "x", "--detach", DEPUTIZE_HOME=str(tmp_path))
    assert done.code == 3
    assert "deputize up" in done.err


@pytest.mark.costly
async def test_what_an_interrupted_run_left_behind_goes_on_only_when_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "slow.json"
    turns = [{"delay": 6, "blocks": [{"call": "glob", "arguments": {"pattern": "*"}}]}, [{"text": "All done."}]]
    script.write_text(json.dumps({"rules": [{"turns": turns}]}))
    here: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "home"),
        "DEPUTIZE_MODEL": f"scripted:{script}",
        "DEPUTIZE_SHUTDOWN_SECONDS": "0",
    }
    async with started("run", "Take your time", **here) as command:
        await until(lambda: b"running on" in command.err, 60)
        command.interrupt()
        done = await command.done()
    assert (done.code, done.out) == (130, "")
    id = next(line for line in done.err.splitlines() if line.startswith("dlg_"))
    assert f"`deputize resume {id}` goes on" in done.err
    assert f"{id} is paused" in done.err
    # To look at it, some time later, starts what that needs, and nothing that goes on with it.
    await until(lambda: not tmp_path.joinpath("home", "stack.json").exists(), 60)
    looks = [("show", "@last"), ("list",), ("tools",), ("prune",), ("watch", id)]
    shown, listed, tools, pruned, watched = await asyncio.gather(*(deputize(*look, **here) for look in looks))
    assert shown.code == 0
    assert f"task       Take your time\nid         {id}\nstatus     " in shown.out
    assert (listed.out.count(id), bool(tools.out), pruned.out) == (1, True, "0 delegations removed\n")
    assert watched.code == 3
    assert f"paused: {id}, which `deputize resume` goes on with" in watched.err
    # Another command's workers do not go on with it, either.
    quick = tmp_path / "quick.json"
    quick.write_text(json.dumps({"rules": [{"turns": [[{"text": "Quick."}]]}]}))
    elsewhere: dict[str, Any] = here | {"DEPUTIZE_MODEL": f"scripted:{quick}"}
    another = await deputize("run", "Another", **elsewhere)
    assert (another.code, another.out.split("\n")[0]) == (0, "Quick.")
    assert f"1 delegation from before is paused: Take your time (…{id[-6:]})\n" in another.err
    assert f"`deputize resume {id}` goes on with it" in another.err
    assert f"{id}  paused " in (await deputize("list", **here)).out
    events = (await deputize("show", id, "--events", **here)).out
    assert events.count("run_started") + events.count("run_resumed") == 1
    resumed = await deputize("resume", "--all", **here)
    assert resumed.code == 0
    assert resumed.out.startswith("All done.")
    again = await deputize("resume", id, **here)
    assert again.code == 2
    assert f"{id} is finished, so it cannot be resumed" in again.err


@pytest.mark.costly
async def test_what_a_killed_stack_left_goes_on_when_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "slow.json"
    turns = [{"delay": 3, "blocks": [{"call": "glob", "arguments": {"pattern": "*"}}]}, [{"text": "All done."}]]
    script.write_text(json.dumps({"rules": [{"turns": turns}]}))
    here: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "home"),
        "DEPUTIZE_MODEL": f"scripted:{script}",
        "DEPUTIZE_LEASE_SECONDS": "2",
    }
    async with started("up", "--port", "0", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        id = (await deputize("run", "Take your time", "--detach", **here)).out.strip()
        async with started("watch", id, **here) as watched:
            await until(lambda: b"running on" in watched.err, 60)
        os.kill(json.loads((tmp_path / "home/stack.json").read_text())["pid"], signal.SIGKILL)
        await stack.done()
    resumed = await deputize("resume", id, **here)
    assert (resumed.code, resumed.out.split("\n")[0]) == (0, "All done."), resumed.err


async def test_an_interrupt_while_the_stack_starts_ends_with_130(tmp_path: Path) -> None:
    async with started("run", "x", DEPUTIZE_HOME=str(tmp_path), DEPUTIZE_MODEL="scripted") as command:
        await until(lambda: b"starting one" in command.err, 60)
        command.interrupt()
        done = await command.done()
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err
