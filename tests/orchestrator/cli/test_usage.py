"""The command line itself: help, wrong use, and the one table of exit codes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import COMMANDS, cli
from deputize.orchestrator.cli.errors import Exit, exit_code_of_error, exit_code_of_result, exit_code_of_results
from deputize.shared import errors
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Verification


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_name_in_the_table_is_a_command_of_that_name(name: str) -> None:
    assert command(name).name == name
    assert command(name).help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_description(name: str) -> None:
    silent = [each.name for each in command(name).params if isinstance(each, click.Option) and not each.help]
    assert silent == []


@pytest.mark.parametrize(
    ("given", "same"), [(["help"], ["--help"]), (["help", "run"], ["run", "--help"]), (["help", "help"], ["--help"])]
)
def test_help_is_a_command_too(given: list[str], same: list[str]) -> None:
    shown, wanted = (CliRunner().invoke(cli, each, prog_name="deputize") for each in (given, same))
    assert shown.exit_code == 0
    assert shown.output == wanted.output


def test_help_loads_only_what_it_needs() -> None:
    script = (
        "import json, sys\n"
        "from deputize.orchestrator.cli import main\n"
        "sys.argv = ['deputize', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pydantic', 'rich', 'httpx2', 'celery', 'anthropic', 'redis', 'fastapi', 'asyncio', 'worker'}\n"
        "print(json.dumps(sorted(heavy & {name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_no_module_of_the_command_line_loads_the_worker_or_the_models_sdk() -> None:
    modules = sorted({f"deputize.orchestrator.cli.{target.partition(':')[0]}" for target, _ in COMMANDS.values()})
    script = (
        f"import importlib, json, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "heavy = {'celery', 'anthropic', 'fastapi', 'worker', 'rich', 'httpx2', 'pydantic'}\n"
        "print(json.dumps(sorted(heavy & {name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
    assert all(importlib.import_module(name) for name in modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", " "],
        ["run", "x", "--max-turns", "-1"],
        ["run", "x", "--max-turns", "0"],
        ["run", "x", "--timeout", "0"],
        ["run", "x", "--max-cost", "-2"],
        ["run", "x", "--approval", "yolo"],
        ["run", "x", "--context", "@not-there"],
        ["run", "x", "--no-such-option"],
        ["no-such-command"],
        ["pull"],
        ["list", "--limit", "0"],
        ["list", "--status", "happy"],
        ["cancel"],
        ["cancel", "dlg_x", "--all"],
        ["batch", "not-there.jsonl"],
    ],
    ids=" ".join,
)
def test_what_is_used_wrongly_ends_with_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, arguments, env={"DEPUTIZE_URL": "http://127.0.0.1:1"})
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize("name", ["continue", "send"])
def test_every_argument_that_is_missing_is_named(name: str) -> None:
    _, *missing = CliRunner().invoke(cli, [name]).stderr.splitlines()
    assert [line.rpartition(": ")[::2] for line in missing] == [
        ("  ID", "missing argument"),
        ("  TEXT|@FILE|-", "missing argument"),
    ]


def result(reason: TerminationReason, **fields: Any) -> ToolAgentResult:
    status = {TerminationReason.COMPLETED: Status.SUCCEEDED, TerminationReason.CANCELLED: Status.CANCELLED}
    status[TerminationReason.WRAPPED_UP] = Status.CANCELLED
    return ToolAgentResult(
        delegation_id="d", termination_reason=reason, **{"status": status.get(reason, Status.FAILED), **fields}
    )


def test_every_way_to_end_has_its_exit_code() -> None:
    """Contract §5."""
    assert {str(reason): int(exit_code_of_result(result(reason))) for reason in TerminationReason} == {
        "completed": 0,
        "max_turns": 5,
        "max_tool_calls": 5,
        "timeout": 5,
        "budget": 5,
        "cancelled": 4,
        "loop_detected": 1,
        "refused": 1,
        "model_unavailable": 1,
        "worker_lost": 1,
        "wrapped_up": 4,
        "checks_cannot_start": 3,
        "environment_failed": 3,
        "error": 1,
    }


def test_a_refuted_result_is_a_failure_though_it_completed() -> None:
    refuted = result(TerminationReason.COMPLETED, status=Status.FAILED, verification={"verdict": "refuted"})
    assert exit_code_of_result(refuted) is Exit.FAILED


def test_what_is_marked_as_unproven_without_checks_has_that_code_too() -> None:
    denied = result(TerminationReason.COMPLETED, denied_call_count=2, only_denied=True)
    assert exit_code_of_result(denied) is Exit.NOT_PROVEN
    assert exit_code_of_result(result(TerminationReason.COMPLETED, denied_call_count=2)) is Exit.SUCCEEDED
    claims = [{"claim": "tests pass", "verdict": "refuted", "why": "they failed", "evidence": None}]
    contradicted = {"verdict": "unverified", "claims": claims}
    assert exit_code_of_result(result(TerminationReason.COMPLETED, verification=contradicted)) is Exit.NOT_PROVEN


@pytest.mark.parametrize(
    ("reason", "require", "verdict", "code"),
    [
        ("completed", "passed", "verified", Exit.SUCCEEDED),
        ("completed", "passed", "passed", Exit.SUCCEEDED),
        ("completed", "verified", "passed", Exit.NOT_PROVEN),
        ("completed", "passed", "improved", Exit.NOT_PROVEN),
        ("completed", "improved", "improved", Exit.SUCCEEDED),
        ("completed", "improved", "inconclusive", Exit.NOT_PROVEN),
        ("completed", "improved", "refuted", Exit.FAILED),
        ("completed", None, "inconclusive", Exit.NOT_PROVEN),
        ("completed", None, "unverified", Exit.SUCCEEDED),
        ("max_turns", "passed", "inconclusive", Exit.LIMIT),
        ("error", "passed", "inconclusive", Exit.FAILED),
    ],
)
def test_what_falls_short_has_a_code_of_its_own(
    reason: TerminationReason, require: str | None, verdict: str, code: Exit
) -> None:
    """A result without ``require`` is one of an earlier version."""
    found = Verification.model_validate({"verdict": verdict, "require": require})
    succeeded = reason == "completed" and found.is_met
    status = Status.SUCCEEDED if succeeded else Status.FAILED
    assert exit_code_of_result(result(TerminationReason(reason), status=status, verification=found)) is code


def test_of_several_the_code_is_what_the_failed_ones_share() -> None:
    done, limit = result(TerminationReason.COMPLETED), result(TerminationReason.BUDGET)
    assert exit_code_of_results([]) is Exit.SUCCEEDED
    assert exit_code_of_results([done, done]) is Exit.SUCCEEDED
    assert exit_code_of_results([done, limit]) is Exit.LIMIT
    assert exit_code_of_results([limit, result(TerminationReason.CANCELLED)]) is Exit.FAILED


def test_every_error_has_its_exit_code() -> None:
    assert {kind.__name__: int(exit_code_of_error(kind("x"))) for kind in (*KINDS, errors.Refused)} == {
        "Refused": 2,
        "Invalid": 2,
        "TooLarge": 2,
        "NotFound": 2,
        "Conflict": 2,
        "KeyReused": 2,
        "Unauthorized": 3,
        "Unavailable": 3,
        "Misconfigured": 3,
    }


KINDS = (
    errors.Invalid,
    errors.TooLarge,
    errors.NotFound,
    errors.Conflict,
    errors.KeyReused,
    errors.Unauthorized,
    errors.Unavailable,
    errors.Misconfigured,
)
