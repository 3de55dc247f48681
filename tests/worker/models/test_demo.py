"""The built-in script does its three tasks with the real tools, and says only what is true."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from deputize.shared.settings import Settings
from deputize.worker.conversation import Conversation
from deputize.worker.models import open_model
from deputize.worker.models.base import Prompt, Reply, ToolSpec
from deputize.worker.tools import DEFAULT_KIT
from deputize.worker.tools.base import ToolResult
from tests.toolbench import EVERYTHING, Toolbench
from tests.worker.models.asking import reply_of

SAMPLE = Path(__file__).parents[3] / "orchestrator" / "cli" / "sample"
REPORT = "List the public classes of this package and write a report to REPORT.md."
REPAIR = "Make the tests of the sample package pass."
READ_ALL = "Read this package file by file, again and again, for as long as you can."


async def play(desk: Toolbench, task: str, *, most: int = 50, kit: Iterable[str] = DEFAULT_KIT) -> list[Reply]:
    """The replies to a task whose calls are answered by the real tools, at most so many."""
    model, history = open_model("scripted", Settings()), Conversation()
    history.ask(f"# Task\n\n{task}")
    specs = tuple(ToolSpec(name, "", EVERYTHING[name].schema) for name in kit)
    replies: list[Reply] = []
    while not replies or replies[-1].calls:
        prompt = Prompt("", specs, history.messages, 1000, allow_tools=desk.calls < most)
        replies.append(await reply_of(model, prompt))
        history.add(replies[-1])
        history.answer(
            [
                (
                    call,
                    await desk.call_with(call.name, call.arguments) if desk.calls < most else ToolResult(error="no"),
                )
                for call in replies[-1].calls
            ]
        )
    return replies


@pytest.fixture
def sample(desk: Toolbench) -> Toolbench:
    for path in SAMPLE.glob("*.txt"):
        desk.write(path.name.removesuffix(".txt"), path.read_text())
    return desk


async def test_the_report_names_the_classes_that_are_there(sample: Toolbench) -> None:
    sample.write("other.py", "class Public:\n    class Inner: ...\n\nclass _Private: ...\n\nclass Late(Public): ...\n")
    sample.write("notes.txt", "class Nothing\n")
    replies = await play(sample, REPORT)
    report = sample.read("REPORT.md").decode()
    listed = {line for line in report.splitlines() if line.startswith("- ")}
    assert listed == {"- Public", "- Late", "- Order", "- TotalTest", "- other.py", "- pricing.py", "- test_pricing.py"}
    assert "I found 4 different names of public classes in 3 files" in replies[-1].text


async def test_without_classes_no_report_is_claimed(desk: Toolbench) -> None:
    replies = await play(desk, REPORT)
    assert "I found no public class" in replies[-1].text


async def test_the_bug_is_found_and_repaired(sample: Toolbench) -> None:
    replies = await play(sample, REPAIR)
    assert "test_the_discount_begins_at_exactly_one_hundred fails" in replies[1].text
    assert "AssertionError: 100 != 90" in replies[1].text
    assert "line 22" in replies[2].text
    assert "The tests pass now (3 tests)" in replies[-1].text
    assert b"subtotal >= DISCOUNT_FROM" in sample.read("pricing.py")


async def test_where_nothing_fails_nothing_is_changed(sample: Toolbench) -> None:
    await play(sample, REPAIR)
    repaired = sample.read("pricing.py")
    sample.calls = 0
    assert "No test fails here" in (await play(sample, REPAIR))[-1].text
    assert sample.read("pricing.py") == repaired


async def test_commands_that_cannot_run_are_not_called_a_success(bare_desk: Toolbench) -> None:
    last = (await play(bare_desk, REPAIR))[-1].text
    assert "pass now" not in last
    assert "this test has no sandbox" in last


async def test_reading_on_and_on_ends_in_a_summary(sample: Toolbench) -> None:
    replies = await play(sample, READ_ALL, most=9)
    assert sample.calls == 9
    assert "Of the 2 Python files that were listed I read 2" in replies[-1].text
    assert "What an order costs." in replies[-1].text


@pytest.mark.parametrize("kit", [DEFAULT_KIT, ("list_directory",)])
async def test_any_other_task_is_not_done_and_that_is_said(sample: Toolbench, kit: tuple[str, ...]) -> None:
    last = (await play(sample, "Bake a cake.", kit=kit))[-1].text
    assert "pricing.py" in last
    assert "no real model is configured. Set ANTHROPIC_API_KEY" in last
    assert "from a script, not from a language model" in last
