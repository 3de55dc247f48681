"""What is not quite the form: put right where only one reading is possible, and refused otherwise (C14)."""

from __future__ import annotations

import pytest

from deputize.worker.models.base import ToolSpec
from deputize.worker.xml_calls.instruction import FORM
from deputize.worker.xml_calls.parser import ToolCall, XMLToolCallParser, parse_tool_calls

STRINGS = {name: {"type": "string"} for name in ("a", "b")}
TOOL = ToolSpec("tool", "", {"type": "object", "properties": STRINGS, "required": ["a"]})
NESTED = "<tool_call><name>bash</name><params><c><![CDATA[rm -rf x]]></c></params></tool_call>"


def the_call(text: str) -> ToolCall:
    (call,) = XMLToolCallParser([TOOL]).parse_reply(text).calls
    return call


def calling(*values: str) -> str:
    return f"<tool_call><name>tool</name><params>{''.join(values)}</params></tool_call>"


@pytest.mark.requirement("S003-030")
@pytest.mark.parametrize(
    ("values", "params", "warning"),
    [
        (["<a>plain</a>"], {"a": "plain"}, "a: not in CDATA"),
        (["<a> 1\n</a>"], {"a": " 1\n"}, "a: not in CDATA"),
        (["<a>x &lt; y &amp;&#38; z\r\n</a>"], {"a": "x < y && z\r\n"}, "a: not in CDATA"),
        (["<a>x && y\r\n</a>"], {"a": "x && y\r\n"}, "a: & outside of CDATA"),
        (["<a>f(x&y;)</a>"], {"a": "f(x&y;)"}, "a: & outside of CDATA"),
        (["<a>if x < y: \x00</a>"], {"a": "if x < y: \x00"}, "a: < outside of CDATA"),
        (["<a><p>hi <b>you</b></p></a>"], {"a": "<p>hi <b>you</b></p>"}, "a: < outside of CDATA"),
        (["<a>x <!-- kept --> y</a>"], {"a": "x <!-- kept --> y"}, "a: < outside of CDATA"),
        (["<a><?php echo 1 ?></a>"], {"a": "<?php echo 1 ?>"}, "a: < outside of CDATA"),
        (["<a><![CDATA[x[y[0]]>1]]></a>"], {"a": "x[y[0]]>1"}, "a: ]]> was read"),
        (["<a><![CDATA[1]]>2]]></a>", "<b><![CDATA[3]]></b>"], {"a": "1]]>2", "b": "3"}, "a: ]]> was read"),
        (["<a><![CDATA[x]]]]><![CDATA[>y]]>z]]></a>"], {"a": "x]]>y]]>z"}, "a: ]]> was read"),
        (["<a>x & y</a>", "<b><![CDATA[ & ]]></b>"], {"a": "x & y", "b": " & "}, "a: & outside of CDATA"),
        (['<param name="a">x & y</param>', "<b/>"], {"a": "x & y", "b": ""}, "a: & outside of CDATA"),
    ],
)
def test_one_reading_is_taken_and_the_model_is_warned(values: list[str], params: dict[str, str], warning: str) -> None:
    call = the_call(calling(*values))
    assert (call.problem, call.params) == (None, params)
    assert call.warnings[0].startswith(warning)
    assert len(call.warnings) == 1


