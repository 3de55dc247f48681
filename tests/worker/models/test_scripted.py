"""The model that follows a script, and what a script can say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.errors import Misconfigured, ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.conversation import Conversation
from deputize.worker.models import open_model
from deputize.worker.models.base import Call, Price, Prompt, Reply, Retrying, TextPart
from deputize.worker.models.scripted import LABEL, Script, ScriptedModel, TemplateContext, render
from deputize.worker.tools.base import ToolResult
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


async def test_a_task_no_rule_matches_is_told() -> None:
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


async def test_when_tools_are_forbidden_the_summary_is_said() -> None:
    rule = {"turns": [[call("bash", command="x")]], "summary": "{{calls}} results, the last: {{result}}"}
    model, history = ScriptedModel(Script.model_validate({"rules": [rule], "label": ""})), Conversation()
    history.ask("do it")
    reply = await reply_of(model, prompt_of(history.messages))
    history.add(reply)
    history.answer([(reply.calls[0], ToolResult("found"))])
    last = await reply_of(model, prompt_of(history.messages, allow_tools=False))
    assert (last.text, last.calls, last.stop_reason) == ("1 results, the last: found", [], "end_turn")
    assert (await reply_of(model, prompt_of(history.messages))).text == "1 results, the last: found"


async def test_every_final_text_says_that_it_is_scripted() -> None:
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
def test_a_template_says_what_tools_returned(template: str, filled: str) -> None:
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
        ("rules:\n- turns:\n  - - {txt: a}", "txt"),
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
def test_a_models_name_says_which_adapter(name: str, opened: str) -> None:
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
