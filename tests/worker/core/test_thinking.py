"""Thinking in a conversation: whose it is, when it is sent again, and when it is left out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deputize.shared.delegation import Usage
from deputize.worker.core.conversation import MODEL, Conversation
from deputize.worker.models.base import Call, Reply
from deputize.worker.models.thinking import without_thinking
from deputize.worker.tools.base import ToolResult

CALLS = [Call("c1", "read_file", {"path": "é"}), Call("c2", "bash", {"command": "ls"})]


def reply(*calls: Call) -> Reply:
    content = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
    return Reply([{"type": "text", "text": "I look."}, *content], "tool_use", Usage(), "I look.", "", list(calls))


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
HIDDEN = {"type": "redacted_thinking", "data": "c2VjcmV0"}


def thoughtful(*calls: Call, refused: bool = False) -> Reply:
    return replace(reply(*calls), content=[THOUGHT, HIDDEN, *reply(*calls).content], refused_thinking=refused)


def thoughts(conversation: Conversation) -> list[int]:
    """How many blocks of thinking each message has that is sent."""
    contents = [json.loads(message)["content"] for message in conversation.messages]
    return [sum("thinking" in block["type"] for block in content) for content in contents]


def of_two_models() -> list[bytes]:
    """What is stored of a run whose model was changed."""
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append, model="one")
    conversation.ask("task")
    conversation.add(thoughtful(*CALLS))
    conversation.answer([(call, ToolResult(content="done")) for call in CALLS])
    again = Conversation(kept, store=kept.append, model="other")
    assert thoughts(again) == [0, 0, 0]
    again.add(thoughtful())
    assert thoughts(again) == [0, 0, 0, 2]
    return kept


@pytest.mark.parametrize(
    ("model", "sent"), [("one", [0, 2, 0, 0]), ("other", [0, 0, 0, 2]), ("third", [0, 0, 0, 0]), ("", [0, 0, 0, 0])]
)
def test_the_thinking_of_another_model_is_kept_and_not_sent(model: str, sent: list[int]) -> None:
    kept = of_two_models()
    conversation = Conversation(kept, model=model)
    assert thoughts(conversation) == sent
    assert all(json.loads(message).keys() == {"role", "content"} for message in conversation.messages)
    assert all(MODEL in entry.decode() for entry in (kept[1], kept[3]))
    calls = [block["id"] for block in json.loads(conversation.messages[1])["content"] if block["type"] == "tool_use"]
    assert calls == ["c1", "c2"]


def test_thinking_that_was_stored_without_its_model_is_sent() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append)
    conversation.ask("task")
    conversation.add(thoughtful())
    assert thoughts(Conversation(kept, model="any")) == [0, 2]


def test_the_problems_of_calls_and_the_model_are_stored_side_by_side() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append, model="one")
    conversation.ask("task")
    conversation.add(thoughtful(Call("c1", "read_file", {}, "not valid JSON"), CALLS[1]))
    for model in ("one", "other"):
        assert [call.problem for call in Conversation(kept, model=model).unanswered(1)] == ["not valid JSON", None]


def test_after_a_refusal_no_thinking_of_the_conversation_is_sent() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append, model="one")
    conversation.ask("task")
    conversation.add(thoughtful(CALLS[0]))
    conversation.answer([(CALLS[0], ToolResult(content="done"))])
    conversation.add(thoughtful(refused=True))
    conversation.ask("go on")
    conversation.add(thoughtful())
    assert thoughts(conversation) == [0] * 6
    assert sum(b'"signature":"s1"' in entry for entry in kept) == 3  # what was thought is stored all the same
    conversation.restart("task")
    conversation.add(thoughtful())
    assert thoughts(conversation) == [0, 0]


def test_a_reply_of_nothing_but_thinking_is_no_empty_message_without_it() -> None:
    message = json.dumps({"role": "assistant", "content": [THOUGHT]}, separators=(",", ":")).encode()
    assert json.loads(without_thinking(message))["content"] == [{"type": "text", "text": "(no words)"}]
    text = json.dumps({"role": "user", "content": '"type":"thinking"'}, separators=(",", ":")).encode()
    assert without_thinking(text) == text