@pytest.mark.requirement("S003-030")
@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("<tool_call><name>tool</name><params><a><![CDATA[x]]></a></tool_call>", "</params> was missing"),
        ("<tool_call><name>tool</name><a><![CDATA[x]]></a></tool_call>", "<params> was missing"),
        ("<tool_call><name>tool</name><a><![CDATA[x]]></a></params></tool_call>", "<params> was missing"),
        (f"```xml\n{calling('<a><![CDATA[x]]></a>')}\n```", "The call was in a code fence"),
    ],
)
def test_a_missing_frame_is_no_matter(text: str, warning: str) -> None:
    call = the_call(text)
    assert (call.problem, call.params) == (None, {"a": "x"})
    assert call.warnings[0].startswith(warning)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (calling("<a>x &lt; y && z</a>"), "a is only partly escaped: it contains both &lt; and an unescaped &"),
        (calling("<a>&#0;</a>"), "a is not valid XML"),
        (calling("<a>1 < 2 </a> 3</a>"), "the end of a is ambiguous"),
        (calling("<a>begun<![CDATA[x]]></a>"), "inside and outside of its CDATA section"),
        (calling("<a><![CDATA[x]]>y<![CDATA[z]]></a>"), "inside and outside of its CDATA section"),
        (calling("<a><![CDATA[x]]> <![CDATA[z]]></a>"), "inside and outside of its CDATA section"),
        (calling("<a>forgot the beginning]]></a>"), "only part of a is in CDATA"),
        (calling(f"<a><![CDATA[{NESTED}]]></a>"), "the end of a is ambiguous: the value contains ]]>"),
        (calling("<a><![CDATA[1]]></a>", "<a><![CDATA[2]]></a>"), "a occurs more than once"),
        (calling("<a>x & y</b>"), "<a> is not closed by </a>"),
        (calling('<a kind="text"><![CDATA[x]]></a>'), "<a> has attributes"),
        (calling("<a kind><![CDATA[x]]></a>"), "<a kind> is not a valid tag"),
        (calling("some words", "<a><![CDATA[x]]></a>"), "there is text between its tags"),
        (calling("<a><![CDATA[x]]></a>", "some & words"), "cannot be parsed from here on: some & words"),
        (calling(*(f"<a{n}>&</a{n}>" for n in range(101))), "more than 100 parameters"),
        ("<tool_call><name> </name><params></params></tool_call>", "its <name> is empty"),
        ("<tool_call><tool>tool</tool></tool_call>", "does not begin with <name>"),
        ('<tool_call>{"name": "tool"}</tool_call>', "does not begin with <name>"),
        ("<tool_call>\ntool(a='x')</tool_call>", "does not begin with <name>"),
        ("<tool_call name='tool'><params></params></tool_call>", "has attributes"),
        ("<tool_call><name>tool</name><params><a><![CDATA[x]]></b></params></tool_call>", "]]></a> is missing"),
        (f"```\nprint()\n{calling('<a><![CDATA[x]]></a>')}", "``` is missing"),
        (f"```\n{calling('<a><![CDATA[x')}", "is missing"),
    ],
)
def test_what_can_be_read_in_two_ways_or_in_none_is_refused_with_the_right_form(text: str, why: str) -> None:
    call = the_call(text)
    assert why in (call.problem or "")
    assert call.params == {}
    assert ("<a><![CDATA[your_a_here]]></a>" if call.name == "tool" else FORM) in (call.problem or "")
    assert parse_tool_calls(text, [TOOL]) == []


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE tool_call [<!ENTITY lol "lol"><!ENTITY lots "&lol;&lol;&lol;">]>',
        '<!DOCTYPE tool_call [<!ENTITY file SYSTEM "file:///etc/hostname">]>',
    ],
)
def test_entities_of_their_own_are_refused(declared: str) -> None:
    """No text can grow by being read, and nothing but the text is read."""
    inside = f"<tool_call>{declared}<name>tool</name><params><a>&lots;&file;</a></params></tool_call>"
    assert "does not begin with <name>" in (the_call(inside).problem or "")
    call = the_call(declared + calling("<a>&lots;&file;</a>"))
    assert call.params == {"a": "&lots;&file;"}


def test_a_refused_call_keeps_its_name_where_that_is_certain() -> None:
    assert the_call(calling("<a>&lt; &</a>")).name == "tool"
    assert the_call("<tool_call>\nnothing</tool_call>").name == "tool_call"


PING = ToolSpec("ping", "", {"type": "object", "properties": {}})
EDIT = ToolSpec(
    "edit",
    "",
    {"type": "object", "properties": {n: {"type": "string"} for n in ("path", "old", "new")}, "required": ["path"]},
)


def read_by(text: str) -> list[ToolCall]:
    return XMLToolCallParser([PING, EDIT, TOOL]).parse_reply(text).calls


