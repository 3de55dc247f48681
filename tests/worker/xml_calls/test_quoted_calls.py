"""Where calls stand, and where a text only speaks of them."""

from __future__ import annotations

import time

import pytest

from deputize.worker.models.base import ToolSpec
from deputize.worker.xml_calls.instruction import format_tool_call
from deputize.worker.xml_calls.parser import XMLToolCallParser, find_call_elements, parse_tool_calls

TOOL = ToolSpec("tool", "", {"type": "object", "properties": {"a": {"type": "string"}}})
PROPER = format_tool_call("tool", {"a": "x"})
LINE = PROPER.replace("\n", "")
MARKDOWN = format_tool_call("tool", {"a": f"# How\n\n```\n{PROPER}\n```\n\n~~~\n"})
MANY = 300_000


@pytest.mark.parametrize(
    "text",
    [
        f"`{LINE}`",
        f"Write `{LINE}` or ``a ` b {LINE}``.",
        "The tag <tool_call> begins a call and </tool_call> ends it.",
        "The tags `<tool_call>` and `</tool_call>`; a <tool_calls> list; <tool_call/>.",
        f"An example:\n```xml\n# this is how\n{PROPER}\n```\nSo it is done.",
        f"```\n{PROPER}\n```sh\nls\n```\n",
        f"~~~~\n{PROPER}\n~~~\nstill inside\n~~~~",
        f"  ```\n  {PROPER.replace('tool<', 'unknown<')}\n  ```",
        "```\n<tool_call>\n<name>tool</name>\n…\n```",
        "```\n<tool_call>\n<name>tool</name>\n…\n```\nThat is all.",
        f"```\n{PROPER.replace('<![CDATA[x]]>', 'a & b')}\n```",
        f"```\n{PROPER}\nAnd more.\n{MARKDOWN}\n```\n",
        f"```\n{LINE.replace('</params>', '')}\n```",
        "<tool>\n<a>x</a>\n</tool>",
        "Use <tool></tool> to look.",
    ],
)
def test_a_call_that_is_only_spoken_of_is_none(text: str) -> None:
    parsed = XMLToolCallParser([TOOL]).parse_reply(text)
    assert (parsed.calls, parsed.text) == ([], text.strip())


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (LINE, 1),
        (f"I write:{LINE}{LINE}", 2),
        (f"It's a ` in a sentence.\n{PROPER}\nAnd another `.", 1),
        (f"Now `code` and {LINE} then `more`", 1),
        (f"`<tool_call>` is how. {LINE}", 1),
        (f"```python\nprint()\n```\n{PROPER}", 1),
        (f"```\n\n{PROPER}\n{PROPER}\n\n```", 2),
        (f"- so:\n    ~~~tool_call\n{PROPER}\n    ~~~~~\n{PROPER}", 2),
        (f"```\n{PROPER}", 1),
        (f"```\n{MARKDOWN}\n```\n{MARKDOWN}", 2),
        (f"<tool_call> is the tag, see:\n{PROPER}", 0),
    ],
)
def test_calls_outside_of_code_are_calls_and_so_are_those_that_fill_a_fence(text: str, calls: int) -> None:
    assert len(parse_tool_calls(text, [TOOL])) == calls


def test_a_call_inside_a_value_belongs_to_the_value() -> None:
    inner = format_tool_call("bash", {"command": "rm -rf /"})
    (call,) = parse_tool_calls(format_tool_call("tool", {"a": f"{inner}{LINE}\n</tool_call>"}), [TOOL])
    assert call.params["a"].startswith(inner)
    (bare,) = parse_tool_calls(LINE.replace("<![CDATA[x]]>", "<tool_call>\n</tool_call>"), [TOOL])
    assert bare.params["a"] == "<tool_call>\n</tool_call>"


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>",
        "<tool_call> x ",
        "<tool_call>\n",
        "<tool_call",
        "<a",
        "`",
        " ` ``",
        "```\n",
        "```a\n",
        " \n",
        "]]></a>",
        "<a>   <![CDATA[",
        "<tool_call><a><![CDATA[",
        "```\n<tool_call><x>\n```\n",
        "```\n<tool_call><x><![CDATA[\n```\n",
        f"```\nx\n{LINE}\n",
        f"` {LINE}",
        "<tool_call><name>tool</name><params><a>&amp;&",
    ],
)
@pytest.mark.parametrize("frame", ["{}", "<tool_call><name>tool</name><params><a>{}</a></params></tool_call>"])
def test_a_long_text_takes_no_longer_than_its_length(frame: str, piece: str) -> None:
    """Were the time anything but proportional, the test's time limit would be reached."""
    text = frame.replace("{}", piece * (MANY // len(piece)))
    assert all(0 <= element.start < element.end <= len(text) for element in find_call_elements(text))
    assert len(XMLToolCallParser([TOOL]).parse_reply(text).text) <= len(text)


@pytest.mark.parametrize(("end", "calls"), [("", 0), (f"\n{PROPER}", 1)])
def test_a_line_of_backticks_none_of_which_pair_takes_no_longer_than_its_length(end: str, calls: int) -> None:
    """Looked for one by one, the other end of each would take seconds, in which the worker does nothing else."""
    line = " ".join("`" * length for length in range(1, 633))
    begun = time.process_time()
    assert len(find_call_elements(line + end)) == calls
    assert time.process_time() - begun < 0.5
