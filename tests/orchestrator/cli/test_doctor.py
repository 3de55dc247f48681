"""`deputize doctor`: it separates what is well from what is not, and shows how to mend it.

With `--workspace DIR` also what an agent will find there, really asked inside the sandbox.
"""

from __future__ import annotations

import fcntl
import json
import os
import venv
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest
import redis

from deputize.orchestrator.cli.doctor import chosen_sandbox, disk_row, home_row, key_rows
from deputize.orchestrator.cli.doctor_service import (
    credential_rows,
    redis_rows,
    replica_rows,
    room_rows,
    service_rows,
    signing_row,
)
from deputize.orchestrator.delegations import open_service
from deputize.orchestrator.home import SUPERVISOR_LOCK, StackInfo, open_private, try_lock, write_info
from deputize.orchestrator.sockets import free_port
from deputize.shared.connection import connect
from deputize.shared.fleet import Fleet
from deputize.shared.promises import PROMISES, Finding
from deputize.shared.runs.keys import ACKNOWLEDGED
from deputize.shared.settings import Settings
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from tests.fake_model import FakeModel, Turn
from tests.fake_model import call as tool_use
from tests.fake_model import text as says
from tests.orchestrator.command_line import Done, deputize, started
from tests.orchestrator.fake_service import READ_FILE, worker_card
from tests.orchestrator.serving import served, settings
from tests.processes.redis_server import RedisProcess
from tests.shared.git.keys import ssh_key
from tests.waiting import until
from tests.worker.forked import need_root

KEY = "sk-ant-api03-Zk9hWq2LpXv7RtY4uMbN8cD"
TRIED = {"sandbox", "memory", *(promise.name for promise in PROMISES)}


def rows(done: Done) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in map(json.loads, done.out.splitlines())}


def states(done: Done) -> dict[str, str]:
    return {name: row["state"] for name, row in rows(done).items()}


async def by_name(found: AsyncIterable[Finding]) -> dict[str, Finding]:
    return {row.name: row async for row in found}


async def test_a_whole_machine_with_its_stack_is_well_and_every_promise_is_kept(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        with open_private(tmp_path / SUPERVISOR_LOCK, "ab") as lock:
            assert try_lock(lock, fcntl.LOCK_EX)
            write_info(tmp_path, StackInfo(os.getpid(), url, "", redis_process.url, None, 0))
            before = {*tmp_path.iterdir()}
            done = await deputize("doctor", "--json", DEPUTIZE_HOME=str(tmp_path), ANTHROPIC_API_KEY="sk-secret")
    wanted = {"python", "git", "home", "token", "model", "redis", "acl", "eviction", "aof", "clock", "service", *TRIED}
    assert {name: row for name, row in rows(done).items() if name in wanted and row["state"] != "ok"} == {}
    assert wanted <= rows(done).keys()
    assert done.code == 0
    assert "sk-secret" not in done.out + done.err
    assert " ms" in rows(done)["redis"]["detail"]
    assert "(Redis, too, answers outside" in rows(done)["files"]["detail"]
    assert {*tmp_path.iterdir()} == before


async def test_without_a_sandbox_nothing_is_broken_and_every_warning_suggests_what_to_do(tmp_path: Path) -> None:
    home, rules = tmp_path / "new", tmp_path / "rules.toml"
    rules.write_text("[[rule]]\n")
    done = await deputize("doctor", DEPUTIZE_HOME=str(home), DEPUTIZE_SANDBOX="false", DEPUTIZE_POLICY=str(rules))
    assert done.code == 0, done.out
    *lines, last = done.out.splitlines()
    found = [(number, line) for number, line in enumerate(lines) if line.startswith("!") and "see sandbox" not in line]
    names = [line.split()[1] for _, line in found]
    assert last == f"{len(names)} things to do: {', '.join(names)}"
    assert [line for number, line in found if not lines[number + 1].strip().startswith("→ ")] == []
    assert any("deputize up" in line for line in lines)
    signs = {line.split()[1]: line[0] for line in lines if not line.startswith(" ")}
    by_command = {promise.name for promise in PROMISES if promise.by_command}
    assert {name for name in TRIED if signs[name] == "!"} == by_command | {"sandbox", "forbidden"}
    assert f"{rules}:1" in done.out


async def test_interrupted_while_a_program_hangs_it_leaves_nothing(tmp_path: Path) -> None:
    home, program = tmp_path / "home", tmp_path / "own/bin/node"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    given: dict[str, Any] = {"DEPUTIZE_HOME": str(home), "DEPUTIZE_SANDBOX_SHOW": str(tmp_path / "own")}
    async with started("doctor", "--workspace", str(tmp_path), **given) as running:
        await until(lambda: list(home.glob("selftest-*/project")))
        running.interrupt()
        done = await running.done()
    assert done.code == 130
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "command", "state"),
    [
        ("maxmemory-policy", "allkeys-lru", {"eviction": "✗"}),
        ("appendonly", "no", {"aof": "!"}),
        ("appendfsync", "everysec", {"aof": "!"}),
    ],
)
async def test_a_redis_that_may_lose_work_is_found(
    redis_process: RedisProcess, setting: str, command: str, state: dict[str, str]
) -> None:
    with redis.Redis.from_url(redis_process.url) as client:
        client.config_set(setting, command)
    found = await by_name(redis_rows(settings(redis_url=redis_process.url), None))
    assert state.items() <= {name: row.state for name, row in found.items()}.items()
    assert setting in found[next(iter(state))].remedy


