"""Calls in a text: what is one, what it says, and that nothing else is ever one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deputize.worker.models.base import ToolSpec
from deputize.worker.xml_calls.instruction import format_tool_call
from deputize.worker.xml_calls.parser import ToolCall, XMLToolCallParser, parse_tool_calls

TOOL = ToolSpec(
    "tool",
    "Does it.",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "items": {"type": "array"},
            "fields": {"type": "object"},
        },
        "required": ["text"],
    },
)
PROPER = format_tool_call("tool", {"text": "x"})

texts = st.text(st.characters(exclude_categories=()))
"""Every character there is: control characters and halves of surrogate pairs included."""
awkward = st.lists(
    st.sampled_from(
        [*"]>&<\r\n\t\x00`", "]]>", "<![CDATA[", "</text>", "</tool_call>", "<tool_call>", "&amp;", "```\n"]
    )
).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def params_of(text: str, *tools: ToolSpec) -> dict[str, Any]:
    (call,) = parse_tool_calls(text, tools)
    return call.params


@pytest.mark.requirement("S003-024", "S003-026", "S003-031")
def test_a_call_has_a_name_parameters_and_what_was_written() -> None:
    text = "<tool_call><name>search</name><params><query><![CDATA[cats]]></query></params></tool_call>"
    assert parse_tool_calls(f"I look it up. {text}") == [ToolCall("search", {"query": "cats"}, text)]
    assert ToolCall("search", {}).raw_text == ""


@pytest.mark.requirement("S003-027")
def test_several_calls_in_one_text_come_in_their_order() -> None:
    text = f"First:\n{PROPER}\nthen {PROPER.replace('>x<', '>y<').replace('[x]', '[y]')}{PROPER} done"
    parsed = XMLToolCallParser([TOOL]).parse_reply(text)
    assert [call.params["text"] for call in parsed.calls] == ["x", "y", "x"]
    assert parsed.text == "First:\n\nthen  done"


@pytest.mark.requirement("S003-025", "S003-028")
@pytest.mark.parametrize(
    "value",
    [
        'if a < b && c > "d": # \'&amp;\' <tag attr="1">',
        "def f():\n\treturn 1\n\n\n    # indented\n",
        "  blanks around \n",
        "windows\r\nline ends\r",
        "\x00\x08\x0b\x0c\x1b[0m\x1f\x7f\x85\u2028\ufffe\uffff\U0010fffd\U0010fffd!\U0010ffff",
        "<![CDATA[x]]> and ]]> and ]]]]><![CDATA[>",
        "]",
        "]]",
        "]]>",
        "",
        PROPER,
        f"</tool_call>{PROPER}",
        "```\n# in a fence\n```",
    ],
)
def test_what_stands_in_cdata_stays_as_it_is(value: str) -> None:
    (call,) = parse_tool_calls(format_tool_call("tool", {"text": value, "number": 1}), [TOOL])
    assert (call.params, call.warnings) == ({"text": value, "number": 1}, ())


def test_blanks_and_lines_around_a_section_are_layout() -> None:
    value = "<text>\r\n  <![CDATA[ x ]]>\n </text>"
    text = f"<tool_call>\r\n <name> tool </name>\r\n <params>\r\n{value}\n</params></tool_call >"
    assert params_of(text, TOOL) == {"text": " x "}


@pytest.mark.parametrize("name", ["$filter", "a b", "1st", "ns:key", 'quo"te', "<&>", "line\nbreak", "ü"])
def test_a_parameter_whose_name_cannot_be_a_tag_has_a_form_of_its_own(name: str) -> None:
    (call,) = parse_tool_calls(format_tool_call("tool", {name: "]]>"}))
    assert (call.params, call.warnings) == ({name: "]]>"}, ())


@pytest.mark.parametrize("form", ["<params></params>", "<params/>", ""])
def test_a_call_may_be_without_parameters(form: str) -> None:
    assert parse_tool_calls(f"<tool_call><name>tool</name>{form}</tool_call>")[0].params == {}


@given(
    text=texts | awkward,
    number=st.integers(),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    items=st.lists(json_values, max_size=4),
    fields=st.dictionaries(st.text(), json_values, max_size=4),
)
def test_every_value_survives_the_way(**arguments: Any) -> None:
    written = format_tool_call("tool", arguments)
    (call,) = parse_tool_calls(f"Well.\n{written}\n", [TOOL])
    assert call == ToolCall("tool", arguments, written)


@given(st.dictionaries(st.text(min_size=1), awkward, max_size=5))
def test_every_name_of_a_parameter_survives_the_way(arguments: dict[str, str]) -> None:
    tool = ToolSpec("tool", "", {"properties": {name: {"type": "string"} for name in arguments}})
    assert params_of(format_tool_call("tool", arguments), tool) == arguments


pieces = st.lists(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "<name>", "tool", "</name>", "<params>", "</params>", "<text>", "</text>"),
            *("<![CDATA[", "]]>", " ", "\n", "`", "```\n", "```xml\n", "\n```\n", "~~~\n", "<", ">", "&", "&lt;", "x"),
            *("<tool_call", "<text/>", "<!-- -->", "<!DOCTYPE a>", "<?pi?>", '<param name="text">', "</param>", PROPER),
        ]
    )
).map("".join)


@given(st.text() | pieces | texts)
@example("<tool_call>" * 50)
@example("<tool_call>\n<name>tool</name>\n<params>\n<text><![CDATA[x")
def test_no_text_raises_and_no_call_is_made_up(text: str) -> None:
    """Each call stands in the text from its beginning to its end, its name and each string value as they are there."""
    parsed = XMLToolCallParser([TOOL]).parse_reply(text)
    left = text
    for call in parse_tool_calls(text, [TOOL]):
        assert call.problem is None
        assert call.raw_text.startswith("<tool_call")
        assert re.search(r"</tool_call\s*>\Z", call.raw_text)
        assert call.name in call.raw_text
        assert call.raw_text in left
        left = left.partition(call.raw_text)[2]
    assert all(call.raw_text in text for call in parsed.calls)


@given(awkward | st.text(), st.integers(min_value=0))
def test_a_call_that_is_cut_anywhere_is_never_carried_out(value: str, cut: int) -> None:
    written = format_tool_call("tool", {"text": value, "number": 1})
    part = written[: cut % len(written)]
    parsed = XMLToolCallParser([TOOL]).parse_reply(part)
    assert parse_tool_calls(part, [TOOL]) == []
    assert len(parsed.calls) <= 1
    assert all("is not complete" in (call.problem or "") for call in parsed.calls)


def test_a_call_that_is_cut_is_told_the_right_form_of_its_tool() -> None:
    (call,) = XMLToolCallParser([TOOL]).parse_reply(PROPER.removesuffix("</tool_call>")).calls
    assert (call.name, call.params) == ("tool", {})
    assert "</tool_call> is missing" in (call.problem or "")
    assert "<text><![CDATA[your_text_here]]></text>" in (call.problem or "")


def test_nothing_after_a_call_that_never_ends_is_taken_for_a_call() -> None:
    """It may be the content of a file that the model was writing."""
    for unfinished in ("<tool_call><name>tool</name><params><text>", "<tool_call><name>a</name><b><![CDATA["):
        parsed = XMLToolCallParser([TOOL]).parse_reply(f"{unfinished}\n{PROPER}\n{PROPER}")
        assert [call.problem is None for call in parsed.calls] == [False]


def test_calls_before_one_that_is_cut_are_carried_out() -> None:
    parsed = XMLToolCallParser([TOOL]).parse_reply(f"{PROPER}\n{PROPER[:-5]}")
    assert [call.problem is None for call in parsed.calls] == [True, False]


def test_an_unknown_tool_is_a_call_that_others_answer() -> None:
    assert parse_tool_calls(PROPER.replace("tool</", "other</"), [TOOL])[0].name == "other"


def test_where_problems_do_not_count_their_words_stay() -> None:
    text = "Use <tool_call><name> at the beginning."
    parsed = XMLToolCallParser([TOOL]).parse_reply(text, problems=False)
    assert (parsed.text, parsed.calls) == (text, [])
