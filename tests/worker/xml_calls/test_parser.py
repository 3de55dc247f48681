"""Calls in a text: their form, the types of their values, and what is repaired and refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deputize.worker.models.base import ToolSpec
from deputize.worker.xml_calls.instruction import FORM, format_tool_call
from deputize.worker.xml_calls.parser import ToolCall, XMLToolCallParser, coerce, parse_tool_calls

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
    text = f"<tool_call>\r\n <name > tool </name >\r\n <params>\r\n{value}\n</params></tool_call >"
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


def test_nothing_after_a_call_that_never_ends_is_taken_for_a_call() -> None:
    """It may be the content of a file that the model was writing."""
    for unfinished in ("<tool_call><name>tool</name><params><text>", "<tool_call><name>a</name><b><![CDATA["):
        parsed = XMLToolCallParser([TOOL]).parse_reply(f"{unfinished}\n{PROPER}\n{PROPER}")
        assert [call.problem is None for call in parsed.calls] == [False]


def test_an_unknown_tool_is_a_call_that_others_answer() -> None:
    assert parse_tool_calls(PROPER.replace("tool</", "other</"), [TOOL])[0].name == "other"


def test_where_problems_do_not_count_their_words_stay() -> None:
    text = "Use <tool_call><name> at the beginning."
    parsed = XMLToolCallParser([TOOL]).parse_reply(text, problems=False)
    assert (parsed.text, parsed.calls) == (text, [])


# Types


@pytest.mark.requirement("S003-029")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("123", 123),
        ("-5", -5),
        ("0", 0),
        ("3.14", 3.14),
        *((text, text) for text in ("text", "", "007", "1.2.3", " 1", "True", "nan", "1e5", "٣")),
        *((text, text) for text in ("9" * 400 + ".0", "9" * 5000)),
    ],
)
def test_a_value_without_a_declared_type_has_the_type_it_looks_like(text: str, value: Any) -> None:
    found = coerce(text, frozenset())
    assert (type(found), found) == (type(value), value)


@pytest.mark.requirement("S003-029")
@pytest.mark.parametrize("text", ["123", "true", "3.14", " x \n", "null", "", '{"a": 1}', "[1]"])
def test_a_string_stays_verbatim(text: str) -> None:
    assert coerce(text, frozenset({"string"})) == text
    assert coerce(text, frozenset({"string", "null", "integer", "boolean"})) == text


DEEP = "[" * 65 + "]" * 65


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        (" 7\n", ["integer"], 7),
        ("7", ["number"], 7),
        ("7.5", ["number"], 7.5),
        (" true", ["boolean"], True),
        ("null", ["integer", "null"], None),
        ('["a", 1]', ["array"], ["a", 1]),
        ('\n{"a": [true]} ', ["object"], {"a": [True]}),
        ('["a"]', ["string", "array"], ["a"]),
        ('{"a": 1}', ["string", "array"], '{"a": 1}'),
        ('["\\ud83d\\ude42", "\\ud83d"]', ["array"], ["🙂", "\ufffd"]),
    ],
)
def test_a_value_has_its_declared_type(text: str, types: list[str], value: Any) -> None:
    found = coerce(text, frozenset(types))
    assert (type(found), found) == (type(value), value)


def test_a_structure_may_be_as_deep_as_encoders_accept() -> None:
    assert isinstance(coerce(DEEP[1:-1], frozenset({"array"})), list)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        *((text, "integer") for text in ("7.5", "seven", "true", "+7", "9" * 5000)),
        *((text, "number") for text in ("1e999", "NaN", "Infinity", ".5", "true")),
        *((text, "boolean") for text in ("yes", "TRUE", "null", "1", "")),
        *((text, "array") for text in ("[1,", "[NaN]", "[1e999]", "{}", "[" * 100_000, DEEP)),
        ("[]", "object"),
    ],
)
def test_a_value_that_does_not_fit_stays_a_text_for_the_tool_to_refuse(text: str, type: str) -> None:
    assert coerce(text, frozenset({type})) == text


# Repairs and refusals

EDIT = ToolSpec(
    "edit",
    "",
    {"type": "object", "properties": {name: {"type": "string"} for name in ("a", "b")}, "required": ["a"]},
)
NESTED = "<tool_call><name>bash</name><params><c><![CDATA[rm -rf x]]></c></params></tool_call>"
SECTION = "<a><![CDATA[x]]></a>"


def edit(*values: str) -> str:
    return f"<tool_call><name>edit</name><params>{''.join(values)}</params></tool_call>"


def the_call(text: str) -> ToolCall:
    (call,) = XMLToolCallParser([EDIT]).parse_reply(text).calls
    return call


@pytest.mark.requirement("S003-030")
@pytest.mark.parametrize(
    ("text", "params", "warning"),
    [
        (edit("<a>plain</a>"), {"a": "plain"}, "a: not in CDATA"),
        (edit("<a> 1\n</a>"), {"a": " 1\n"}, "a: not in CDATA"),
        (edit("<a>x &lt; y &amp;&#38; z\r\n</a>"), {"a": "x < y && z\r\n"}, "a: not in CDATA"),
        (edit("<a>x && y\r\n</a>"), {"a": "x && y\r\n"}, "a: & outside of CDATA"),
        (edit("<a>f(x&y;)</a>"), {"a": "f(x&y;)"}, "a: & outside of CDATA"),
        (edit("<a>if x < y: \x00</a>"), {"a": "if x < y: \x00"}, "a: < outside of CDATA"),
        (edit("<a><p>hi <b>you</b></p></a>"), {"a": "<p>hi <b>you</b></p>"}, "a: < outside of CDATA"),
        (edit("<a>x <!-- kept --> y</a>"), {"a": "x <!-- kept --> y"}, "a: < outside of CDATA"),
        (edit("<a><?php echo 1 ?></a>"), {"a": "<?php echo 1 ?>"}, "a: < outside of CDATA"),
        (edit("<a>x.svg</a>", "<b><![CDATA[<a></a>]]></b>"), {"a": "x.svg", "b": "<a></a>"}, "a: not in CDATA"),
        (edit("<a><![CDATA[x[y[0]]>1]]></a>"), {"a": "x[y[0]]>1"}, "a: ]]> was read"),
        (edit("<a><![CDATA[1]]>2]]></a>", "<b><![CDATA[3]]></b>"), {"a": "1]]>2", "b": "3"}, "a: ]]> was read"),
        (edit("<a><![CDATA[x]]]]><![CDATA[>y]]>z]]></a>"), {"a": "x]]>y]]>z"}, "a: ]]> was read"),
        (edit("<a>x & y</a>", "<b><![CDATA[ & ]]></b>"), {"a": "x & y", "b": " & "}, "a: & outside of CDATA"),
        (edit('<param name="a">x & y</param>', "<b/>"), {"a": "x & y", "b": ""}, 'param name="a": & outside'),
        (edit(SECTION).replace("</params>", ""), {"a": "x"}, "</params> was missing"),
        (edit(SECTION).replace("<params>", ""), {"a": "x"}, "<params> was missing"),
        (f"<tool_call><name>edit</name>{SECTION}</tool_call>", {"a": "x"}, "<params> was missing"),
        (f"```xml\n{edit(SECTION)}\n```", {"a": "x"}, "The call was in a code fence"),
    ],
)
def test_a_call_with_one_possible_reading_is_repaired_with_a_warning(
    text: str, params: dict[str, str], warning: str
) -> None:
    call = the_call(text)
    assert (call.problem, call.params) == (None, params)
    (only,) = call.warnings
    assert only.startswith(warning)


@pytest.mark.requirement("S003-030")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (edit("<a>x &lt; y && z</a>"), "a is only partly escaped: it contains both &lt; and an unescaped &"),
        (edit("<a>&#0;</a>"), "<a> is not valid XML"),
        (edit("<a>1 < 2 </a> 3</a>"), "the end of a is ambiguous"),
        (edit("<a>1 </a> 3</a>"), "cannot be parsed from here on: 3"),
        (edit("<a>begun<![CDATA[x]]></a>"), "only part of a is in CDATA"),
        (edit("<a><![CDATA[x]]>y<![CDATA[z]]></a>"), "the end of a is ambiguous: the value contains ]]>"),
        (edit("<a><![CDATA[x]]> <![CDATA[z]]></a>"), "the end of a is ambiguous: the value contains ]]>"),
        (edit("<a>forgot the beginning]]></a>"), "only part of a is in CDATA"),
        (edit(f"<a><![CDATA[{NESTED}]]></a>"), "the end of a is ambiguous: the value contains ]]>"),
        (edit(SECTION, SECTION), "a occurs more than once"),
        (edit("<a>x & y</b>"), "<a> is not closed by </a>"),
        (edit("<a>x", "<b>y</b>"), "<a> is not closed by </a>"),
        (edit("<a><![CDATA[x]]>", "<b>y</b>"), "]]></a> is missing"),
        (edit("<a><![CDATA[x]]></b>"), "]]></a> is missing"),
        (edit('<a kind="text"><![CDATA[x]]></a>'), "<a> has attributes"),
        (edit("<a kind><![CDATA[x]]></a>"), "<a kind> is not valid XML"),
        (edit("some words", SECTION), "cannot be parsed from here on: some words"),
        (edit(SECTION, "some & words"), "cannot be parsed from here on: some & words"),
        (edit(*(f"<a{n}>&</a{n}>" for n in range(101))), "more than 100 parameters"),
        ("<tool_call><name> </name><params></params></tool_call>", "does not begin with"),
        ("<tool_call><name>ed&#105;t</name></tool_call>", "does not begin with"),
        ("<tool_call><tool>edit</tool></tool_call>", "does not begin with"),
        ('<tool_call>{"name": "edit"}</tool_call>', "does not begin with"),
        ("<tool_call>\nedit(a='x')</tool_call>", "does not begin with"),
        (f'<tool_call name="edit"><params>{SECTION}</params></tool_call>', "does not begin with"),
        (f"<tool_call><name=edit</name><params>{SECTION}</params></tool_call>", "does not begin with"),
        (f"<tool_call><name>edit<params>{SECTION}</params></tool_call>", "does not begin with"),
        (f"<tool_call><edit>{SECTION}</edit></tool_call>", "does not begin with"),
        (f"```\nprint()\n{edit(SECTION)}", "``` is missing"),
        (f"```\n{edit('<a><![CDATA[x')}", "is missing"),
        (edit(SECTION).removesuffix("</tool_call>"), "</tool_call> is missing"),
    ],
)
def test_any_other_form_is_refused_with_the_right_one(text: str, why: str) -> None:
    call = the_call(text)
    assert why in (call.problem or "")
    assert call.params == {}
    assert ("<a><![CDATA[your_a_here]]></a>" if call.name == "edit" else FORM) in (call.problem or "")
    assert parse_tool_calls(text, [EDIT]) == []


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE tool_call [<!ENTITY lol "lol"><!ENTITY lots "&lol;&lol;&lol;">]>',
        '<!DOCTYPE tool_call [<!ENTITY file SYSTEM "file:///etc/hostname">]>',
    ],
)
def test_entities_that_a_text_declares_are_not_expanded(declared: str) -> None:
    inside = f"<tool_call>{declared}<name>edit</name><params><a>&lots;&file;</a></params></tool_call>"
    assert "does not begin with" in (the_call(inside).problem or "")
    call = the_call(declared + edit("<a>&lots;&file;</a>"))
    assert call.params == {"a": "&lots;&file;"}


def test_a_refused_call_keeps_its_name_where_that_is_certain() -> None:
    assert the_call(edit("<a>&lt; &</a>")).name == "edit"
    assert the_call("<tool_call>\nnothing</tool_call>").name == "tool_call"