@pytest.mark.parametrize(
    ("info", "states"),
    [
        ({"maxmemory": 0, "used_memory": 1 << 30}, {}),
        ({"maxmemory": 100 << 20, "used_memory": 50 << 20}, {}),
        ({"maxmemory": 100 << 20, "used_memory": 95 << 20}, {"redis memory": "!"}),
        ({"maxmemory": 100 << 20, "used_memory": 100 << 20}, {"redis memory": "✗"}),
        ({"aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok"}, {}),
        ({"aof_last_write_status": "err"}, {"redis disk": "✗"}),
        ({"rdb_last_bgsave_status": "err"}, {"redis disk": "✗"}),
    ],
)
def test_a_server_that_is_full_or_cannot_write_is_found(info: dict[str, Any], states: dict[str, str]) -> None:
    assert {row.name: row.state for row in room_rows(info)} == states


def test_a_server_with_replicas_is_warned_of() -> None:
    assert list(replica_rows({"connected_slaves": 0})) == []
    (row,) = replica_rows({"connected_slaves": 2})
    assert (row.state, row.detail[:2]) == ("!", "2:")
    assert "DEPUTIZE_REDIS_REPLICAS" in row.remedy


@pytest.mark.parametrize(
    ("wanted", "info", "states"),
    [
        (1, {"slave0": {"state": "online", "lag": 1}}, {"replicas": "✓"}),
        (1, {"slave0": {"state": "online", "lag": 5}}, {"replicas": "✗"}),
        (1, {"slave0": {"state": "wait_bgsave", "lag": 0}}, {"replicas": "✗"}),
        (1, {"slave0": {"state": "online", "lag": 2}, "min_slaves_good_slaves": 0}, {"replicas": "✗"}),
        (0, {"min-replicas-to-write": "1", "min_slaves_good_slaves": 0}, {"replicas": "✗"}),
        (0, {"min-replicas-to-write": "2", "min_slaves_good_slaves": 1}, {"replicas": "✗"}),
        (0, {"min-replicas-to-write": "1", "connected_slaves": 0}, {"replicas": "✗"}),
        (0, {"role": "slave", "connected_slaves": 0}, {"primary": "✗"}),
    ],
)
def test_replicas_that_do_not_follow_do_not_count(wanted: int, info: dict[str, Any], states: dict[str, str]) -> None:
    insists = {"min-replicas-to-write": "1"} if wanted else {}
    assert {row.name: row.state for row in replica_rows({"connected_slaves": 1} | insists | info, wanted)} == states


@pytest.mark.parametrize(
    ("refuse", "rows"),
    [
        (("CONFIG", "SET", "min-replicas-to-write", "1"), {"replicas", "service"}),
        (("REPLICAOF", "127.0.0.1", "1"), {"primary", "service"}),
    ],
)
async def test_a_redis_that_takes_no_writes_is_what_is_to_be_mended(
    redis_process: RedisProcess, refuse: tuple[str, ...], rows: set[str]
) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        redis_process.client.execute_command(*refuse)
        found = await by_name(redis_rows(using, None)) | await by_name(service_rows(settings(url=url), None))
    broken = {name: row for name, row in found.items() if row.state == "✗"}
    assert broken.keys() == rows
    assert "mend its Redis" in broken["service"].remedy


