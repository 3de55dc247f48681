"""001: a table of descriptions, parameters and functions runs here as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from deputize.shared.errors import Misconfigured
from deputize.worker.adapters import TableEntry, adapt_table
from tests.toolbench import Toolbench
from tests.worker.adapters.playing import Theatre


class ReverseArgs(BaseModel):
    text: str = Field(description="The text to turn round")
    times: int = Field(default=1, ge=1, description="How often")

    @field_validator("text")
    @classmethod
    def _no_palindrome(cls, text: str) -> str:
        if text == text[::-1]:
            raise ValueError("it reads the same both ways")
        return text


async def reverse(args: ReverseArgs) -> str:
    if not args.text.strip():
        return "错误\uff1a文本为空 - text"
    return args.text[:: -1 if args.times % 2 else 1]


def first_line(args: Mapping[str, Any]) -> str:
    """Not async: it reads a file, as small tools do."""
    try:
        return Path(args["path"]).read_text().splitlines()[0]
    except OSError as error:
        return f"Error: cannot be read - {error.strerror}"


TOOLS: dict[str, TableEntry] = {
    "reverse": {"description": "Turns a text round", "parameters": ReverseArgs, "execute": reverse},
    "first_line": {
        "description": "Reads the first line of a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "execute": first_line,
    },
}


@pytest.mark.requirement("S001-003", "S001-013")
async def test_a_table_runs_in_the_loop_like_our_own_list(theatre: Theatre, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("first\nsecond\n")
    play = await theatre.play(
        adapt_table(TOOLS),
        {"text": "abc"},
        {"text": "abc", "times": 2},
        {"text": "  x"},
        {"call": "first_line", "arguments": {"path": str(tmp_path / "lines.txt")}},
    )
    assert [step.result for step in play.steps] == ["cba", "abc", "x  ", "first"]
    assert play.result.success


async def test_a_text_that_tells_of_an_error_is_a_failure(desk: Toolbench) -> None:
    reverse_tool, line_tool = adapt_table(TOOLS)
    result = await reverse_tool.run(desk.context(), ReverseArgs.model_construct(text=" "))
    assert (result.success, result.for_model) == (False, "Error: 文本为空 - text")
    result = await line_tool.run(desk.context(), {"path": "/nowhere"})
    assert (result.success, result.for_model) == (False, "Error: cannot be read - No such file or directory")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, '"text" is a required property'),
        ({"text": "ab", "time": 2}, "'time' was unexpected"),
        ({"text": "ab", "times": 0}, "times: 0 is less than the minimum of 1"),
        ({"text": "aba"}, "text: it reads the same both ways"),
    ],
)
async def test_the_model_checks_the_arguments_as_it_always_does(
    theatre: Theatre, arguments: dict[str, Any], said: str
) -> None:
    play = await theatre.play(adapt_table(TOOLS)[:1], arguments)
    assert play.steps[0].error is not None
    assert said in play.steps[0].error
    assert play.steps[0].error.endswith("Known parameters: text, times.")


def test_a_name_that_no_model_accepts_is_refused_at_once() -> None:
    with pytest.raises(Misconfigured, match="the tool 'turn round' cannot be offered: a name is 1 to 64"):
        adapt_table({"turn round": TOOLS["reverse"]})
