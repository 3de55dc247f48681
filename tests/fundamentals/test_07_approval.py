"""7. Approval: the policy allows, asks or denies every call; the mode decides what becomes of a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize import ApprovalMode, Orchestrator
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say, script

READ = call("read_file", path="notes.txt")
WRITE = call("write_file", path="made.txt", content="x\n")
COMMAND = call("bash", command="wc -l < notes.txt")
FETCH = call("web_fetch", url="http://example.org/")


async def attempt(orchestrator: Orchestrator, tmp_path: Path, mode: str, *calls: dict[str, Any]) -> dict[str, Any]:
    """What comes of these calls on a directory with one file."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.txt").write_text("one\n")
    model = script(tmp_path, [*calls], [say("Done.")])
    result = await orchestrator.delegate(
        "Try.", model=model, approval_mode=ApprovalMode(mode), workspace=tmp_path / "project"
    )
    return visible(result)


async def test_sandboxed_is_the_default_and_lets_a_run_work_inside_its_workspace(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    assert await attempt(orchestrator, tmp_path, "sandboxed", READ, WRITE, COMMAND) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "filesModified": ["made.txt"],
        "fileChanges": [{"path": "made.txt", "change": "created", "addedLines": 1}],
        "toolCallCount": 3,
        "turnCount": 2,
    }


async def test_sandboxed_denies_what_leaves_the_workspace_and_names_what_would_allow_it(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    assert await attempt(orchestrator, tmp_path, "sandboxed", FETCH) == {
        "status": "succeeded",
        "success": True,
        "mark": "unproven",
        "onlyDenied": True,
        "terminationReason": "completed",
        "summary": "Done.",
        "errors": [
            (
                "web_fetch: denied: web_fetch connects to example.org. This needs a person's approval, and "
                "interactive approval is off here; the operator can add the host to "
                "DEPUTIZE_TOOLS_ALLOWED_HOSTS, and a delegation with approvalMode auto may do it. Go on "
                "without, and say so."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_read_only_lets_a_run_look_and_change_nothing(orchestrator: Orchestrator, tmp_path: Path) -> None:
    assert await attempt(orchestrator, tmp_path, "readOnly", READ, WRITE) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "errors": [
            (
                "write_file: denied: this delegation is read-only (approvalMode readOnly); describe the needed "
                "changes in your answer."
            ),
        ],
        "toolCallCount": 2,
        "turnCount": 2,
    }


async def test_ask_denies_every_change_while_no_answer_is_possible(orchestrator: Orchestrator, tmp_path: Path) -> None:
    assert await attempt(orchestrator, tmp_path, "ask", READ, WRITE) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "errors": [
            (
                "write_file: denied: write_file changes something (edit). This needs a person's approval, and "
                "interactive approval is off here; a delegation with approvalMode sandboxed or auto "
                "may do it."
            ),
        ],
        "toolCallCount": 2,
        "turnCount": 2,
    }


@pytest.mark.requirement("S001-034", "S002-005", "S002-068", "S002-070", "S002-074")
@pytest.mark.parametrize("mode", ["auto", "sandboxed", "ask", "readOnly"])
async def test_no_mode_lets_a_forbidden_command_run(orchestrator: Orchestrator, tmp_path: Path, mode: str) -> None:
    forbidden = call("bash", command="touch made.txt; timeout 5 sudo id")
    assert await attempt(orchestrator, tmp_path, mode, forbidden) == {
        "status": "succeeded",
        "success": True,
        "mark": "unproven",
        "onlyDenied": True,
        "terminationReason": "completed",
        "summary": "Done.",
        "errors": [
            (
                "bash: denied: the command 'sudo id' is forbidden, because sudo gets the rights of another user; it "
                "was blocked, and nothing ran. Do the task without it, or report in your answer what a person has "
                "to run."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


@pytest.mark.requirement("S002-064")
@pytest.mark.parametrize("mode", ["ask", "readOnly"])
async def test_a_command_line_that_only_reads_needs_no_approval(
    orchestrator: Orchestrator, tmp_path: Path, mode: str
) -> None:
    lines = call("bash", command="cat notes.txt | wc -l")
    assert await attempt(orchestrator, tmp_path, mode, lines) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_even_auto_does_not_reach_the_machine_it_runs_on(orchestrator: Orchestrator, tmp_path: Path) -> None:
    local = call("web_fetch", url="http://127.0.0.1/")
    assert await attempt(orchestrator, tmp_path, "auto", local) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "errors": [
            (
                "fetch http://127.0.0.1/: http://127.0.0.1/ cannot be fetched: 127.0.0.1 is not an allowed target: it "
                "is a loopback address. Only public pages can be fetched, and private hosts that the operator "
                "has listed in private_hosts."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_a_command_has_no_network_in_any_mode(orchestrator: Orchestrator, tmp_path: Path) -> None:
    devices = call("bash", command="ls /sys/class/net || tail -n +3 /proc/net/dev | cut -d: -f1")
    model = script(tmp_path, [devices], [say("{{result}}")])
    assert visible(await orchestrator.delegate("Look for a network.", model=model, approval_mode="auto")) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "lo\n[stderr]\nls: cannot access '/sys/class/net': No such file or directory",
        "toolCallCount": 1,
        "turnCount": 2,
    }