@pytest.mark.parametrize(
    ("connected", "insists", "losses", "states"),
    [
        (1, "1", 0, {"replicas": "✓"}),
        (0, "1", 0, {"replicas": "✗"}),
        (1, "0", 0, {"replicas": "✓", "min-replicas-to-write": "!"}),
        (1, None, 2, {"failovers": "!", "replicas": "✓"}),
    ],
)
def test_replicas_that_writes_wait_for_are_compared_with_the_setting(
    connected: int, insists: str | None, losses: int, states: dict[str, str]
) -> None:
    info = {"connected_slaves": connected} | ({"min-replicas-to-write": insists} if insists else {})
    assert {row.name: row.state for row in replica_rows(info, 1, losses)} == states


async def test_a_failover_that_lost_writes_is_found(redis_process: RedisProcess) -> None:
    redis_process.client.hset(ACKNOWLEDGED, mapping={"lost:one": "two", "two": "1"})
    found = await by_name(redis_rows(settings(redis_url=redis_process.url), None))
    assert (found["failovers"].state, found["failovers"].detail[:10]) == ("!", "1 failover")


async def test_what_does_not_answer_is_broken() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    using = settings(url=f"http://{nowhere}", redis_url=f"redis://{nowhere}")
    found = await by_name(redis_rows(using, None)) | await by_name(service_rows(using, None))
    assert {name: row.state for name, row in found.items()} == {"redis": "✗", "service": "✗"}


async def test_where_only_redis_is_named_the_service_is_not_asked_and_that_is_well() -> None:
    rows = await by_name(service_rows(settings(redis_url="redis://127.0.0.1:1"), None))
    assert {name: row.state for name, row in rows.items()} == {"service": "✓"}
    assert (await by_name(service_rows(settings(), None)))["service"].state == "!"


async def test_a_whole_service_is_well_and_one_without_workers_or_a_sandbox_is_not(redis_process: RedisProcess) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        here = settings(url=url)
        assert (await by_name(service_rows(here, None)))["workers"].state == "✗"
        async with connect(redis_process.url) as client:
            await Fleet(client).announce(worker_card(sandbox="no user namespaces"), [])
            worker = (await by_name(service_rows(here, None)))["worker"]
            await Fleet(client).announce(worker_card(), [READ_FILE])
            searching = (await by_name(service_rows(here, None)))["worker"]
            await Fleet(client).announce(worker_card(tools=["read_file", "grep"]), [READ_FILE])
        whole = await by_name(service_rows(here, None))
        async with connect(redis_process.url) as client:
            await Fleet(client).announce(worker_card(draining=True), [READ_FILE])
        draining = await by_name(service_rows(here, None))
    assert (draining["worker"].state, draining["workers"].state) == ("!", "✗")
    assert draining["workers"].detail == "every worker is draining"
    assert (worker.state, "no user namespaces" in worker.detail) == ("!", True)
    assert (searching.state, "ripgrep is missing" in searching.detail) == ("!", True)
    assert {name: row.state for name, row in whole.items()} == {"service": "✓", "version": "✓", "worker": "✓"}


async def test_another_version_of_a_worker_is_found(redis_process: RedisProcess) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        async with connect(redis_process.url) as client:
            await Fleet(client).announce(worker_card(name="new", version="99.0"), [])
            await Fleet(client).announce(worker_card(name="old", version=""), [])
        row = (await by_name(service_rows(settings(url=url), None)))["version"]
    assert row.state == "!"
    assert "here, but new 99.0, old announces none; " in row.detail
    assert "the same version" in row.remedy


async def test_a_stack_that_is_only_read_needs_no_worker(redis_process: RedisProcess, tmp_path: Path) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        for workers, state in ((0, "✓"), (1, "✗")):
            stack = StackInfo(os.getpid(), url, "", redis_process.url, None, workers)
            assert (await by_name(service_rows(settings(home=tmp_path), stack)))["workers"].state == state


