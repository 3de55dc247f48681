"""How a reply ends: every stop reason with calls, with text, with text that imitates a call, and with nothing."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.delegation import Usage
from deputize.worker.models.base import Call, Reply
from deputize.worker.models.endings import ENDINGS, Ending, ending_of, imitates_call
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.naming import call_names

TOOLS = ("bash", "read_file", "glob")
INVOKE = '<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>'
JSON_CALL = '{"name": "bash", "arguments": {"command": "ls"}}'

CALLS, DONE, CUT, PAUSED = Ending.CALLS, Ending.DONE, Ending.CUT, Ending.PAUSED
FULL, REFUSED, IMITATION, EMPTY = Ending.FULL, Ending.REFUSED, Ending.IMITATION, Ending.EMPTY
UNCLEAR = Ending.UNCLEAR

ROWS = {
    # stop reason: with calls, with text, with text that imitates a call, with nothing
    "end_turn": (CALLS, DONE, IMITATION, EMPTY),
    "stop_sequence": (CALLS, DONE, IMITATION, EMPTY),
    "stop": (CALLS, DONE, IMITATION, EMPTY),
    "STOP": (CALLS, DONE, IMITATION, EMPTY),
    "tool_use": (CALLS, IMITATION, IMITATION, IMITATION),
    "tool_calls": (CALLS, IMITATION, IMITATION, IMITATION),
    "function_call": (CALLS, IMITATION, IMITATION, IMITATION),
    "max_tokens": (CALLS, CUT, IMITATION, CUT),
    "length": (CALLS, CUT, IMITATION, CUT),
    "pause_turn": (CALLS, PAUSED, IMITATION, PAUSED),
    "model_context_window_exceeded": (CALLS, FULL, FULL, FULL),
    "refusal": (REFUSED, REFUSED, REFUSED, REFUSED),
    "content_filter": (REFUSED, REFUSED, REFUSED, REFUSED),
    "RECITATION": (REFUSED, REFUSED, REFUSED, REFUSED),
    "malformed_function_call": (CALLS, IMITATION, IMITATION, IMITATION),
    **dict.fromkeys(
        ["a_reason_of_the_future", "error", "abort", "timeout", "overloaded", "cancelled", "null", "0", ""],
        (CALLS, UNCLEAR, IMITATION, EMPTY),
    ),
}


def reply(stop: str, text: str = "", *, calls: bool = False) -> Reply:
    content = [{"type": "text", "text": text}] if text else []
    made = [Call("toolu_1", "bash", {"command": "ls"})] if calls else []
    return Reply(content, stop, Usage(), text, calls=made)


@pytest.mark.parametrize("stop", ROWS)
def test_a_row_for_each_stop_reason(stop: str) -> None:
    replies = reply(stop, "I look.", calls=True), reply(stop, "It is done."), reply(stop, INVOKE), reply(stop)
    assert tuple(ending_of(each, TOOLS) for each in replies) == ROWS[stop]


@given(st.text(max_size=20).filter(lambda stop: stop.lower() not in " ".join(ENDINGS).split()))
def test_no_unknown_stop_reason_is_a_success(stop: str) -> None:
    assert ending_of(reply(stop, "It is done."), TOOLS) is UNCLEAR


def test_a_reply_of_other_blocks_without_a_word_is_no_answer() -> None:
    other = Reply([{"type": "server_tool_use", "id": "1", "name": "web_search", "input": {}}], "end_turn", Usage())
    assert ending_of(other, TOOLS) is EMPTY


def test_no_reason_is_in_two_rows() -> None:
    reasons = [reason for words in ENDINGS for reason in words.split()]
    assert len(reasons) == len(set(reasons))


MADE = {
    "invoke": INVOKE,
    "invoke after words": f"I look at the files first.\n\n{INVOKE}",
    "invoke after words on its line": f"I look at the files: {INVOKE}",
    "invoke with text for its parameters": '<invoke name="bash">ls</invoke>',
    "invoke without its end": '<invoke name="bash">\n<parameter name="command">ls',
    "invoke cut in its tag": 'I look.\n<invoke name="ba',
    "function_calls": f"<function_calls>\n{INVOKE}\n</function_calls>",
    "a prefix": INVOKE.replace("<", "<ns:").replace("<ns:/", "</ns:"),
    "with made-up results": f"{INVOKE}\n<function_results>a.txt</function_results>\nThere is one file, a.txt.",
    "of an unknown tool": '<invoke name="run_it">\n<parameter name="x">1</parameter>\n</invoke>',
    "tool_call in JSON": f"<tool_call>\n{JSON_CALL}\n</tool_call>",
    "tool_call without its end": f"Now:\n<tool_call>{JSON_CALL}",
    "tool_call in XML": "<tool_call>\n<name>bash</name>\n<params><command>ls</command></params>\n</tool_call>",
    "tool_call with keys": "<tool_call>bash\n<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>",
    "tool_call with a name": "<tool_call>bash\n<command>ls</command>\n</tool_call>",
    "a mark in brackets": '[Tool call: bash]\n{"command": "ls"}',
    "another client's tool": "<use_mcp_tool>\n<server_name>a</server_name>\n</use_mcp_tool>",
    "tool_use": f"<tool_use>{JSON_CALL}</tool_use>",
    "function": "<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>",
    "an element named like a tool": "<bash>\n<command>ls</command>\n</bash>",
    "special tokens": f"<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{JSON_CALL}<|tool_call_end|>",
    "wide special tokens": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{}<｜tool▁call▁end｜>",  # noqa: RUF001
    "a channel": '<|channel|>commentary to=functions.bash <|message|>{"command": "ls"}',
    "a mark": f"[TOOL_CALLS][{JSON_CALL}]",
    "JSON": JSON_CALL,
    "JSON that was cut": '{"name": "bash", "arguments": {"command": "ls',
    "JSON in a list": f"[{JSON_CALL}]",
    "JSON after words": f"I look.\n{JSON_CALL}",
    "JSON before words": f"{JSON_CALL}\n\nThe files are a.txt and b.txt.",
    "JSON with other keys": '{"tool": "read_file", "parameters": {"path": "a.txt"}}',
    "JSON of another interface": json.dumps(
        {
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
            ]
        }
    ),
    "JSON of parallel calls": '{"tool_uses": [{"recipient_name": "functions.bash", "parameters": {"command": "ls"}}]}',
    "JSON in a code block": f"```json\n{JSON_CALL}\n```",
    "JSON in a code block after words": f"I will list the files now:\n\n```json\n{JSON_CALL}\n```\n",
    "JSON in a code block after an intention": f"Let me look at it.\n```\n{JSON_CALL}\n```",
    "a code block that was cut": f"```json\n{JSON_CALL}",
    "invoke in a code block": f"```xml\n{INVOKE}\n```",
    "an action": 'I need the files.\nAction: bash\nAction Input: {"command": "ls"}',
    "Python": '[bash(command="ls")]',
    "DeepSeek's markup": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" '  # noqa: RUF001
    'string="true">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',  # noqa: RUF001
    "DeepSeek's markup without its end": 'I look.\n<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="com',  # noqa: RUF001
    "Gemini's code": "```tool_code\nprint(default_api.bash(command='ls'))\n```",
    "Gemini's code after words": "The files come first.\n\n```tool_code\nprint(default_api.bash(command='ls'))\n```",
    "Gemini's code without a block": "print(default_api.bash(command='ls'))",
    "FunctionGemma": "<start_function_call>call:bash{command:<escape>ls<escape>}<end_function_call>",
    "JSON with the key function": '{"function": "bash", "arguments": {"command": "ls"}}',
    "a block of the language function_call": f"The files:\n```function_call\n{JSON_CALL}\n```",
}


@pytest.mark.parametrize("text", MADE.values(), ids=MADE)
def test_a_call_in_writing_is_recognized(text: str) -> None:
    assert imitates_call(text, TOOLS)


DIALECTS = {
    "an element": "<{name}>\n<command>ls</command>\n</{name}>",
    "an element after words": "I look at the files first.\n<{name}>\n<path>a.txt</path>\n</{name}>",
    "invoke": '<invoke name="{name}">\n<parameter name="path">a.txt</parameter>\n</invoke>',
    "DeepSeek": '<｜DSML｜invoke name="{name}">\n<｜DSML｜parameter name="path">a</｜DSML｜parameter>',  # noqa: RUF001
    "Qwen": "<function={name}>\n<parameter=command>\nls\n</parameter>\n</function>",
    "Hermes": '<tool_call>\n{{"name": "{name}", "arguments": {{"path": "a.txt"}}}}\n</tool_call>',
    "JSON": '{{"name": "{name}", "arguments": {{"path": "a.txt"}}}}',
    "JSON in a block": 'Let me look.\n```json\n{{"tool": "{name}", "parameters": {{"path": "a.txt"}}}}\n```',
    "ReAct": 'Thought: I look.\nAction: {name}\nAction Input: {{"path": "a.txt"}}',
    "Gemini": "```tool_code\nprint(default_api.{name}(path='a.txt'))\n```",
    "Python": "[{name}(path='a.txt')]",
    "Mistral": '[TOOL_CALLS]{name}{{"path": "a.txt"}}',
    "a channel": '<|channel|>commentary to=functions.{name} <|message|>{{"path": "a.txt"}}',
}
NAMES = call_names({tool.name: tool for tool in BUILTIN})


@pytest.mark.parametrize("form", DIALECTS.values(), ids=DIALECTS)
def test_a_call_in_writing_is_recognized_by_every_name_of_every_tool(form: str) -> None:
    assert {"execute_command", "write_to_file", "Read", "str_replace_editor"} <= {*NAMES}
    missed = [name for name in NAMES if not imitates_call(form.format(name=name), NAMES)]
    assert missed == []


SHOWN = {
    "words": "The file a.txt was written, and the tests pass.",
    "inline code": 'The parser takes `<invoke name="bash">` and `<tool_call>{…}</tool_call>` for calls.',
    "inline code at the end": f"The markup is `{JSON_CALL}`",
    "a code block with an explanation": f"A call is sent like this:\n\n```xml\n{INVOKE}\n```\n\nThe answer follows.",
    "a code block at the end of a report": f"{'I have read the whole of it. ' * 10}\n\n```json\n{JSON_CALL}\n```",
    "an explanation that ends in a code block": f"To list files, a model writes:\n\n```xml\n{INVOKE}\n```",
    "an answer to a question": f"The call is written as follows:\n```json\n{JSON_CALL}\n```",
    "an example at the end": f"An example of a call:\n\n```json\n{JSON_CALL}\n```",
    "two code blocks": f"First:\n```json\n{JSON_CALL}\n```\nthen:\n```python\nprint(1)\n```",
    "a tag in a sentence": 'The tag <invoke name="bash"> begins a call, and <tool_call> does as well.',
    "a tag at the beginning of a line": "<tool_call> and <tool_result> are the elements that the protocol knows.",
    "a whole call in a sentence": f"In the log {INVOKE} was found twice, which is one too many.",
    "indented code": "The form is this:\n\n    Action: what is done\n\nand nothing else.",
    "JSON of something else": '{"name": "deputize", "version": "1.0", "arguments": ["--help"]}',
    "JSON with a tool's name only": '{"name": "bash", "description": "Runs a command."}',
    "JSON lines": '{"level": "info", "message": "started"}\n{"level": "info", "message": "ended"}',
    "HTML": "<div>\n<bash-script src='a.sh'></bash-script>\n</div>",
    "a diff": "```diff\n- bash run.sh\n+ bash run.sh --all\n```",
    "a function in prose": "glob(pattern) returns the paths, and bash(command) its output.",
    "a list": "[1] the first source\n[2] the second source",
    "markup of a page": "<View>\n  <Text>Hello</Text>\n</View>",
    "words that are names of tools": "Search, view and edit work; create(name) makes a task, replace(a, b) renames it.",
    "a table of tools": "- read: reads a file\n- task: hands it over\n- search: {pattern}",
    "a code block with calls that are shown": "Calls look like this:\n```tool_code\nprint(default_api.bash())\n```",
    "a code block of commands": "Run this:\n\n```bash\nls -la\nglob '*.py'\n```",
}


@pytest.mark.parametrize("text", SHOWN.values(), ids=SHOWN)
def test_a_text_that_shows_or_mentions_calls_is_an_answer(text: str) -> None:
    assert not imitates_call(text, TOOLS)
    assert not imitates_call(text, NAMES)


@pytest.mark.parametrize("tools", [(), ("a.b", "c[")])
def test_any_names_of_tools_may_be_looked_for(tools: tuple[str, ...]) -> None:
    assert imitates_call(INVOKE, tools)
    assert not imitates_call("Done.", tools)


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<invoke ",
        "<invoke name=",
        "```\n",
        "`",
        "``` `` ",
        "\n",
        " \n",
        "[\n",
        '{"a":',
        "<tool_call>",
        "<a:",
        "bash(",
    ],
)
def test_no_text_takes_long_to_look_through(piece: str) -> None:
    begun = time.process_time()
    imitates_call(piece * (60_000 // len(piece)), TOOLS)
    assert time.process_time() - begun < 2
