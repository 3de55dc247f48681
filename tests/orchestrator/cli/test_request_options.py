"""Every field of a request has an option, a file may hold the whole, and all mistakes are named at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.request_options import FLAGS
from deputize.shared.errors import Invalid
from deputize.shared.request import DelegationRequest, Limits
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService

NOT_YET = {"outputSchema", "verify", "maxVerifyRounds"}
"""The service refuses them."""
EVERY = {
    "--context": "c",
    "--expect": "e",
    "--tools": "read_file, grep*",
    "--approval": "readOnly",
    "--max-turns": "3",
    "--max-tool-calls": "0",
    "--timeout": "9.5",
    "--max-tokens": "1000",
    "--max-cost": "0.5",
    "--model": "scripted",
    "--tool-call-style": "xml",
    "--label": "a:b:c",
    "--priority": "9",
    "--retry": "2:timeout, error",
    "--session": "s",
    "--message-id": "m",
    "--parent": "dlg_p",
    "--idempotency-key": "k",
    "--continues": "dlg_c",
    "--retry-of": "dlg_r",
    "--from-turn": "3",
    "--shared-context-length": "1",
}


def aliases(model: type[Any]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


@pytest.mark.parametrize("name", ["run", "batch"])
def test_every_field_of_a_request_has_an_option(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    fields = {*aliases(DelegationRequest)} - NOT_YET - {"limits"} | {f"limits/{each}" for each in aliases(Limits)}
    assert {*FLAGS} == fields | {"workspace/exclude"}
    offered = {option for param in command.params for option in param.opts}
    assert {FLAGS[field] for field in fields} - {"TASK"} <= offered


async def test_options_make_the_request(url: str, service: FakeService, tmp_path: Path) -> None:
    given = [part for pair in EVERY.items() for part in pair]
    done = await deputize("run", "t", *given, "--workspace", ".", "--detach", cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    ((_, run),) = service.runs.items()
    assert run.request.model_dump(by_alias=True, exclude_defaults=True) == {
        "task": "t",
        "context": "c",
        "sharedContextLength": 1,
        "expectedOutcome": "e",
        "tools": ["read_file", "grep*"],
        "approvalMode": "readOnly",
        "limits": {"maxTurns": 3, "maxToolCalls": 0, "timeoutSeconds": 9.5, "maxTokens": 1000, "maxCostUsd": 0.5},
        "model": "scripted",
        "toolCallStyle": "xml",
        "labels": {"a": "b:c"},
        "priority": 9,
        "retry": {"attempts": 2, "on": ["timeout", "error"]},
        "sessionId": "s",
        "messageId": "m",
        "parentId": "dlg_p",
        "idempotencyKey": "k",
        "continues": "dlg_c",
        "retryOf": "dlg_r",
        "fromTurn": 3,
        "workspace": {"kind": "directory", "path": str(tmp_path)},
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