async def test_doctor_finds_an_open_address_a_wrong_home_and_what_is_never_shown(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    given: dict[str, Any] = {"DEPUTIZE_HOST": "0.0.0.0", "DEPUTIZE_HOME": str(file / "below")}
    shown = '{"tools": {"show": ["/"]}}'
    done = await deputize("doctor", "--json", DEPUTIZE_SANDBOX_PROFILES=shown, **given)
    assert done.code == 3
    assert {"token": "broken", "home": "broken", "settings": "broken"}.items() <= states(done).items()
    assert "sandbox.profiles.tools.show names /, which is never shown" in rows(done)["settings"]["detail"]
    assert states(done)["secrets"] == "warning"


def test_it_signs_with_the_key_for_signatures(tmp_path: Path) -> None:
    key = ssh_key(tmp_path / "key")
    assert [*signing_row(settings())] == []
    (row,) = signing_row(settings(git_signing_key_file=key))
    assert (row.state, row.detail) == ("✓", f"deliveries are signed with {key}")
    key.write_text("words")
    (row,) = signing_row(settings(git_signing_key_file=key))
    assert row.state == "✗"
    assert f"{key} begins with neither" in row.detail


def test_it_reads_the_tokens_of_hosts_and_looks_for_a_sandbox_that_reaches_them(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("canary-token")
    file.chmod(0o600)
    tables = {
        "index": {"host": "a.test", "path": "/simple/", "token_file": file},
        "tracker": {"host": "b.test:8443", "token_file": file, "write": True},
    }
    own: dict[str, Any] = {"credentials": tables, "sandbox": {"profiles": {"online": {"allowed_hosts": ["*.test"]}}}}
    found = [(row.state, row.detail) for row in credential_rows(settings(**own))]
    assert found == [("✓", "index for a.test/simple, to read"), ("✓", "tracker for b.test:8443, also to write")]
    own["sandbox"] = {"setup_hosts": ["a.test"]}
    first, second = credential_rows(settings(**own))
    assert (first.state, second.state) == ("✓", "!")
    assert second.remedy == "add b.test to allowed_hosts or setup_hosts of the sandbox or a profile"
    file.chmod(0o644)
    assert {(row.state, f"other users may read {file}" in row.detail) for row in credential_rows(settings(**own))} == {
        ("✗", True)
    }
    assert [*credential_rows(settings(**own, url="http://127.0.0.1:1"))] == []


def test_a_private_home_of_another_user_has_a_row_with_the_remedy(tmp_path: Path) -> None:
    need_root()
    using = settings(home=tmp_path / "private" / "home")
    using.home.parent.mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        home, disk = home_row(using), disk_row(using)
    finally:
        os.seteuid(0)
    assert (home.state, home.remedy) == ("✗", "set DEPUTIZE_HOME to a folder you can write")
    assert str(using.home.parent) not in disk.detail.replace(str(using.home), "")


@pytest.mark.parametrize(("external", "remedy"), [(True, "correct DEPUTIZE_REDIS_URL"), (False, "logs/redis.log")])
async def test_the_remedy_for_redis_names_what_is_set(tmp_path: Path, external: bool, remedy: str) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}"
    stack = StackInfo(os.getpid(), "http://nowhere", "", nowhere, None, 0)
    using = settings(home=tmp_path, **({"redis_url": nowhere} if external else {}))
    row = (await by_name(redis_rows(using, stack)))["redis"]
    assert (row.state, remedy in row.remedy) == ("✗", True)


async def test_a_wrong_setting_is_a_row_too(tmp_path: Path) -> None:
    done = await deputize("doctor", "--json", DEPUTIZE_PORT="many")
    assert done.code == 3
    assert states(done) == {"settings": "broken"}


def keys(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Finding:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    (found,) = key_rows()
    return found


def test_a_key_in_the_environment_is_named_and_one_in_a_private_file_is_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = keys(monkeypatch, ANTHROPIC_API_KEY=KEY)
    assert (found.state, found.remedy) == ("✓", "")  # the front page has it set
    assert "every program started from here inherits; a file named by ANTHROPIC_API_KEY_FILE" in found.detail
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    assert keys(monkeypatch, ANTHROPIC_API_KEY_FILE=str(tmp_path / "key")).state == "✓"
    (tmp_path / "key").chmod(0o644)
    found = keys(monkeypatch)
    assert (found.state, found.remedy) == ("!", f"chmod 600 {tmp_path / 'key'}")


def test_the_keys_of_tables_are_named_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o644)
    given = {"house": {"key": "HOUSE_KEY"}, "cabin": {"key": str(tmp_path / "key")}, "gone": {"key": "/nowhere/key"}}
    monkeypatch.setenv("HOUSE_KEY", KEY)
    opened, exposed = key_rows(models=Settings.load(environ={}, models=given).models)
    assert (opened.state, opened.remedy) == ("!", f"chmod 600 {tmp_path / 'key'}")
    assert "the file of [models.cabin]" in opened.detail
    assert exposed.detail.startswith("HOUSE_KEY in the environment")


def test_nothing_is_to_be_changed_of_a_containers_secret_that_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need_root()
    file = tmp_path / "anthropic_api_key"
    file.write_text(KEY)
    file.chmod(0o644)
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(file))
    assert [row.remedy for row in key_rows(tmp_path)] == [f"chmod 600 {file}"]
    os.chown(file, 1000, 1000)
    assert [(row.state, row.remedy) for row in key_rows(tmp_path)] == [("✓", "")]
    assert [row.remedy for row in key_rows()] == [f"chmod 600 {file}"]


