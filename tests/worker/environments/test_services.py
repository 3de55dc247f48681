"""Services beside runs: what commands and checks reach, what each has for itself, and what is left of them."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from deputize.orchestrator.redis_server import find_program
from deputize.shared.errors import Misconfigured
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from deputize.shared.settings import Settings
from deputize.worker.environments.__main__ import prepare
from deputize.worker.task import carry_out
from tests.architecture.sources import ROOT
from tests.fake_model import FakeModel, Turn, text
from tests.runs.bench import Bench, call, open_bench, say, script


@pytest.fixture
def project(tmp_path: Path) -> DirectoryWorkspace:
    folder = tmp_path / "project"
    folder.mkdir()
    return DirectoryWorkspace(kind="directory", path=str(folder))


VALKEY = find_program()
ASK = """
ask() {
    exec 3<>/dev/tcp/127.0.0.1/$PORT && printf '%s\\r\\n' "$*" >&3 && read -t 20 -r answer <&3 && echo "$answer"
}
"""
"""Valkey's protocol in the words of the shell, as its own client is not installed with it."""


def valkey(port: int = 6379, **more: Any) -> dict[str, Any]:
    ping = f"PORT={port}; {ASK} [ \"$(ask PING | tr -d '\\r')\" = +PONG ]"
    command = f"exec {VALKEY} --port {port} --bind 127.0.0.1 --save '' --dir ."
    return {"command": command, "health": ping, "port": port, "variables": {"PORT": str(port)}, **more}


def tables(project: DirectoryWorkspace, *services: str, **more: Any) -> dict[str, Any]:
    shown = {"show": [str(VALKEY.parent)]}
    return {"shop": {"match": [project.path], "setup": "true", "services": services, **shown, **more}}


def bash(line: str) -> list[dict[str, Any]]:
    return [call("bash", command=line)]


async def printed(bench: Bench, result: Any) -> list[str]:
    return [step.result.strip() for step in await bench.steps(result)]


