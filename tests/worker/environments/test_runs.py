"""Runs with a prepared environment: what their commands and checks see of it, and what they cannot do to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import ProgressMade
from deputize.shared.request import DirectoryWorkspace
from deputize.worker.web.dial import trust_store
from tests.network.internet import response
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.nesting import carrying_out
from tests.worker.web.certificates import certificate_of
from tests.worker.web.edge import TOKEN, plain, serving_tls
from tests.worker.web.servers import saying, serving

SETUP = """
cat lock >counted
echo x >>/opt/home/runs
mkdir -p .venv/bin tool/bin
printf '#!/bin/sh\\necho from the environment\\n' >.venv/bin/greet
touch .venv/pyvenv.cfg
chmod 755 .venv/bin/greet
"""


@pytest.fixture
def project(tmp_path: Path) -> DirectoryWorkspace:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "lock").write_text("one")
    (folder / "code.txt").write_text("code")
    return DirectoryWorkspace(kind="directory", path=str(folder))


def tables(project: DirectoryWorkspace, setup: str = SETUP, **more: Any) -> dict[str, Any]:
    return {"shop": {"match": [project.path], "setup": setup, "inputs": ["lock"], **more}}


def bash(line: str) -> list[dict[str, Any]]:
    return [call("bash", command=line)]


async def printed(bench: Bench, result: Any) -> list[str]:
    return [step.result.strip() for step in await bench.steps(result)]


def prepared(bench: Bench) -> list[Path]:
    return [path.parent for path in bench.settings.prepared.glob("*/facts.json")]


async def test_commands_find_what_was_prepared_and_it_is_no_change_of_theirs(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    line = "greet; echo mine >.venv/mine; cat .venv/mine; rm .venv/bin/greet; ls .venv/bin; cat ~/runs; ls"
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project)) as bench:
        for _ in range(2):
            model = script(tmp_path, bash(line), bash("cat .venv/mine"), [say("ok")])
            result = await bench.run(model=model, workspace=project)
            assert result.success, result
            first, second = await printed(bench, result)
            assert first.split() == ["from", "the", "environment", "mine", "x", "code.txt", "lock", "tool"]
            assert second == "mine"
            assert (result.files_modified, result.ignored_files) == ([], [])
        assert len(prepared(bench)) == 1


async def test_checks_see_what_was_prepared_and_nothing_that_the_run_has_made_of_it(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    poison = "printf '#!/bin/sh\\nexit 0\\n' >.venv/bin/judge; judge && echo poisoned; echo fixed >code.txt"
    setup = f"{SETUP}\nprintf '#!/bin/sh\\ngrep -q \"$1\" code.txt\\n' >.venv/bin/judge; chmod 755 .venv/bin/judge"
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project, setup)) as bench:
        for wanted, candidate in (("fixed", "green"), ("other", "red")):
            planted = call("write_file", path=".venv/bin/judge", content="#!/bin/sh\nexit 0\n")
            model = script(tmp_path, [planted], bash(poison), [say("done")])
            checks = [{"kind": "command", "run": f"judge {wanted}"}]
            result = await bench.run(model=model, workspace=project, verify=checks, max_verify_rounds=0)
            assert "poisoned" in (await printed(bench, result))[1]
            (check,) = result.verification.checks
            assert (check.base, check.candidate) == ("red", candidate)


async def test_a_set_up_sees_the_inputs_alone_and_is_run_again_when_one_changes(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    setup = "mkdir made; ls >made/seen; cat lock >>made/seen; echo changed >lock; mkdir made/code"
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project, setup)) as bench:
        for version, count in (("one", 1), ("one", 1), ("two", 2)):
            Path(project.path, "lock").write_text(version)
            Path(project.path, "code.txt").write_text(f"of no importance {count}")
            model = script(tmp_path, bash("cat made/seen lock"), [say("ok")])
            result = await bench.run(model=model, workspace=project)
            assert (await printed(bench, result))[0].split() == ["lock", "made", f"{version}{version}"]
            assert len(prepared(bench)) == count


async def test_a_request_names_an_environment_that_fits_no_pattern(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    other = {"other": {"setup": "mkdir other; echo other >other/name"}}
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project) | other) as bench:
        model = script(tmp_path, bash("cat other/name; ls -d .venv"), [say("ok")])
        result = await bench.run(model=model, workspace=project, environment="other")
        assert (await printed(bench, result))[0].startswith("other")
        assert [path.name.rpartition("-")[0] for path in prepared(bench)] == ["other"]


async def test_a_set_up_that_fails_ends_the_run_with_the_end_of_its_log(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    setup = "echo before; false; echo after"
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project, setup)) as bench:
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
        assert (result.termination_reason, result.turn_count) == ("environment_failed", 0)
        assert result.summary.endswith("'shop' ended with exit code 1.\nbefore")
        assert prepared(bench) == []


PRINTED = {
    "pip": "after connection broken by 'NewConnectionError: [Errno -2] Name or service not known': /simple/idna/",
    "npm": "npm error network request to https://npm.example.org/a failed, reason: getaddrinfo ENOTFOUND npm",
    "apt": "Err:1 http://deb.example.org/debian bookworm InRelease\n  Temporary failure resolving 'deb.example.org'",
    "curl": "curl: (6) Could not resolve host: example.org",
    "curl with an address": "curl: (7) Failed to connect to 192.0.2.1 port 443 after 0 ms: Couldn't connect to server",
    "go": "dial tcp: lookup proxy.example.org on 192.0.2.1:53: no such host",
    "": "npm error code ERESOLVE\nnpm error ERESOLVE could not resolve",
}
"""What programs print that have no network; the last one has another trouble."""


async def test_a_set_up_that_needs_a_network_and_has_none_is_told_the_setting(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    for number, (program, text) in enumerate(PRINTED.items()):
        setup = f"cat <<'END'\n{text}\nEND\nexit 1"
        async with open_bench(redis_url, tmp_path / f"h{number}", environments=tables(project, setup)) as bench:
            result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
        hint = "It has no network: name the hosts that it needs in environments.shop.setup_hosts."
        assert result.summary.endswith(hint) == bool(program), program


async def test_a_set_up_that_does_not_end_is_stopped_and_named(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    table = tables(project, "mkdir half; sleep 98765", setup_seconds=0.5)
    async with open_bench(redis_url, tmp_path / "h", environments=table) as bench:
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
        assert "did not end within 0.5 s (environments.shop.setup_seconds)" in result.summary
        assert [path for path in bench.settings.prepared.iterdir() if path.is_dir()] == []


async def test_a_secret_is_the_set_ups_alone_and_no_log_has_it(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cr3t-of-the-index\n")
    token.chmod(0o600)
    setup = 'echo "the token is $TOKEN"; test ${#TOKEN} = 19; mkdir made; echo ok >made/ok'
    table = tables(project, setup, secrets={"TOKEN": str(token)})
    async with open_bench(redis_url, tmp_path / "h", environments=table) as bench:
        line = "cat made/ok; echo \"[$TOKEN]\"; cat /proc/self/environ | tr '\\0' '\\n' | grep -c TOKEN"
        result = await bench.run(model=script(tmp_path, bash(line), [say("ok")]), workspace=project)
        assert (await printed(bench, result))[0].split()[:3] == ["ok", "[]", "0"]
        (log,) = bench.settings.prepared.glob("*.log")
        assert log.read_text() == "the token is ***\n"


async def test_a_secret_that_the_set_up_leaves_in_a_file_ends_the_run(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cr3t-of-the-index")
    token.chmod(0o600)
    table = tables(project, "echo //index/:_auth=$TOKEN >~/.npmrc", secrets={"TOKEN": str(token)})
    async with open_bench(redis_url, tmp_path / "h", environments=table) as bench:
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
    assert "left a secret in home/.npmrc" in result.summary
    assert result.termination_reason == "environment_failed"


async def test_links_that_a_set_up_leaves_lead_nowhere_outside(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("the key")
    setup = (
        f"ln -s {private} node_modules; mkdir -p .venv; ln -s {private}/key .venv/pyvenv.cfg; ln -s {private} .venv/bin"
    )
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project, setup)) as bench:
        line = "cat node_modules/key .venv/pyvenv.cfg .venv/bin/key; echo seen"
        result = await bench.run(model=script(tmp_path, bash(line), [say("ok")]), workspace=project)
        (seen,) = await printed(bench, result)
        assert "the key" not in seen
        assert "seen" in seen


async def test_the_maintenance_is_run_before_the_first_turn_and_before_each_check(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    table = tables(project, maintenance="test ! -e tool/fresh; echo fresh >tool/fresh")
    async with open_bench(redis_url, tmp_path / "h", environments=table) as bench:
        checks = [{"kind": "command", "run": "grep fresh tool/fresh && grep -q new code.txt"}]
        model = script(tmp_path, bash("cat tool/fresh; echo new >code.txt"), [say("ok")])
        result = await bench.run(model=model, workspace=project, verify=checks)
        assert (await printed(bench, result))[0] == "fresh"
        assert [(check.base, check.candidate) for check in result.verification.checks] == [("red", "green")]


async def test_a_file_of_the_set_up_is_copied_by_the_maintenance_and_is_no_change(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    Path(project.path, ".gitignore").write_text("_version.py\n")
    own = tables(project, "echo 1.2 >~/_version.py; echo 1.2 >_version.py", maintenance="cp -n ~/_version.py .")
    check = {"kind": "command", "run": "grep 1.2 _version.py && ! grep broken code.txt"}
    model = script(tmp_path, bash("cat _version.py; echo right >code.txt"), [say("done")])
    async with open_bench(redis_url, tmp_path / "h", environments=own) as bench:
        Path(project.path, "code.txt").write_text("broken")
        result = await bench.run(model=model, workspace=project, verify=[check])
        assert await printed(bench, result) == ["1.2"]
        assert result.files_modified == ["code.txt"]
        assert [(check.base, check.candidate) for check in result.verification.checks] == [("red", "green")]


async def test_a_maintenance_that_fails_ends_the_run(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    table = tables(project, maintenance="echo stale; exit 3")
    async with open_bench(redis_url, tmp_path / "h", environments=table) as bench:
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=project)
    assert (result.termination_reason, result.turn_count) == ("environment_failed", 0)
    assert "ended with exit code 3\nstale" in result.summary


async def test_a_continuation_has_the_environment_of_the_files_that_it_goes_on_with(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    """A set-up of what an agent has changed would run the agent's code with the network and the secrets of set-ups."""
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project)) as bench:
        model = script(tmp_path, bash("echo hostile >lock"), [say("ok")], bash("greet"), [say("ok")])
        first = await bench.run(model=model, workspace=project)
        second = await bench.run(model=model, workspace=project, continues=first.delegation_id)
        assert (await printed(bench, second))[-1] == "from the environment"
        assert len(prepared(bench)) == 1