async def test_it_shows_what_an_agent_will_find_before_money_is_spent(tmp_path: Path) -> None:
    assert await Bubblewrap.selftest() is None
    project = tmp_path / "project"
    venv.create(project / ".venv", symlinks=True)
    (project / "package.json").write_text("{}")
    site = next((project / ".venv/lib").glob("python3*")) / "site-packages"
    (site / "pytest.py").write_text("print('pytest 99')\n")
    done = await deputize("doctor", "--workspace", str(project), "--json", DEPUTIZE_HOME=str(tmp_path / "home"))
    assert done.code == 0
    found = {row["name"]: row for row in map(json.loads, done.out.splitlines())}
    for name in ("sandbox", "secrets", "files", "network", "kernel", "bounds", "limits"):
        assert found[name]["state"] == "ok"
    assert found["sandbox"]["detail"] == "works; no network, and only the workspace can be written"
    assert ("by measuring" in found["bounds"]["detail"]) != ("by a control group" in found["bounds"]["detail"])
    assert found["venv"]["detail"].startswith(f"{project}/.venv")
    assert found["pytest"]["detail"] == "pytest 99"
    assert found["python"]["detail"].startswith("Python 3.")
    assert (found["packages"]["state"], found["packages"]["detail"]) == ("warning", "no node_modules")
    assert sorted(path.name for path in project.iterdir()) == [".venv", "package.json"]


async def test_it_shows_the_sandbox_of_an_agent_or_of_a_profile(tmp_path: Path) -> None:
    profiles = {"online": {"allowed_hosts": ["example.org"], "command_seconds": 7}}
    using = Settings.load(environ={}, sandbox={"profiles": profiles}, agents={"surfer": {"sandbox": "online"}})
    for named, chosen in (
        ({"agent": "surfer"}, "online"),
        ({"profile": "online"}, "online"),
        ({}, "none, as in [sandbox]"),
    ):
        settings, row = chosen_sandbox(using, **named)
        assert row == Finding("✓", "profile", f"{chosen}; there are online")
        assert settings.sandbox.command_seconds == (7 if named else 600)
    given: dict[str, Any] = {"DEPUTIZE_SANDBOX_PROFILES": json.dumps(profiles), "DEPUTIZE_HOME": str(tmp_path)}
    for option, name in (("--agent", "surfr"), ("--profile", "onlin")):
        more: dict[str, Any] = {"DEPUTIZE_AGENTS": '{"surfer": {"sandbox": "online"}}', **given}
        done = await deputize("doctor", "--json", "--workspace", str(tmp_path), option, name, **more)
        (row,) = map(json.loads, done.out.splitlines())
        assert (done.code, row["name"], "did you mean" in row["detail"]) == (3, "profile", True)
    for arguments in (("--agent", "a"), ("--workspace", ".", "--agent", "a", "--profile", "b")):
        assert (await deputize("doctor", *arguments)).code == 2


async def test_a_directory_that_does_not_exist_is_a_mistake_of_usage(tmp_path: Path) -> None:
    done = await deputize("doctor", "--workspace", str(tmp_path / "nowhere"))
    assert done.code == 2
    assert "does not exist" in done.err


async def test_what_the_endpoint_of_a_model_is_able_to_do_is_found_by_asking_it(tmp_path: Path) -> None:
    async with FakeModel([Turn([says("Yes.")])], key=KEY) as fake:
        fake.script("Call get_weather for it", [Turn([tool_use("get_weather", city="Paris")])])
        config = tmp_path / "deputize.toml"
        config.write_text(f'[models.house]\nplatform = "{fake.url}"\nkey = "HOUSE_KEY"\nmodel = "m"\n')
        given: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "HOUSE_KEY": KEY}
        done = await deputize("--config", str(config), "doctor", "--model", "house", "--json", **given)
    assert done.code == 0, done.out + done.err
    assert rows(done)["model"]["detail"] == f"m at {fake.url}/v1/messages"
    assert rows(done)["table"]["remedy"] == 'set lacks = ["cache_control"] in it'
    assert KEY not in done.out + done.err