async def test_commands_of_a_run_share_a_service_and_each_run_has_its_own(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    own: dict[str, Any] = {"services": {"cache": valkey()}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        for _ in range(2):
            turns = [bash(f"{ASK} ask GET a; ask SET a 7"), bash(f"{ASK} ask INCR a"), [say("ok")]]
            result = await bench.run(model=script(tmp_path, *turns), workspace=project)
            assert result.success, result
            assert [each.split() for each in await printed(bench, result)] == [["$-1", "+OK"], [":8"]]


def of_page() -> dict[str, Any]:
    """The settings that the page shows."""
    text = (ROOT / "worker/docs/services.md").read_text("utf-8")
    return tomllib.loads(text.partition("<<'END'\n")[2].partition("\nEND\n")[0])


def postgres() -> dict[str, Any]:
    """The table of the page, for the version that is here."""
    programs = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not programs:
        fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        fail("SKIPPED: PostgreSQL's server is not installed")
    folder = max(programs, key=lambda path: int(path.parts[-3])).parent
    table = of_page()["services"]["postgres"]
    return {
        name: v.replace("/usr/lib/postgresql/15/bin", str(folder)) if isinstance(v, str) else v
        for name, v in table.items()
    }


def test_the_settings_of_the_page_are_accepted() -> None:
    assert [*Settings.load(environ={}, **of_page()).services] == ["postgres", "valkey"]


@pytest.mark.costly  # the first start of PostgreSQL in a test makes its data
async def test_checks_have_a_database_without_what_the_run_or_another_check_has_written(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    query = 'psql -qtA "$DATABASE_URL" -c'
    own: dict[str, Any] = {"services": {"postgres": postgres()}, "environments": tables(project, "postgres")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        by_socket = "psql -h /opt/services/postgres -U postgres -qtAc 'TABLE t'"
        line = f"{query} 'CREATE TABLE t AS SELECT 7 AS a' && {query} 'TABLE t'; {by_socket}; echo x >code"
        checks = [{"kind": "command", "run": f"{query} 'CREATE TABLE t (a int)' && test -e code"}]
        model = script(tmp_path, bash(line), [say("ok")])
        result = await bench.run(model=model, workspace=project, verify=checks)
        assert await printed(bench, result) == ["7\n7"], result
        assert [(check.base, check.candidate) for check in result.verification.checks] == [("red", "green")]
        assert left_data(bench) == []


def left_data(bench: Bench) -> list[Path]:
    return [path for path in bench.settings.workspaces.glob("*/services*") if path.parent.name != "environments"]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"command": "echo no such file; exit 3"}, "ended with exit code 3.\nno such file"),
        (
            {"command": "echo begun; sleep 98763", "start_seconds": 1},
            "did not listen on 127.0.0.1:6379 within 1 s (start_seconds).\nbegun",
        ),
        (
            {"command": "echo begun; sleep 98763", "health": "echo not yet; false", "start_seconds": 1, "port": None},
            "was not healthy within 1 s (start_seconds).\nbegun\nnot yet",
        ),
        ({"template": "echo no space; exit 4"}, "'services.cache' ended with exit code 4.\nno space"),
        ({"template": "echo no such host; exit 4"}, "It has no network: a template needs its files on the worker"),
    ],
)
async def test_a_service_that_does_not_start_ends_the_run_with_the_end_of_its_log(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace, table: dict[str, Any], why: str
) -> None:
    own: dict[str, Any] = {"services": {"cache": valkey(**table)}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
        assert (result.termination_reason, result.turn_count) == ("environment_failed", 0)
        assert why in result.summary
        assert left_data(bench) == []


async def test_a_service_that_ends_is_started_again_before_the_next_command_which_states_it(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    own: dict[str, Any] = {"services": {"cache": valkey()}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        turns = [bash(f"{ASK} ask SET a 7; ask SAVE; ask SHUTDOWN; sleep 1"), bash(f"{ASK} ask EXISTS a")]
        result = await bench.run(model=script(tmp_path, *turns, [say("ok")]), workspace=project)
        again = "[the service cache ended with exit code 0, and was started again with the data that it had left: "
        value, stderr, notice = (await printed(bench, result))[1].splitlines()
        assert (value, stderr, notice.startswith(again)) == (":1", "[stderr]", True)


async def test_a_service_that_cannot_be_started_again_is_not_tried_once_more(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    first = "echo x >>tries; test $(wc -l <tries) = 1 || { echo $(wc -l <tries) tries; exit 5; }"
    once = valkey(command=f"{first}; {valkey()['command']}")
    own: dict[str, Any] = {"services": {"cache": once}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        turns = [bash(f"{ASK} ask SHUTDOWN; sleep 1"), bash("echo one"), bash("echo two")]
        result = await bench.run(model=script(tmp_path, *turns, [say("ok")]), workspace=project)
        for seen, word in zip((await printed(bench, result))[1:], ("one", "two"), strict=True):
            assert seen.startswith(word)
            assert "the service cache ended with exit code 5.\n2 tries" in seen


async def test_a_check_that_ends_its_service_is_no_success(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    own: dict[str, Any] = {"services": {"cache": valkey()}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        checks = [{"kind": "command", "run": f"{ASK} test ! -e code || {{ ask SHUTDOWN; sleep 1; }}"}]
        model = script(tmp_path, bash("echo x >code"), [say("ok")])
        result = await bench.run(model=model, workspace=project, verify=checks, max_verify_rounds=0)
        (check,) = result.verification.checks
        assert (check.base, check.candidate) == ("green", "trouble")
        assert result.verification.verdict == "refuted"


def test_a_table_that_cannot_work_is_refused_with_the_reason() -> None:
    shop = {"shop": {"setup": "true", "services": ["cache"]}}
    for services, environments, why in (
        ({}, shop, "shop lists the service 'cache', which has no table; there are none"),
        ({"db": valkey()}, shop, "which has no table; there are db"),
        ({"cache": {"health": "true"}}, shop, "services/cache/command"),
        ({"cache": {"command": "x"}}, shop, "services/cache/health"),
        ({"cache": valkey(80)}, {}, "services/cache/port"),
        ({"cache": valkey(61128)}, {}, "61128 is the port of the proxy of commands"),
        ({"cache": valkey(variables={"PATH": "/x"})}, {}, "'PATH' cannot be set"),
        (
            {"cache": valkey(), "other": valkey()},
            {"shop": {"setup": "true", "services": ["cache", "other"]}},
            "shop lists cache and other, which both have port 6379",
        ),
        ({"cache": valkey()}, {"shop": {"setup": "true", "services": ["cache"] * 2}}, "'cache' is listed twice"),
    ):
        with pytest.raises(Misconfigured) as refused:
            Settings.load(environ={}, services=services, environments=environments)
        assert why in str(refused.value)


async def test_an_attempt_after_a_lost_one_has_new_data(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    own: dict[str, Any] = {"services": {"cache": valkey()}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", **own) as bench:
        model = script(
            tmp_path, bash(f"{ASK} ask SET a 7; touch set; sleep 98766"), bash(f"{ASK} ask GET a"), [say("ok")]
        )
        id = await bench.accept(DelegationRequest(task="do it", model=model, workspace=project))
        folder = bench.settings.workspaces / id
        await bench.interrupt(id, lambda: [*folder.glob("files/set")])
        (folder / "services" / "cache").mkdir(parents=True)  # as a worker leaves it that is killed
        await bench.requeue(id)
        await carry_out(bench.services, id)
        assert "$-1" in (await bench.answers(id))[-1]
        assert left_data(bench) == []


async def test_the_model_knows_what_runs_beside_its_commands(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    own: dict[str, Any] = {"services": {"cache": valkey()}, "environments": tables(project, "cache")}
    async with FakeModel([Turn([text("done")])]) as fake:
        endpoint = {"ANTHROPIC_BASE_URL": SecretStr(fake.url), "ANTHROPIC_API_KEY": SecretStr(fake.key)}
        async with open_bench(redis_url, tmp_path / "h", model_endpoint=endpoint, **own) as bench:
            await bench.run(model="claude-sonnet-5-5", workspace=project)
        (asked,) = fake.journal
    assert "Beside them run cache at 127.0.0.1:6379 (PORT), for this run alone." in str(asked.body["system"])


async def test_what_a_service_writes_counts_to_the_disk_of_its_run(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    filler = "(until test -e now; do sleep 0.05; done; yes >filled) &"
    table = valkey(command=f"{filler} {valkey()['command']}", health=f"{valkey()['health']} && touch now")
    own: dict[str, Any] = {"services": {"cache": table}, "environments": tables(project, "cache")}
    async with open_bench(redis_url, tmp_path / "h", sandbox={"disk_bytes": 4 << 20}, **own) as bench:
        turns = [bash(f"{ASK} while ask PING; do sleep 0.05; done 2>&1 | tail -1")]
        turns += [bash("echo next"), bash("echo after")]  # the first may begin before the end is known
        result = await bench.run(model=script(tmp_path, *turns, [say("ok")]), workspace=project)
        assert "the limit is 4 MiB (sandbox.disk_bytes)" in "\n".join((await printed(bench, result))[1:])


async def test_a_preparation_ahead_makes_the_templates_once(tmp_path: Path, project: DirectoryWorkspace) -> None:
    cache, reported = valkey(template="echo 1 >made"), list[str]()
    own: dict[str, Any] = {"services": {"cache": cache}, "environments": tables(project, "cache")}
    settings = Settings.load(environ={}, home=tmp_path / "h", **own)
    for _ in range(2):
        await prepare(settings, "shop", Path(project.path), reported.append)
    assert [each for each in reported if each.startswith("preparing")] == [
        "preparing the environment services.cache",
        "preparing the environment shop",
    ]
    (made,) = settings.prepared.glob("services.cache-*/workspace/made")
    assert made.read_text() == "1\n"