@pytest.mark.parametrize(
    ("text", "params", "warning"),
    [
        (
            "<tool_call>\n<name>edit</name>\n<params>\n<path>a.py\n<old>x</old>\n<new>y</new>\n</params>\n</tool_call>",
            {"path": "a.py", "old": "x", "new": "y"},
            "</path> was missing.",
        ),
        (
            "<tool_call><name>edit</name><params><path>a.py</path><old>x</params></tool_call>",
            {"path": "a.py", "old": "x"},
            "</old> was missing.",
        ),
        (
            "<tool_call><name>edit</name><params><path><![CDATA[a.py]]>\n<old><![CDATA[<b>x]]></old></params></tool_call>",
            {"path": "a.py", "old": "<b>x"},
            "</path> was missing.",
        ),
        (
            "<tool_call><name>edit</name><params><path><![CDATA[a.py]]></params></tool_call>",
            {"path": "a.py"},
            "</path> was missing.",
        ),
        (
            "<tool_call><name=edit</name><params><path><![CDATA[a]]></path></params></tool_call>",
            {"path": "a"},
            "<name=edit</name> was read as <name>edit</name>.",
        ),
        (
            '<tool_call><name="edit"><params><path><![CDATA[a]]></path></params></tool_call>',
            {"path": "a"},
            '<name="edit"> was read as <name>edit</name>.',
        ),
        (
            "<tool_call><name>edit<params><path><![CDATA[a]]></path></params></tool_call>",
            {"path": "a"},
            "<name>edit was read as <name>edit</name>.",
        ),
        (
            "<tool_call><edit><path><![CDATA[a]]></path></edit></tool_call>",
            {"path": "a"},
            "<edit>…</edit> was read as <name>edit</name> and its parameters.",
        ),
        (
            "I edit it.\n\n<edit>\n<path>a</path>\n<new><![CDATA[<edit>]]></new>\n</edit>\n\nThen more.",
            {"path": "a", "new": "<edit>"},
            "<tool_call> was missing around the call.",
        ),
    ],
)
def test_what_can_only_be_meant_as_a_call_is_one(text: str, params: dict[str, str], warning: str) -> None:
    [call] = read_by(text)
    assert (call.problem, call.name, call.params) == (None, "edit", params)
    assert warning in call.warnings


@pytest.mark.parametrize(
    "text", ["<tool_call><name=ping</name></tool_call>", "<tool_call><ping></ping></tool_call>", "<ping></ping>\n"]
)
def test_a_tool_without_parameters_is_called_in_every_form(text: str) -> None:
    [call] = read_by(text)
    assert (call.problem, call.name, call.params) == (None, "ping", {})
    assert call.warnings


@pytest.mark.parametrize(
    "text",
    [
        "Use <ping></ping> to look.",
        "`<ping></ping>`",
        "```\n<ping></ping>\n```",
        "```xml\n<edit>\n<path>a</path>\n</edit>\n```",
        "<edit>\nYou edit a <path> here.\n</edit>",
        "<edit>\n<path>a</path>\n<mode>fast</mode>\n</edit>",
        "<edit>\n<old>a</old>\n</edit>",
        "<edit>\n<path>a</path>",
        "<edit><path>a</path></edit> is how it looks.",
        "<ping>words</ping>",
        "<pong></pong>",
    ],
)
def test_prose_and_code_become_no_call(text: str) -> None:
    parsed = XMLToolCallParser([PING, EDIT]).parse_reply(text)
    assert (parsed.calls, parsed.text) == ([], text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call><name>edit</name><params><path>a<old>x</old><old>y</old></params></tool_call>",
        "<tool_call><name>edit</name><params><path>if a <b>: c<old>x</old></params></tool_call>",
        "<tool_call><name>edit</name><params><path>a<unknown>x</unknown></params></tool_call>",
        "<tool_call><name>edit</name><params><path><![CDATA[a]]>b]]><old>x</old></params></tool_call>",
        "<tool_call><pong></pong></tool_call>",
        "<tool_call><edit><path>a</path></tool_call>",
        '<tool_call id="edit"><params><path>a</path></params></tool_call>',
    ],
)
def test_what_may_mean_something_else_is_not_guessed(text: str) -> None:
    [call] = read_by(text)
    assert call.problem is not None
