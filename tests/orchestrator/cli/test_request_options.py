"""What is given on the command line: texts, files and options for every field, and all mistakes at once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.request_options import FLAGS
from deputize.orchestrator.sockets import free_port
from deputize.shared.errors import Invalid
from deputize.shared.limits import Limits
from deputize.shared.request import Attempts, DelegationRequest
from deputize.shared.webhooks import Webhook
from tests.orchestrator.command_line import PROGRAM, deputize, environment
from tests.orchestrator.fake_service import FakeService

EVERY = {
    "--context": "@background.txt",
    "--expect": "e",
    "--output-schema": "schema.json",
    "--after": "dlg_01k9zxv3q8h4t7m2n5p6r8s9t0:verified",
    "--tools": "read_file, grep*",
    "--approval": "readOnly",
    "--max-turns": "3",
    "--max-tool-calls": "0",
    "--timeout": "9.5",
    "--max-tokens": "1000",
    "--max-cost": "0.5",
    "--model": "scripted",
    "--tool-call-style": "xml",
    "--effort": "high",
    "--economy": "yes",
    "--deadline": "2026-12-01T06:00:00Z",
    "--verify": "make test",
    "--protect": "tests/**",
    "--require": "improved",
    "--accept": "skip, exit",
    "--attempts": "4",
    "--attempts-stop": "all",
    "--attempts-concurrency": "2",
    "--attempts-models": "scripted",
    "--attempts-efforts": "low, high",
    "--max-verify-rounds": "3",
    "--verify-timeout": "4.5",
    "--verify-early": "no",
    "--environment": "shop",
    "--label": "a:b:c",
    "--priority": "9",
    "--webhook": "https://example.org/done",
    "--webhook-events": "delegation.finished",
    "--webhook-secret": "ci",
    "--on-cap": "wait",
    "--retry": "2:timeout, error",
    "--session": "s",
    "--message-id": "m",
    "--parent": "dlg_p",
    "--idempotency-key": "k",
    "--continues": "dlg_c",
    "--retry-of": "dlg_r",
    "--from-turn": "3",
    "--merges": "dlg_a, dlg_b",
    "--shared-context-length": "1",
}


def aliases(model: type[Any]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


PULL_REQUEST = [f"pullRequest/{name}" for name in ("title", "body", "draft")]


@pytest.mark.parametrize("name", ["run", "batch"])
def test_every_field_of_a_request_has_an_option(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    fields = {*aliases(DelegationRequest)} - {"limits"} | {f"limits/{each}" for each in aliases(Limits)}
    workspaces = {f"workspace/{each}" for each in ("exclude", "upload", "url", "ref", "depth")}
    deliveries = ("branch", "message", "withProtected", "workflows", "attestation", *PULL_REQUEST)
    webhooks = {f"webhook/{each}" for each in aliases(Webhook)}
    webhooks |= {f"attempts/{each}" for each in aliases(Attempts)}
    assert {*FLAGS} == fields | workspaces | webhooks | {f"deliver/{each}" for each in deliveries}
    offered = {option for param in command.params for option in param.opts}
    assert {FLAGS[field] for field in fields} - {"TASK"} <= offered


async def test_a_repository_is_the_workspace(url: str, service: FakeService, tmp_path: Path) -> None:
    given = ["--git", "https://example.org/x.git", "--ref", "v1", "--depth", "3"]
    done = await deputize("run", "t", *given, "--detach", cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    ((_, run),) = service.runs.items()
    asked = {"kind": "git", "url": "https://example.org/x.git", "ref": "v1", "depth": 3}
    assert run.request.workspace.model_dump() == asked


@pytest.mark.parametrize("more", [["--workspace", "."], ["--no-workspace"], ["--with-ignored"], ["--exclude", "x"]])
async def test_a_repository_excludes_other_files(url: str, tmp_path: Path, more: list[str]) -> None:
    done = await deputize("run", "t", "--git", "https://example.org/x.git", *more, cwd=tmp_path, DEPUTIZE_URL=url)
    assert (done.code, "--git excludes" in done.err) == (2, True)


async def test_checks_come_from_options_and_from_files(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("one.json").write_text('{"kind": "file", "path": "a.txt"}')
    tmp_path.joinpath("more.json").write_text('["make lint", {"kind": "command", "run": "x", "timeoutSeconds": 9}]')
    given = ["--verify", "make test", "--verify-file", "one.json", "--verify-file", "more.json"]
    done = await deputize("run", "t", *given, "--detach", cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0, done.err
    ((_, run),) = service.runs.items()
    assert [check.model_dump(exclude_defaults=True) for check in run.request.verify] == [
        {"kind": "command", "run": "make test"},
        {"kind": "file", "path": "a.txt"},
        {"kind": "command", "run": "make lint"},
        {"kind": "command", "run": "x", "timeout_seconds": 9},
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", "has no checks"),
        ("[3]", "has no checks"),
        ("[", "is not valid JSON"),
        ('{"kind": "command", "runs": "x"}', "runs"),
        (None, "cannot be read"),
    ],
)
async def test_a_file_without_checks_is_refused(url: str, tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        tmp_path.joinpath("checks.json").write_text(text)
    done = await deputize("run", "t", "--verify-file", "checks.json", cwd=tmp_path, DEPUTIZE_URL=url)
    assert (done.code, why in done.err) == (2, True), done.err


@pytest.mark.parametrize("lone", [["--ref", "v1"], ["--depth", "3"]])
async def test_what_is_about_a_repository_needs_one(url: str, tmp_path: Path, lone: list[str]) -> None:
    done = await deputize("run", "t", *lone, cwd=tmp_path, DEPUTIZE_URL=url)
    assert (done.code, "--git URL, which is missing" in done.err) == (2, True)


async def test_options_make_the_request(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("background.txt").write_text("zażółć")
    tmp_path.joinpath("schema.json").write_text('{"type": "array"}')
    tmp_path.joinpath("here").mkdir()
    given = [part for pair in EVERY.items() for part in pair]
    given += ["--workspace", "here", "--with-ignored", "--exclude", "*.csv", "--exclude", "/data"]
    done = await deputize("run", "t", *given, "--detach", cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    ((_, run),) = service.runs.items()
    assert run.request.model_dump(by_alias=True, exclude_defaults=True) == {
        "task": "t",
        "context": "zażółć",
        "sharedContextLength": 1,
        "expectedOutcome": "e",
        "webhook": {"url": "https://example.org/done", "events": ["delegation.finished"], "secretName": "ci"},
        "outputSchema": {"type": "array"},
        "tools": ["read_file", "grep*"],
        "approvalMode": "readOnly",
        "limits": {"maxTurns": 3, "maxToolCalls": 0, "timeoutSeconds": 9.5, "maxTokens": 1000, "maxCostUsd": 0.5},
        "model": "scripted",
        "effort": "high",
        "economy": True,
        "deadline": "2026-12-01T06:00:00.000Z",
        "toolCallStyle": "xml",
        "after": [{"id": "dlg_01k9zxv3q8h4t7m2n5p6r8s9t0", "require": "verified"}],
        "verify": [{"kind": "command", "run": "make test"}],
        "protect": ["tests/**"],
        "require": "improved",
        "accept": ["skip", "exit"],
        "attempts": {
            "count": 4,
            "stop": "all",
            "concurrency": 2,
            "models": ["scripted"],
            "efforts": ["low", "high"],
        },
        "maxVerifyRounds": 3,
        "verifyTimeoutSeconds": 4.5,
        "verifyEarly": False,
        "environment": "shop",
        "labels": {"a": "b:c"},
        "priority": 9,
        "onCap": "wait",
        "retry": {"attempts": 2, "on": ["timeout", "error"]},
        "sessionId": "s",
        "messageId": "m",
        "parentId": "dlg_p",
        "idempotencyKey": "k",
        "continues": "dlg_c",
        "retryOf": "dlg_r",
        "fromTurn": 3,
        "merges": ["dlg_a", "dlg_b"],
        "workspace": {
            "kind": "directory",
            "path": str(tmp_path / "here"),
            "ignored": True,
            "exclude": ["*.csv", "/data"],
        },
    }


@pytest.mark.parametrize("piped", [True, False], ids=["pipe", "file"])
async def test_a_file_holds_the_whole_request_and_options_go_first(
    url: str, service: FakeService, tmp_path: Path, piped: bool
) -> None:
    whole = {"task": "t", "limits": {"max_turns": 3, "maxTokens": 5}, "labels": {"a": "1", "b": "2"}, "context": "c"}
    tmp_path.joinpath("r.json").write_text(json.dumps(whole))
    given = ["--max-turns", "4", "--label", "b:3", "--expect", "e", "--detach"]
    file, stdin = ("-", json.dumps(whole)) if piped else ("r.json", None)
    done = await deputize("run", "--request", file, *given, stdin=stdin, cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    ((_, run),) = service.runs.items()
    assert run.request.model_dump(by_alias=True, exclude_defaults=True) == {
        "task": "t",
        "context": "c",
        "expectedOutcome": "e",
        "limits": {"maxTurns": 4, "maxTokens": 5},
        "labels": {"a": "1", "b": "3"},
    }


@pytest.mark.parametrize("workspace", ["here", {"kind": "directory", "path": "here"}], ids=["string", "object"])
async def test_a_file_may_name_a_directory_from_here_and_write_lists_as_text(
    url: str, service: FakeService, tmp_path: Path, workspace: object
) -> None:
    whole = {"task": "t", "workspace": workspace, "limits": '{"maxTokens": 5}', "tools": '["bash"]', "context": None}
    tmp_path.joinpath("r.json").write_text(json.dumps(whole))
    done = await deputize("run", "--request", "r.json", "--max-turns", "4", "--detach", cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    ((_, run),) = service.runs.items()
    assert run.request.model_dump(by_alias=True, exclude_defaults=True) == {
        "task": "t",
        "limits": {"maxTurns": 4, "maxTokens": 5},
        "tools": ["bash"],
        "workspace": {"kind": "directory", "path": str(tmp_path / "here")},
    }


async def test_every_wrong_value_is_named_at_once(url: str, service: FakeService) -> None:
    given = [
        "--timeout",
        "nan",
        "--tools",
        " ,",
        "--label",
        "x",
        "--max-turns",
        "many",
        "--context",
        "@none",
        "--retry",
        "2:",
    ]
    done = await deputize("run", "t", *given, DEPUTIZE_URL=url)
    assert (done.code, done.out) == (2, "")
    first, *rest = done.err.splitlines()
    assert first == "deputize: 6 mistakes, so nothing was handed over"
    assert {line.split(":")[0].strip() for line in rest} == {*given[::2]}
    assert service.runs == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"task": 1', "[" * 100_000], ids=len)
async def test_a_file_that_holds_no_request_is_refused(url: str, tmp_path: Path, text: str) -> None:
    tmp_path.joinpath("r.json").write_text(text)
    done = await deputize("run", "--request", "r.json", cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 2
    assert "--request" in done.err
    assert "r.json" in done.err
    assert "internal error" not in done.err


@pytest.mark.parametrize(
    "arguments",
    [["run", "--request", "r.json"], ["prove", "r.json", "--repository", ".", "--key", "r.json"]],
    ids=["run", "prove"],
)
async def test_a_mistake_of_a_whole_file_is_named_without_an_empty_place(
    url: str, service: FakeService, tmp_path: Path, arguments: list[str]
) -> None:
    text = '{"task": "t", "\\ud83d": 1}' if "run" in arguments else "{"  # a key that cannot be named, and no JSON
    tmp_path.joinpath("r.json").write_text(text)
    done = await deputize(*arguments, cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 2
    assert done.err.startswith("deputize: r.json: ")
    assert ": :" not in done.err


@pytest.mark.parametrize("command", [["run", "--request"], ["batch"], ["eval"]], ids=" ".join)
async def test_half_of_a_character_in_a_file_is_a_mistake_of_its_field(
    url: str, service: FakeService, tmp_path: Path, command: list[str]
) -> None:
    name = "r.json" if "run" in command else "r.jsonl"
    tmp_path.joinpath(name).write_text('{"task": "x \\ud83d"}')
    done = await deputize(*command, name, cwd=tmp_path, DEPUTIZE_URL=url)
    assert (done.code, done.out, service.runs) == (2, "", {})
    assert done.err.startswith(f"deputize: {name}")
    assert ": /task: there is half of a character, a lone surrogate, which cannot be sent; write the" in done.err


async def test_mistakes_are_named_by_the_option_or_the_file_that_made_them(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tmp_path.joinpath("r.json").write_text('{"lables": {}, "limits": {"maxTurns": 0}, "priority": 10}')
    given = ["--session", "x" * 2000, "--priority", "3", "--no-workspace"]
    done = await deputize("run", " ", "--request", "r.json", *given, cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 2
    said = {line.split(": ")[0].strip(): line for line in done.err.splitlines()[1:]}
    assert {*said} == {"TASK", "--session", "r.json"}
    assert "r.json: /limits/maxTurns: " in done.err
    assert "r.json: /lables: unknown key 'lables'; did you mean 'labels'?" in done.err
    assert "priority" not in done.err
    service.away = Invalid("no", [{"pointer": "/tools/1", "detail": "no"}, {"pointer": "/model", "detail": "never"}])
    tmp_path.joinpath("r.json").write_text('{"model": "m"}')
    done = await deputize(
        "run", "x", "--request", "r.json", "--tools", "a,b", "--no-workspace", cwd=tmp_path, DEPUTIZE_URL=url
    )
    assert done.err.splitlines()[1:] == ["  --tools, item 2: no", "  r.json: /model: never"]


USUAL = {
    "ps": "status`",
    "down": "stop`",
    "config": "settings`",
    "dashboard": "open`",
    "start": "up`",
    "follow": "watch`",
    "diff": "show --patch`",
    "redeliver": "webhooks redeliver`",
}
"""Words of other tools and of subcommands, and where they lead to."""


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [(["-"], "Count it"), ([], "Count it"), (["@task.txt"], None), (["@bom.txt"], "ignored")],
    ids=["dash", "nothing", "file", "mark"],
)
async def test_the_task_comes_from_a_pipe_or_a_file(
    url: str, service: FakeService, tmp_path: Path, arguments: list[str], stdin: str | None
) -> None:
    tmp_path.joinpath("task.txt").write_text("Count it")
    tmp_path.joinpath("bom.txt").write_bytes(b"\xef\xbb\xbfCount it")
    done = await deputize("run", *arguments, "--detach", stdin=stdin, cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    (delegation,) = service.runs.values()
    assert delegation.request.task == "Count it"


async def test_a_text_may_begin_with_the_sign_of_a_file(url: str, service: FakeService) -> None:
    await deputize("run", "@@anna says: count", "--expect", "@@", "--detach", DEPUTIZE_URL=url)
    (delegation,) = service.runs.values()
    assert (delegation.request.task, delegation.request.expected_outcome) == ("@anna says: count", "@")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "Missing argument '[TASK|@FILE|-]'"),
        (["run", "-"], "task is blank"),
        (["run", "-", "--context", "-"], "only once"),
        (["run", "@none.txt"], "none.txt cannot be read: No such file"),
        (["run", "@."], "cannot be read: Is a directory"),
        (["run", "@latin.txt"], "not UTF-8"),
        (["run", "@/dev/zero"], "larger than a request may be"),
        (["run", "x", "--timeout", "nan"], "--timeout"),
        (["run", "x", "--max-cost", "inf"], "--max-cost"),
        (["run", "x", "--wait", "nan"], "--wait"),
        (["watch", "--wait", "inf"], "--wait"),
        (["prune", "--older-than", "nan"], "--older-than"),
        (["run", "x", "--tools", " ,"], "--tools"),
        (["run", "x", "--workspace", ""], "--workspace"),
        (["run", "x", "--wait", "1", "--detach"], "--wait"),
        (["list", "--label", "x"], "--label"),
        (["show", "dlg_0", "--events", "--patch"], "--events and --patch"),
        (["show", "dlg_0", "--patch", "--artifact", "a"], "--patch and --artifact"),
        (["show", "dlg_0", "--patch", "--json"], "--json"),
        (["lst"], "did you mean list?"),
        *(([word], f"No such command '{word}'; `deputize {ours}") for word, ours in USUAL.items()),
        (["stauts"], "did you mean status?"),
        (["run", "x", "--limits", "3"], "'--limits'; its parts are --max-turns, --max-tool-calls, --timeout"),
        (["batch", "t.jsonl", "--limits", "3"], "'--limits'; its parts are --max-turns, --max-tool-calls, --timeout"),
        (["list", "--limits", "3"], "No such option '--limits'; did you mean --limit?"),
        (["run", "x", "--verfy", "true"], "No such option '--verfy'; did you mean --verify or --verify-file?"),
        (["drain", "--xyzzy"], "Error: No such option '--xyzzy'"),
        (["trust", "."], "not used any more; name a deputize.toml with --config"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_what_cannot_be_meant_is_refused_with_its_name(
    url: str, service: FakeService, tmp_path: Path, arguments: list[str], said: str
) -> None:
    tmp_path.joinpath("latin.txt").write_bytes("zażółć".encode("latin2"))
    done = await deputize(*arguments, cwd=tmp_path, DEPUTIZE_URL=url)
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert service.runs == {}


async def test_the_services_refusal_names_the_option(url: str, service: FakeService) -> None:
    service.away = Invalid("it does not exist", [{"pointer": "/workspace/path", "detail": "it does not exist"}])
    done = await deputize("run", "x", "--workspace", "/none", DEPUTIZE_URL=url)
    assert done.code == 2
    assert "deputize: --workspace: it does not exist" in done.err


def run_bytes(*arguments: bytes, **more: str) -> subprocess.CompletedProcess[bytes]:
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment(**more).items()}
    command = [os.fsencode(PROGRAM), *arguments]
    return subprocess.run(command, env=variables, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


@pytest.mark.parametrize(
    "arguments", [b"run x\xff", b"run x --tools \xff", b"show \xff", b"\xff", b"list --label \xff"], ids=repr
)
def test_an_argument_that_is_no_text_is_refused(arguments: bytes) -> None:
    done = run_bytes(*arguments.split(), DEPUTIZE_URL=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert b"is not valid UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["URL", "TOKEN", "MODEL", "HOME", "REDIS_URL", "CONFIG", "WORKSPACE_ROOT"])
@pytest.mark.parametrize("value", ["\udcff", "http://[", "http://x:99999999/", "a\nb"], ids=ascii)
async def test_an_odd_setting_is_one_line(name: str, value: str, tmp_path: Path) -> None:
    variables: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "home"),
        f"DEPUTIZE_{name}": value,
        "DEPUTIZE_MODEL": "scripted",
    }
    if name == "HOME":
        variables["DEPUTIZE_HOME"] = str(tmp_path / "file" / value)
        tmp_path.joinpath("file").touch()
    variables.setdefault("DEPUTIZE_URL", f"http://127.0.0.1:{free_port()}")
    if name in ("HOME", "REDIS_URL"):
        del variables["DEPUTIZE_URL"]
    done = await deputize("run", "x", **variables)
    assert done.code in (2, 3)
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    assert "deputize: " in done.err
