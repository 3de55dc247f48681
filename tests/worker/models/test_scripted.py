"""The model that follows a script, what a script can express, and the built-in script with the real tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.errors import Misconfigured, ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import open_model
from deputize.worker.models.base import Call, Price, Prompt, Reply, Retrying, TextPart, ToolSpec
from deputize.worker.models.scripted import LABEL, Script, ScriptedModel, TemplateContext, render
from deputize.worker.tools.base import ToolResult
from deputize.worker.tools.builtin import DEFAULT_KIT
from tests.runs.toolbench import EVERYTHING, Toolbench
from tests.worker.models.asking import READ, parts_of, prompt_of, reply_of

SETTINGS = Settings()


def playing(*turns: Any, **more: Any) -> ScriptedModel:
    return ScriptedModel(Script.model_validate({"rules": [{"turns": turns}], "label": ""} | more))


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"call": tool, "arguments": arguments}


async def texts(model: ScriptedModel, *results: str, task: str = "do it") -> list[str]:
    """The words of each turn, when the calls of the turns before are answered with these results."""
    history = Conversation()
    history.ask(task)
    said: list[str] = []
    answers = iter(results)
    while True:
        reply = await reply_of(model, prompt_of(history.messages))
        said.append(reply.text)
        history.add(reply)
        if not reply.calls:
            return said
        history.answer([(made, ToolResult(next(answers))) for made in reply.calls])


# What a script plays


@pytest.mark.requirement("P-23")
async def test_the_turn_is_that_of_the_conversation_and_not_of_the_model() -> None:
    """So a run that goes on in another process goes on at the right turn."""
    turns = [[{"text": f"turn {number}"}, call("read_file", path="a")] for number in range(3)]
    history = Conversation()
    history.ask("do it")
    for number in range(3):
        reply = await reply_of(playing(*turns), prompt_of(history.messages))
        assert reply.text == f"turn {number}"
        history.add(reply)
        history.answer([(made, ToolResult("x")) for made in reply.calls])


async def test_the_first_rule_that_matches_is_played() -> None:
    rules = [
        {"match": {"contains": "CAKE"}, "turns": [[{"text": "contains"}]]},
        {"match": {"regex": r"^Fix \d+ tests"}, "turns": [[{"text": "regex"}]]},
        {"turns": [[{"text": "else"}]]},
    ]
    model = ScriptedModel(Script.model_validate({"rules": rules, "label": ""}))
    tasks = ("Bake a cake", "Fix 12 tests", "Fix tests")
    assert [await texts(model, task=task) for task in tasks] == [["contains"], ["regex"], ["else"]]


async def test_a_task_no_rule_matches_is_reported() -> None:
    rules = [{"match": {"contains": "cake"}, "turns": [[{"text": "x"}]]}]
    with pytest.raises(ModelUnavailable, match="no rule of it matches"):
        await parts_of(ScriptedModel(Script.model_validate({"rules": rules})), "Fix it")


async def test_calls_carry_what_tools_returned() -> None:
    model = playing(
        [call("glob", pattern="*")], [call("read_file", path="{{result /(\\S+\\.py)/}}", lines=[1, "{{calls}}"])]
    )
    history = Conversation()
    history.ask("do it")
    first = await reply_of(model, prompt_of(history.messages))
    history.add(first)
    history.answer([(first.calls[0], ToolResult("a.txt\nb.py"))])
    second = await reply_of(model, prompt_of(history.messages))
    assert second.calls == [Call(second.calls[0].id, "read_file", {"path": "b.py", "lines": [1, "1"]})]
    assert first.calls[0].id != second.calls[0].id


async def test_a_repeated_turn_goes_through_a_list_and_begins_anew() -> None:
    read = {"repeat": 2, "blocks": [{"call": "read_file", "times": 2, "arguments": {"path": "{{item:1 /\\S+/}}"}}]}
    model, history = playing([call("glob", pattern="*")], read, [{"text": "end"}]), Conversation()
    history.ask("do it")
    asked: list[list[str]] = []
    while (reply := await reply_of(model, prompt_of(history.messages))).calls:
        asked.append([made.arguments.get("path", "") for made in reply.calls])
        history.add(reply)
        history.answer([(made, ToolResult("a b c")) for made in reply.calls])
    assert asked == [[""], ["a", "b"], ["c", "a"]]


async def test_blocks_depend_on_the_last_result_and_on_the_tools() -> None:
    turn = [
        {"text": "good", "when": "^OK"},
        {"text": "bad", "unless": "^OK"},
        {"text": "+read", "tool": "read_file"},
        {"text": "-read", "no_tool": "read_file"},
    ]
    model = playing([call("bash", command="x")], turn)
    assert await texts(model, "fine\nOK") == ["", "good+read"]
    assert await texts(model, "not OK") == ["", "bad+read"]


async def test_when_tools_are_forbidden_the_summary_is_the_text() -> None:
    rule = {"turns": [[call("bash", command="x")]], "summary": "{{calls}} results, the last: {{result}}"}
    model, history = ScriptedModel(Script.model_validate({"rules": [rule], "label": ""})), Conversation()
    history.ask("do it")
    reply = await reply_of(model, prompt_of(history.messages))
    history.add(reply)
    history.answer([(reply.calls[0], ToolResult("found"))])
    last = await reply_of(model, prompt_of(history.messages, allow_tools=False))
    assert (last.text, last.calls, last.stop_reason) == ("1 results, the last: found", [], "end_turn")
    assert (await reply_of(model, prompt_of(history.messages))).text == "1 results, the last: found"


async def test_every_final_text_states_that_it_is_scripted() -> None:
    model = ScriptedModel(
        Script.model_validate({"rules": [{"turns": [[{"text": "x"}, call("bash")], [{"text": "y"}]]}]})
    )
    assert await texts(model, "") == ["x", f"y\n\n{LABEL}"]


async def test_words_come_in_pieces() -> None:
    *deltas, reply = await parts_of(playing([{"text": "word " * 30}]), "do it")
    assert len(deltas) > 2
    assert isinstance(reply, Reply)
    assert "".join(part.text for part in deltas if isinstance(part, TextPart)) == "word " * 30 == reply.text


async def test_a_stop_reason_can_be_given() -> None:
    assert (await reply_of(playing({"blocks": [{"text": "x"}], "stop": "refusal"}), "do it")).stop_reason == "refusal"


# What it costs


async def test_tokens_are_given_or_estimated_and_cost_by_the_scripts_price() -> None:
    spent = {"input": 1000, "output": 100, "cache_read": 10, "cache_write": 1}
    model = playing({"blocks": [{"text": "x"}], "usage": spent}, price={"input": 1, "output": 5})
    assert model.price() == Price(1, 5, 0, 0)
    assert (await reply_of(model, "do it")).usage == Usage(
        input_tokens=1000,
        output_tokens=100,
        cache_read_tokens=10,
        cache_write_tokens=1,
        cost_usd=0.0015,
        cache_saved_usd=0.000011,
    )
    estimated = (await reply_of(playing([{"text": "x"}]), "do it")).usage
    assert estimated.input_tokens > 0
    assert estimated.output_tokens > 0
    assert (estimated.cost_usd, estimated.cache_saved_usd) == (None, None)


# What it plays to fail


@pytest.mark.parametrize("kind", ["retry", "cut"])
async def test_a_script_can_fail_and_try_again(kind: str) -> None:
    faults = [{"kind": kind, "message": "overloaded", "delay": 0.001}] * 2
    parts = await parts_of(playing({"blocks": [{"text": "x"}], "faults": faults}), "do it")
    assert [part.error for part in parts if isinstance(part, Retrying)] == ["overloaded"] * 2
    assert isinstance(parts[0], TextPart if kind == "cut" else Retrying)


async def test_a_script_can_be_unavailable() -> None:
    turn = {"faults": [{"kind": "unavailable", "message": "gone for good"}]}
    with pytest.raises(ModelUnavailable, match="gone for good"):
        await parts_of(playing(turn), "do it")


# How it is written


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{{task}}", "Fix a.py and b.py"),
        ("{{task /(\\w+)\\.py/}}", "a"),
        ("{{calls}}", "3"),
        ("{{result}}", "one two one"),
        ("{{result:1}}", "first"),
        ("{{result:-2}}", "x: 1\ny: 2"),
        ("{{result:9}}", ""),
        ("{{result:0}}", ""),
        ("{{result:2 /^y: (\\d)/}}", "2"),
        ("{{result:2 /^[xy]: /}}", "x: "),
        ("{{result:2 /z/}}", ""),
        ('{{result:2 /z/ else "no z"}}', "no z"),
        ("{{count:2 /^\\w/}}", "2"),
        ("{{count /\\w+/}}", "2"),
        ("{{count:all /\\d/}}", "2"),
        ("{{list /\\w+/}}", "- one\n- two"),
        ("{{item /\\w+/}}", "two"),
        ("{{item:2 /\\w: \\d/}}", "y: 2"),
        ("{{result:all /first/}} and {{calls}}", "first and 3"),
        ("{{task /a\\/b/}}", ""),
        ("{{unknown}} {{ }} {{result", "{{unknown}} {{ }} {{result"),
    ],
)
def test_a_template_quotes_what_tools_returned(template: str, filled: str) -> None:
    context = TemplateContext("Fix a.py and b.py", ("first", "x: 1\ny: 2", "one two one"), round=1)
    assert render(template, context) == filled
    assert render({"a": [template, 1, None]}, context) == {"a": [filled, 1, None]}


def test_yaml_and_json_are_read(tmp_path: Path) -> None:
    rules = {"rules": [{"turns": [[{"text": "x"}]]}]}
    (tmp_path / "a.json").write_text(json.dumps(rules))
    (tmp_path / "a.yaml").write_text("rules:\n  - turns:\n      - - text: x\n")
    for name in ("a.json", "a.yaml"):
        model = open_model(f"scripted:{tmp_path / name}", SETTINGS)
        assert model.name == f"scripted:{tmp_path / name}"
        assert model.price() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [", "not valid YAML"),
        ("rules: []", "/rules"),
        ("- a", "is wrong"),
        ("rules:\n- turn: []", "did you mean 'turns'"),
        ("rules:\n- turns:\n  - - {text: a, call: b}", "exactly one of"),
        ("rules:\n- turns:\n  - - {say: a}", "blocks/0/say: unknown key 'say'; known keys: text, thinking, call, "),
        ("rules:\n- turns:\n  - blok: []", "turns/0/blok: unknown key 'blok'; did you mean 'blocks'?"),
        ("rules:\n- turns: [[]]\n  match: {regex: '('}", "not a regular expression"),
    ],
)
def test_a_mistake_in_a_script_is_named(tmp_path: Path, text: str, words: str) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(text)
    with pytest.raises(Misconfigured) as error:
        open_model(f"scripted:{script}", SETTINGS)
    assert words in str(error.value)
    assert str(script) in str(error.value)


def test_a_script_that_is_not_there_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"nowhere\.yaml cannot be read"):
        open_model("scripted:nowhere.yaml", SETTINGS)


# How models are opened


@pytest.mark.parametrize(
    ("name", "opened"),
    [
        ("scripted", "scripted"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("anthropic:claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("anthropic.claude-v1:0", "anthropic.claude-v1:0"),
        ("anthropic", "anthropic"),
    ],
)
def test_a_models_name_selects_the_adapter(name: str, opened: str) -> None:
    assert open_model(name, SETTINGS).name == opened


def test_the_sdk_is_loaded_only_for_a_model_that_needs_it() -> None:
    script = (
        "import sys\nfrom deputize.shared.settings import Settings\nfrom deputize.worker.models import open_model\n"
        "open_model('scripted', Settings())\nassert 'anthropic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_a_conversation_may_hold_plain_texts() -> None:
    message = json.dumps({"role": "user", "content": "plain"}).encode()
    prompt = Prompt("", (READ,), [message], 100)
    assert (await reply_of(playing([{"text": "{{task}}"}]), prompt)).text == "plain"


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
async def test_any_other_task_is_not_done_and_this_is_reported(sample: Toolbench, kit: tuple[str, ...]) -> None:
    last = (await play(sample, "Bake a cake.", kit=kit))[-1].text
    assert "pricing.py" in last
    assert "Nothing else was done for this task, because no language model is set up." in last
    assert "from a script, not from a language model" in last
