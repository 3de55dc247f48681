"""10. MCP: the servers of an ``mcp.json`` give runs further tools, under the same rules as our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deputize import Orchestrator
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import RunStarted
from deputize.shared.settings import Settings
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say, script

HERE = str(Path(__file__).parent)
GREETING = {"command": "python3", "args": ["-SE", f"{HERE}/greeting_server.py"], "show": [HERE]}
"""The entry of a server in mcp.json; ``show`` names a folder that its sandbox shows."""
GREET = call("mcp__greeting__greet", name="Ada")
SIGN = call("mcp__greeting__sign", name="Ada")

Configure = Callable[..., None]


def answer_of(result: ToolAgentResult) -> dict[str, Any]:
    """All of it but ``reaped``: a server that takes its time to end is ended, and named there."""
    return {name: value for name, value in visible(result).items() if name != "reaped"}


@pytest.fixture
def configure(settings: Settings) -> Iterator[Configure]:
    """Writes the servers of this user's mcp.json. It is read by every run anew."""
    file = settings.home.parent / "deputize" / "mcp.json"
    file.parent.mkdir(exist_ok=True)

    def write(**servers: Any) -> None:
        file.write_text(json.dumps({"mcpServers": servers}))

    yield write
    file.unlink()


async def test_a_run_has_the_tools_of_a_server_and_calls_them(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(greeting=GREETING)
    model = script(tmp_path, [GREET], [say("{{result}}")])
    result = await orchestrator.delegate("Greet Ada.", model=model, tools=["read_file", "mcp__greeting__*"])
    events = await orchestrator.service.events(result.delegation_id)
    assert [e.event.tools for e in events if isinstance(e.event, RunStarted)] == [
        ["read_file", "mcp__greeting__greet", "mcp__greeting__sign"]
    ]
    assert answer_of(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Hello, Ada!",
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_what_does_not_only_read_needs_approval(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(greeting=GREETING)
    model = script(tmp_path, [SIGN], [say("I could not.")])
    assert answer_of(await orchestrator.delegate("Sign for Ada.", model=model)) == {
        "status": "succeeded",
        "success": True,
        "mark": "unproven",
        "onlyDenied": True,
        "terminationReason": "completed",
        "summary": "I could not.",
        "errors": [
            (
                "mcp__greeting__sign: denied: mcp__greeting__sign acts outside the workspace. This needs a "
                "person's approval, and interactive approval is off here; a delegation with "
                "approvalMode auto may do it."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_the_operator_may_trust_a_tool_by_its_name(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(greeting=GREETING | {"trust": ["sign"]})
    model = script(tmp_path, [SIGN], [say("{{result}}")])
    assert answer_of(await orchestrator.delegate("Sign for Ada.", model=model)) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Ada has signed",
        "filesModified": ["guests.txt"],
        "fileChanges": [{"path": "guests.txt", "change": "created", "addedLines": 1}],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_a_server_works_on_the_files_of_its_run_and_on_no_others(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(greeting=GREETING | {"trust": True})
    model = script(tmp_path, [SIGN], [call("read_file", path="guests.txt")], [say("{{result}}")])
    results = [await orchestrator.delegate("Sign.", model=model) for _ in range(2)]
    assert [result.files_modified for result in results] == [["guests.txt"], ["guests.txt"]]


async def test_a_server_that_does_not_start_is_reported_and_the_run_goes_on_without_it(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(broken={"command": "sh", "args": ["-c", "echo no licence found >&2; exit 1"]})
    assert answer_of(await orchestrator.delegate("Say hello.", model=script(tmp_path, [say("Hello.")]))) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Hello.",
        "errors": [
            (
                "the MCP server 'broken' is left out: Connection closed; its stderr: no licence found. It runs "
                "in the sandbox, without network, where it finds system programs and its own installation; in "
                'mcp.json "show" names further paths, and "sandbox": false runs it outside'
            ),
            "No available MCP tools found",
        ],
        "turnCount": 1,
    }


async def test_wrong_arguments_do_not_reach_the_server(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(greeting=GREETING)
    model = script(tmp_path, [call("mcp__greeting__greet", name=7)], [say("I could not.")])
    assert answer_of(await orchestrator.delegate("Greet 7.", model=model)) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "I could not.",
        "errors": [
            (
                "mcp__greeting__greet: invalid arguments for mcp__greeting__greet: name: 7 is not of type "
                '"string". Known parameters: name.'
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_a_secret_that_a_server_is_given_is_masked_wherever_it_turns_up(
    configure: Configure, orchestrator: Orchestrator, tmp_path: Path
) -> None:
    configure(greeting=GREETING | {"env": {"GREETING_TOKEN": "sk-of-the-server"}})
    model = script(tmp_path, [GREET], [say("It is sk-of-the-server.")])
    result = await orchestrator.delegate("Greet Ada.", model=model)
    assert result.summary == "It is ***."
    events = await orchestrator.service.events(result.delegation_id)
    assert "sk-of-the-server" not in " ".join(envelope.to_json() for envelope in events)