async def test_a_set_up_reaches_its_hosts_alone_and_commands_reach_none(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    async with serving(saying(response("from the index", "text/plain"))) as at:
        setup = f"mkdir made; curl -sS --noproxy '' http://{at}/ >made/got; curl -sS https://other.test/ || true"
        own: dict[str, Any] = {"environments": tables(project, setup, setup_hosts=["localhost"])}
        async with open_bench(redis_url, tmp_path / "h", tools={"private_hosts": [at]}, **own) as bench:
            line = f"cat made/got; curl -sS --noproxy '' http://{at}/"
            result = await bench.run(model=script(tmp_path, bash(line), [say("ok")]), workspace=project)
            (seen,) = await printed(bench, result)
            (log,) = bench.settings.prepared.glob("*.log")
            assert "other.test is not in environments.shop.setup_hosts" in log.read_text()
    assert seen.startswith("from the index")
    assert seen.count("from the index") == 1


async def test_a_use_of_a_credential_by_the_set_up_is_an_event_of_the_run(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pem := certificate_of("localhost", tmp_path)))
    trust_store.cache_clear()
    token, heads = tmp_path / "token", list[str]()
    token.write_text(TOKEN)
    token.chmod(0o600)
    try:
        async with serving_tls(plain, heads, pem) as port:
            setup = f"mkdir made; curl -sS --noproxy '' https://localhost:{port}/a >made/got"
            own: dict[str, Any] = {"environments": tables(project, setup, setup_hosts=["localhost"])}
            own["credentials"] = {"index": {"host": f"localhost:{port}", "token_file": token}}
            own["tools"] = {"private_hosts": [f"localhost:{port}"]}
            async with open_bench(redis_url, tmp_path / "h", **own) as bench:
                result = await bench.run(model=script(tmp_path, bash("cat made/got"), [say("ok")]), workspace=project)
                assert await printed(bench, result) == ["reached"]
                uses = [each.message for each in await bench.seen(result, ProgressMade)]
    finally:
        trust_store.cache_clear()
    assert f"credentials.index: GET localhost:{port}/a 200" in uses
    assert [TOKEN in head for head in heads] == [True]


async def test_all_attempts_of_a_task_have_what_was_prepared_once(
    redis_url: str, tmp_path: Path, project: DirectoryWorkspace
) -> None:
    models = [
        script(tmp_path, bash(f"greet >code.txt; echo {word} >>code.txt"), [say(word)]) for word in ("bad", "good")
    ]
    checks = [{"kind": "command", "run": "greet && grep good code.txt"}]
    asked: dict[str, Any] = {"count": 2, "models": models}
    async with open_bench(redis_url, tmp_path / "h", environments=tables(project)) as bench, carrying_out(bench):
        result = await bench.run(workspace=project, verify=checks, attempts=asked, max_verify_rounds=0)
        assert (result.success, result.summary) == (True, "good"), result
        assert "+from the environment" in await bench.store.patch(result.delegation_id)
        assert len(prepared(bench)) == 1
