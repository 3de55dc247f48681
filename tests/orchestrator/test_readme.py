"""The pages of orchestrator/docs/ are right about operations, limits and MCP tools, and complete."""

from __future__ import annotations

import inspect
import re

from deputize import Orchestrator, SyncOrchestrator
from deputize.orchestrator.app import create_app
from deputize.orchestrator.cli import COMMANDS
from deputize.orchestrator.delegations import Delegations
from deputize.orchestrator.mcp.schemas import input_schema
from deputize.orchestrator.mcp.tools import TOOLS
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.settings.fields import CAPS, SettingsFields
from tests.orchestrator.command_line import deputize
from tests.orchestrator.doc_pages import table
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import opening, settings

ROWS = table("http-api", "operation")
OTHERS = ("demo", "eval", "mcp", "token", "keys", "policy", "settings", "models", "version")


def answer(question: str) -> str:
    (row,) = [row for row in table("command-line", "question") if row[0].startswith(question)]
    return row[1]


def test_its_limits_are_those_of_the_code() -> None:
    rows = [[cell.strip("`") for cell in row] for row in table("limits-and-messages", "field of `limits`")]
    fields, caps = Limits.model_fields, CAPS.model_dump()
    assert [(name, default, cap, variable) for name, _, default, cap, variable in rows] == [
        (field.alias, _number(field.default), _number(caps[name]), f"DEPUTIZE_CAP_{name.upper()}")
        for name, field in fields.items()
    ]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def test_its_line_of_a_batch_is_a_request() -> None:
    assert DelegationRequest.model_validate_json(answer("a line of a").split("`")[1]).limits.max_turns == 10


async def test_its_completion_and_its_home_are_those_of_the_command_line() -> None:
    variable, shell = re.findall(r"(_\w+)=(\w+) deputize", answer("completion"))[0]
    assert "complete" in (await deputize(**{variable: shell})).out
    assert f"`{SettingsFields.model_fields['home'].default}`" in answer("where logs")


def test_its_verbs_are_those_of_the_service() -> None:
    verbs = {name for name, _ in inspect.getmembers(Delegations, inspect.isfunction) if not name.startswith("_")}
    # Not operations: the service of one caller, and what the scheduler asks for.
    assert {verb for row in ROWS for verb in row[0].split(", ")} == verbs - {"of", "notify"}


def test_its_exceptions_are_the_operations_without_a_method_of_that_name() -> None:
    operations = {verb for row in ROWS for verb in row[0].split(", ")}
    exceptions = {verb for row in table("python", "operation") for verb in re.findall(r"`(\w+)`", row[0])}
    for form in (Orchestrator, SyncOrchestrator):
        assert {each for each in operations if not hasattr(form, each)} == exceptions
    assert hasattr(Orchestrator, "start")
    assert hasattr(Orchestrator, "gather")


def test_its_routes_are_those_of_the_application() -> None:
    paths = create_app(opening(FakeService()), settings()).openapi()["paths"]
    named = [route.split(" ") for row in ROWS for route in re.findall(r"`([A-Z]+ [^`]+)`", row[1])]
    assert len(named) > 10
    assert [route for route in named if route[0].lower() not in paths.get(route[1], {})] == []


def test_its_arguments_of_mcp_tools_are_those_of_their_schemas() -> None:
    rows = {name.strip("`"): arguments for name, arguments, _ in table("mcp", "tool")}
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
    assert set(COMMANDS) - named - of_a_stack == {*OTHERS}
