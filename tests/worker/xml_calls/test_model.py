"""A model whose calls travel as XML: what is sent, what comes out, and what watchers see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deputize.worker.core.conversation import Conversation
from deputize.worker.models.base import Model, Reply, TextPart
from deputize.worker.models.scripted import Script, ScriptedModel
from deputize.worker.tools.base import ToolResult
from deputize.worker.xml_calls.instruction import format_tool_call, format_tool_result, generate_tool_instruction
from deputize.worker.xml_calls.model import XmlCalls
from tests.fake_model import FakeModel, Turn, overload, text, thinking
from tests.worker.models.asking import READ, model_of, parts_of, prompt_of, reply_of

CALL = format_tool_call("read_file", {"path": "a ]]> b"})
BARE = "<tool_call><name>read_file</name><params><path>a & b</path></params></tool_call>"
CUT = "<tool_call>\n<name>read_file</name>\n<params>\n<path><![CDATA[a"


def saying(*texts: str, **more: Any) -> XmlCalls:
    turns = [{"blocks": [{"text": said}], **more} for said in texts]
    return XmlCalls(ScriptedModel(Script.model_validate({"rules": [{"turns": turns}], "label": ""})))


def shown(parts: Sequence[Any]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


async def converse(model: Model, history: Conversation, *results: ToolResult) -> Reply:
    """One turn, its calls answered with these results."""
    reply = await reply_of(model, prompt_of(history.messages))
    history.add(reply)
    if reply.calls:
        history.answer(zip(reply.calls, results, strict=True))
    return reply


async def test_what_is_sent_is_plain_text_and_the_answer_goes_back_as_it_came(fake: FakeModel) -> None:
    """The endpoint checks the signature of each thought against all that came before it."""
    first = [thinking("hm"), text(f"I read.\n{CALL}\n"), text(f"{BARE} ")]
    fake.script("", [Turn(first), Turn([thinking("so"), text(CALL)]), Turn([text("Done.")])])
    model, history = XmlCalls(model_of(fake)), Conversation()
    history.ask("hello")
    reply = await converse(model, history, ToolResult("ünï\x00 ]]>"), ToolResult(error="not found"))
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("read_file", {"path": "a ]]> b"}),
        ("read_file", {"path": "a & b"}),
    ]
    await converse(model, history, ToolResult("second"))
    assert (await converse(model, history)).text == "Done."
    bodies = [asked.body for asked in fake.journal]
    assert [asked.status for asked in fake.journal] == [200, 200, 200]
    assert all(body.keys() & {"tools", "tool_choice"} == set() for body in bodies)
    assert bodies[0]["system"] == f"You are a worker.\n\n{generate_tool_instruction([READ])}"
    sent = bodies[2]["messages"]
    assert [{**block, "signature": None} for block in sent[1]["content"]] == [{**b, "signature": None} for b in first]
    assert [block["text"] for block in sent[2]["content"]] == [
        format_tool_result("read_file", "ünï\x00 ]]>"),
        format_tool_result("read_file", "Error: not found", success=False, warnings=sent_warnings(history)),
    ]
    for earlier, later in pairwise(bodies):
        assert later["messages"][: len(earlier["messages"])] == earlier["messages"]


def sent_warnings(history: Conversation) -> list[str]:
    (warnings,) = [block["warnings"] for block in json.loads(history.messages[1])["content"] if "warnings" in block]
    assert warnings[0].startswith("path: & outside of CDATA")
    return warnings


async def test_the_same_conversation_is_sent_as_the_same_bytes_also_by_the_next_worker() -> None:
    model, history = saying(f"one {BARE}", "two"), Conversation()
    history.ask('hello "tool_use"')
    await converse(model, history, ToolResult("x"))
    prompt = prompt_of(history.messages)
    sent = model.translate(prompt)
    assert sent.messages[0] == history.messages[0]
    assert model.translate(prompt).system is sent.system
    assert saying("x").translate(prompt) == sent


async def test_words_and_calls_are_distinguished() -> None:
    reply = await reply_of(saying(f" I read.\n\n{CALL}\n{BARE}\n"), "hello")
    assert (reply.text, reply.stop_reason) == ("I read.", "tool_use")
    assert [call.problem for call in reply.calls] == [None, None]
    assert len({call.id for call in reply.calls}) == 2
    assert reply.content[0] == {"type": "text", "text": f" I read.\n\n{CALL}\n{BARE}\n"}


async def test_a_cut_call_is_answered_and_not_carried_out() -> None:
    reply = await reply_of(saying(f"{CALL}\n{CUT}", stop="max_tokens"), "hello")
    whole, cut = reply.calls
    assert (whole.problem, reply.stop_reason) == (None, "max_tokens")
    assert (cut.name, cut.arguments) == ("read_file", {})
    assert "]]></path> is missing" in (cut.problem or "")
    assert "<path><![CDATA[your_path_here]]></path>" not in (whole.problem or "")


async def test_what_is_wrong_with_a_call_survives_a_crash() -> None:
    kept: list[bytes] = []
    history = Conversation(store=kept.append)
    history.ask("hello")
    history.add(await reply_of(saying(f"{CALL}\n{CUT}"), "hello"))
    whole, cut = Conversation(kept).unanswered(1)
    assert (whole.arguments, whole.problem) == ({"path": "a ]]> b"}, None)
    assert "is missing" in (cut.problem or "")


async def test_without_tools_there_are_only_words(fake: FakeModel) -> None:
    """The request for words stands at the end, so that nothing before it changes."""
    fake.script("", [Turn([thinking("hm"), text(f"Now {CALL}")]), Turn([text(f"Words. {CALL}\n{CUT}")])])
    model, history = XmlCalls(model_of(fake)), Conversation()
    history.ask("hello")
    await converse(model, history, ToolResult("x"))
    reply = await reply_of(model, prompt_of(history.messages, allow_tools=False))
    assert (reply.calls, reply.text) == ([], f"Words. \n{CUT}")
    first, second = (asked.body for asked in fake.journal)
    assert second["system"] == first["system"]
    assert second["messages"][:1] == first["messages"]
    result, wish = second["messages"][2]["content"]
    assert result["text"].startswith("<tool_result>")
    assert "No tools are available now" in wish["text"]


async def test_a_prompt_without_tools_is_left_alone(fake: FakeModel) -> None:
    """A summary may quote calls: where there are no tools, none is made."""
    fake.script("", [Turn([text(f"It said {CALL}.")])])
    reply = await reply_of(XmlCalls(model_of(fake)), prompt_of("hello", ()))
    assert (reply.calls, reply.text) == ([], f"It said {CALL}.")
    assert fake.journal[0].body["system"] == "You are a worker."


async def test_native_calls_of_the_model_are_spelled_out_when_they_are_sent() -> None:
    """A model may have called natively before, or do so unasked."""
    model, history = saying("Done."), Conversation()
    native = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a"}}
    picture = {"type": "image", "source": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "x"}, picture]}
    lost = {"type": "tool_result", "tool_use_id": "toolu_0", "content": "y"}
    messages: list[Any] = [
        {"role": "user", "content": "plain"},
        {"role": "assistant", "content": [native]},
        {"role": "user", "content": [result, lost]},
    ]
    history.messages = [json.dumps(message).encode() for message in messages]
    _, asked, answered = (json.loads(message) for message in model.translate(prompt_of(history.messages)).messages)
    assert asked["content"] == [text(format_tool_call("read_file", {"path": "a"}))]
    assert answered["content"] == [
        text(format_tool_result("read_file", "x")),
        picture,
        text(format_tool_result("unknown", "y")),
    ]


async def test_watchers_see_the_words_and_no_xml(fake: FakeModel) -> None:
    fake.script("", [Turn([text(f"I read a <tool of mine.\n\n{CALL}\nand that.\n")], pieces=60, pace=0.002)])
    parts = await parts_of(XmlCalls(model_of(fake)), "hello")
    assert isinstance(parts[-1], Reply)
    assert shown(parts) == parts[-1].text == "I read a <tool of mine.\n\n\nand that."
    assert len(parts) > 3


async def test_what_was_held_back_is_void_when_the_turn_is_played_again(fake: FakeModel) -> None:
    said = f"Now {CALL}, and more words that follow it."
    fake.script("", [Turn([text(said)], pieces=8, faults=[overload(after=8)])])
    parts = await parts_of(XmlCalls(model_of(fake)), "hello")
    assert shown(parts) == "NowNow , and more words that follow it."


pieces = st.lists(st.sampled_from(["<tool_call>", "<tool", "<", "`", " ", "\n", "word", CALL, BARE, CUT, "_call>"]))


@given(pieces, st.booleans())
async def test_the_deltas_are_the_words_of_the_reply(said: list[str], allow_tools: bool) -> None:
    model = saying("".join(said) or "x", "".join(said) or "x")
    parts = await parts_of(model, prompt_of("hello", allow_tools=allow_tools))
    assert isinstance(parts[-1], Reply)
    assert shown(parts) == parts[-1].text


def test_it_is_the_model_it_stands_for(fake: FakeModel) -> None:
    model = model_of(fake)
    wrapped = XmlCalls(model)
    assert (wrapped.name, wrapped.price(), wrapped.window()) == (model.name, model.price(), model.window())
