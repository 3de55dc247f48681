"""orchestrator/README.md is right about the operations, and complete."""

from __future__ import annotations

import inspect
import re

from deputize.orchestrator.app import create_app
from deputize.orchestrator.cli import COMMANDS
from deputize.orchestrator.delegations import Delegations
from deputize.orchestrator.mcp.schemas import input_schema
from deputize.orchestrator.mcp.tools import TOOLS
from deputize.shared.request import DelegationRequest, Limits
from deputize.shared.settings.fields import CAPS, SettingsFields
from tests.architecture.sources import ROOT
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import opening, settings

README = (ROOT / "orchestrator" / "README.md").read_text("utf-8")
_TABLE = README.split("|---|---|---|\n")[1].split("\n\n")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in _TABLE.splitlines()]


def answer(question: str) -> str:
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {question}")]
    return row.split(" | ", 1)[1]


def test_its_limits_are_those_of_the_code() -> None:
    held, caps = answer("limits that hold").split("; no others.")
    assert [(name, float(number)) for name, number in re.findall(r"`(\w+)` (\d+)", held)] == [
        (field.alias, field.default) for field in Limits.model_fields.values() if field.default is not None
    ]
    assert [float(number) for number in re.findall(r"\d+", caps)] == [*CAPS.model_dump(exclude_none=True).values()]


def test_its_line_of_a_batch_is_a_request() -> None:
    assert DelegationRequest.model_validate_json(answer("a line of a").split("`")[1]).limits.max_turns == 10


async def test_its_completion_and_its_home_are_those_of_the_command_line() -> None:
    variable, shell = re.findall(r"(_\w+)=(\w+) deputize", answer("completion"))[0]
    assert "complete" in (await deputize(**{variable: shell})).out
    assert f"`{SettingsFields.model_fields['home'].default}`" in answer("where logs")


def test_its_verbs_are_those_of_the_service() -> None:
    verbs = {name for name, _ in inspect.getmembers(Delegations, inspect.isfunction) if not name.startswith("_")}
    assert {verb for row in ROWS for verb in row[0].split(", ")} == verbs - {"of"}  # the same ones, of one caller


def test_its_routes_are_those_of_the_application() -> None:
    paths = create_app(opening(FakeService()), settings()).openapi()["paths"]
    named = [route.split(" ") for row in ROWS for route in re.findall(r"`([A-Z]+ [^`]+)`", row[1])]
    assert len(named) > 10
    assert [route for route in named if route[0].lower() not in paths.get(route[1], {})] == []


def test_its_arguments_of_mcp_tools_are_those_of_their_schemas() -> None:
    table = re.split(r"\| tool \| arguments.*\n\|---\|---\|---\|\n", README)[1].split("\n\n")[0]
    rows = {cells[1].strip().strip("`"): cells[2] for cells in (line.split("|") for line in table.splitlines())}
    assert [*rows] == [*TOOLS]
    for name, cell in rows.items():
        schema = input_schema(TOOLS[name].arguments)
        named = re.findall(r"`(\w+)`", re.sub(r"those of `\w+`", "", cell))
        if TOOLS[name].arguments is DelegationRequest:
            assert {*named} <= {*schema["properties"]}
        else:
            assert ({*named}, {*re.findall(r"\*`(\w+)`", cell)}) == (
                {*schema["properties"]},
                {*schema.get("required", [])},
            )


def test_its_commands_are_those_of_the_command_line() -> None:
    named = {command for row in ROWS for command in re.findall(r"`([\w-]+)", row[2])}
    assert named <= set(COMMANDS)
    of_a_stack = {"up", "open", "logs", "stop", "serve", "worker"}
    assert set(COMMANDS) - named - of_a_stack == {"demo", "mcp", "token", "policy", "settings", "version"}
