"""Where the breakpoints of a request lie, and for how long its cache entries are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from deputize.shared.compound_requests import Batch
from deputize.shared.delegation import Usage
from deputize.shared.request import DelegationRequest
from deputize.worker.core.conversation import Conversation
from deputize.worker.core.prompt import continued_task, first_message
from deputize.worker.models.base import Call, Prompt, Reply, ToolSpec
from deputize.worker.models.caching import LOOK_BACK, Retention, shared_prefixes
from deputize.worker.tools.base import ToolResult
from deputize.worker.xml_calls.model import XmlCalls
from tests.fake_model import FakeModel, text
from tests.worker.models.asking import READ, model_of, reply_of

LONG = "A sentence of the context that all of them get. " * 100
SYSTEM = "A rule of the system prompt. " * 200
MARK = {"type": "ephemeral"}


def conversation_of(task: str = "one", context: str = LONG) -> Conversation:
    return Conversation(task=first_message(DelegationRequest(task=task, context=context)))


def prompt_of(conversation: Conversation, **more: Any) -> Prompt:
    fields: dict[str, Any] = {"system": SYSTEM, "tools": (READ,), "max_output_tokens": 1000} | more
    return Prompt(messages=conversation.messages, shared_end=conversation.shared_end, sent=conversation.sent, **fields)


async def sent(fake: FakeModel, prompt: Prompt, name: str = "claude-sonnet-5-5") -> dict[str, Any]:
    await reply_of(model_of(fake, name=name), prompt)
    return fake.journal[-1].body


def marks(body: dict[str, Any]) -> list[tuple[str, ...]]:
    """Where the breakpoints of a request are: tool, system, or the message's and the block's number."""
    tools = [("tools", tool["name"]) for tool in body.get("tools", []) if "cache_control" in tool]
    system = [("system",) for block in body.get("system", []) if "cache_control" in block]
    messages = [
        ("messages", f"{at}.{number}")
        for at, message in enumerate(body["messages"])
        for number, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    automatic = [("automatic",)] if "cache_control" in body else []
    return [*tools, *system, *messages, *automatic]


async def test_tools_and_system_and_the_context_end_in_a_breakpoint(fake: FakeModel) -> None:
    body = await sent(fake, prompt_of(conversation_of()))
    assert marks(body) == [("system",), ("messages", "0.0"), ("automatic",)]
    assert [block["text"][:9] for block in body["messages"][0]["content"]] == ["# Context", "# Task\n\no"]


async def test_without_a_system_prompt_the_last_tool_has_the_breakpoint(fake: FakeModel) -> None:
    tools = (READ, ToolSpec("write_file", SYSTEM, READ.schema))
    body = await sent(fake, prompt_of(conversation_of(), system="", tools=tools))
    assert marks(body)[0] == ("tools", "write_file")


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("claude-opus-5-5", 512), ("claude-fable-5-1", 512), ("claude-sonnet-5", 1024), ("claude-haiku-4-5", 4096)],
)
async def test_a_prefix_below_the_models_minimum_has_none(fake: FakeModel, name: str, tokens: int) -> None:
    for system, expected in (("x" * (tokens * 3 - 100), []), ("x" * tokens * 3, [("system",)])):
        body = await sent(fake, prompt_of(conversation_of(context=""), system=system, tools=()), name)
        assert marks(body) == [*expected, ("automatic",)]
        found = shared_prefixes("endpoint", name, prompt_of(conversation_of(context=""), system=system, tools=()))
        assert bool(found) == bool(expected)


async def test_a_short_context_counts_with_what_precedes_it(fake: FakeModel) -> None:
    assert ("messages", "0.0") in marks(await sent(fake, prompt_of(conversation_of(context="short"))))
    body = await sent(fake, prompt_of(conversation_of(context="short"), system="short", tools=()))
    assert marks(body) == [("automatic",)]


@pytest.mark.parametrize("further", [0, 3])
async def test_the_same_context_with_another_task_has_equal_bytes_up_to_the_breakpoint(
    fake: FakeModel, further: int
) -> None:
    for task in ("Summarise a.py.", "Count the lines of b.py, and more."):
        conversation = conversation_of(task)
        for number in range(further):
            conversation.add(Reply([{"type": "text", "text": f"{task} {number}"}], "end_turn", Usage()))
            conversation.ask(f"go on with {task}")
        await sent(fake, prompt_of(conversation))
    first, second = (asked.raw for asked in fake.journal)
    end = first.index(b'"cache_control"', first.index(b"# Context"))
    assert first[:end] == second[:end]
    assert LONG.strip().encode() in first[:end]
    assert SYSTEM.encode() in first[:end]
    assert first != second


async def test_a_turn_of_many_blocks_names_the_end_of_the_request_before(fake: FakeModel) -> None:
    for blocks in (3, LOOK_BACK):
        conversation = conversation_of()
        calls = [Call(f"id{number}", "read_file", {}) for number in range(blocks)]
        content = [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}} for call in calls]
        conversation.add(Reply(content, "tool_use", Usage(input_tokens=1), calls=calls))
        conversation.answer((call, ToolResult(content="x")) for call in calls)
        body = await sent(fake, prompt_of(conversation))
        before = [("messages", "0.1")] if blocks == LOOK_BACK else []
        assert marks(body) == [("system",), ("messages", "0.0"), *before, ("automatic",)]


async def test_the_text_of_a_reply_or_a_task_is_never_taken_for_the_end_of_a_block(fake: FakeModel) -> None:
    conversation = conversation_of('tricky "}]} end }', context='a "}]} context ' * 200)
    conversation.add(Reply([text('"}]}') for _ in range(30)], "end_turn", Usage(input_tokens=1), text="x"))
    conversation.ask('go "}]} on')
    body = await sent(fake, prompt_of(conversation))
    assert body["messages"][0]["content"][1]["text"].startswith('# Task\n\ntricky "}]} end }')
    assert marks(body) == [("system",), ("messages", "0.0"), ("messages", "0.1"), ("automatic",)]


async def test_entries_kept_for_an_hour_are_marked_so_at_every_breakpoint(fake: FakeModel) -> None:
    body = await sent(fake, prompt_of(conversation_of(), cached_for_an_hour=True))
    hour = {"type": "ephemeral", "ttl": "1h"}
    assert [body["cache_control"], body["system"][0]["cache_control"]] == [hour, hour]
    assert body["messages"][0]["content"][0]["cache_control"] == hour
    model = model_of(fake)
    await reply_of(model, prompt := prompt_of(conversation_of()))
    await reply_of(model, replace(prompt, cached_for_an_hour=True))
    assert [asked.body["cache_control"] for asked in fake.journal[-2:]] == [MARK, hour]


async def test_calls_in_xml_keep_the_breakpoint_of_the_context(fake: FakeModel) -> None:
    model = XmlCalls(model_of(fake))
    await reply_of(model, prompt_of(conversation_of()))
    assert ("messages", "0.0") in marks(fake.journal[-1].body)
    await reply_of(model, prompt_of(conversation_of(), allow_tools=False))
    body = fake.journal[-1].body
    assert body["messages"][0]["content"][0]["text"].startswith("# Context")
    assert marks(body) == [("system",), ("automatic",)]


def test_a_batch_shares_its_context_beside_contexts_of_their_own() -> None:
    requests = [DelegationRequest(task=context or "none", context=context) for context in ("", "for one", "for two")]
    conversations = [
        Conversation(task=first_message(each)) for each in Batch(requests=requests, shared_context=f" {LONG}\n").each()
    ]
    ends = {(each.shared_end, each.messages[0][: each.shared_end]) for each in conversations}
    assert len(ends) == 1
    assert LONG.strip().encode() in ends.pop()[1]
    assert json.loads(conversations[1].messages[0])["content"][1]["text"] == "for one\n\n# Task\n\nfor one"


def test_a_compacted_conversation_begins_with_the_same_context() -> None:
    conversation = conversation_of()
    end = conversation.shared_end
    begin = conversation.messages[0][:end]
    conversation.restart(*continued_task(conversation.task, "the summary", ["a.py"]))
    assert conversation.shared_end == end
    assert conversation.messages[0][:end] == begin
    content = json.loads(conversation.messages[0])["content"]
    assert "the summary" in content[1]["text"]
    assert len(content) == 2


def test_the_conversation_of_an_earlier_version_has_no_shared_block() -> None:
    kept = [json.dumps({"role": "user", "content": [text(f"# Task\n\none\n\n# Context\n\n{LONG}")]}).encode()]
    task = first_message(DelegationRequest(task="one", context=LONG))
    assert Conversation(kept, task=task).shared_end == 0


def test_prefixes_differ_by_everything_that_decides_what_is_cached() -> None:
    prompt = prompt_of(conversation_of())
    short, whole = shared_prefixes("endpoint", "claude-sonnet-5", prompt)
    assert short.tokens < whole.tokens
    other_task = shared_prefixes("endpoint", "claude-sonnet-5", prompt_of(conversation_of("two")))
    assert other_task == [short, whole]
    changed = [
        shared_prefixes("other endpoint", "claude-sonnet-5", prompt),
        shared_prefixes("endpoint", "claude-sonnet-5", replace(prompt, system=SYSTEM + "x")),
        shared_prefixes("endpoint", "claude-sonnet-5", replace(prompt, tools=(replace(READ, description="x"),))),
    ]
    assert all(prefix not in (short, whole) for found in changed for prefix in found)
    other = shared_prefixes("endpoint", "claude-sonnet-5", prompt_of(conversation_of(context=LONG + "x")))
    assert other[0] == short
    assert other[1] != whole


def test_entries_are_kept_for_an_hour_after_a_gap_of_over_five_minutes() -> None:
    now = 0.0
    retention = Retention(lambda: now)
    decided: list[bool] = []
    for gap in (0, 299, 301, 1):
        now += gap
        decided.append(retention.hour())
        retention.note_reply()
    assert decided == [False, False, True, True]


def test_a_gap_that_outlasts_an_hour_pays_for_nothing() -> None:
    now = 0.0
    retention = Retention(lambda: now)
    retention.note_reply()
    now = 3601.0
    assert not retention.hour()


def test_the_request_before_had_the_messages_that_precede_its_reply() -> None:
    conversation = conversation_of()
    assert conversation.sent == 0
    conversation.add(Reply([text("x")], "end_turn", Usage(input_tokens=1), text="x"))
    conversation.ask("more")
    assert conversation.sent == 1
    assert Conversation(conversation.messages).sent == 0
