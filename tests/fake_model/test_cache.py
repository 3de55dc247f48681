"""The documented cases of prompt caching, one table each; ``words(n)`` is a block of exactly n tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.fake_model import PromptCache, text
from tests.fake_model.cache import minimum

SONNET = "claude-sonnet-5"
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TOOL = {"input_schema": {"type": "object"}, "name": "read_file"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def words(tokens: int, letter: str = "a") -> dict[str, Any]:
    return text(letter * (4 * tokens - len('{"text":"","type":"text"}')))


def size(*blocks: Mapping[str, Any]) -> int:
    bare = [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks]
    return sum(len(json.dumps(block, separators=(",", ":"))) // 4 for block in bare)


def body(*contents: Any, **more: Any) -> dict[str, Any]:
    """A request whose messages take turns; each content is one block, or a list of them."""
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": [content] if isinstance(content, dict) else content}
        for at, content in enumerate(contents)
    ]
    return {"model": SONNET, "max_tokens": 9, "messages": messages, **more}


def ask(cache: PromptCache, request: Mapping[str, Any], key: str = "k", reply: str = "m") -> tuple[int, int, int]:
    """Asks, and gets the first event: the tokens read, written and after the last breakpoint."""
    bill = cache.look_up(key, request)
    cache.begin(bill, reply)
    kinds = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    read, written, rest = (bill.usage[kind] for kind in kinds)
    return read, written, rest


def split(cache: PromptCache, request: Mapping[str, Any]) -> dict[str, int]:
    bill = cache.look_up("k", request)
    cache.begin(bill, "m")
    return bill.usage["cache_creation"]


LATER = [words(2000), *[words(10)] * 19, words(10) | MARK, *[words(10)] * 5]
TURNS = [words(2000), words(50), words(100), words(60), words(200)]
TWO_MARKS = body([words(2000) | MARK, words(100) | MARK])
REQUESTS = {
    "an entry is written at a breakpoint only, and read there": [
        (0, body([words(2000), words(1000), words(300)]), (0, 0, 3300)),
        (0, body([words(2000), words(1000) | MARK, words(300)]), (0, 3000, 300)),
        (0, body([words(2000), words(1000) | MARK, words(300)]), (3000, 0, 300)),
        (0, body([words(2000) | MARK, words(1000), words(300)]), (0, 2000, 1300)),
    ],
    "a growing conversation reads what it wrote and writes what is new": [
        (0, body(*TURNS[:1], **MARK), (0, 2000, 0)),
        (0, body(*TURNS[:3], **MARK), (2000, 150, 0)),
        (0, body(*TURNS, **MARK), (2150, 260, 0)),
    ],
    "each breakpoint looks back, and the longest match is read": [
        (0, body(words(2000) | MARK), (0, 2000, 0)),
        (0, body([words(2000) | MARK, *LATER[1:]]), (2000, 200, 50)),
        (0, body(LATER), (2200, 0, 50)),
        (0, body([words(2000) | MARK, *LATER[1:]]), (2200, 0, 50)),
    ],
    "what is read is not written again, and an entry keeps its own time": [
        (0, body([words(2000), words(100) | MARK]), (0, 2100, 0)),
        (0, body([words(2000) | HOUR, words(100) | HOUR]), (2100, 0, 0)),
        (0, body([words(2000) | MARK, words(10)]), (0, 2000, 10)),
        (300, body([words(2000), words(100) | MARK]), (0, 2100, 0)),
    ],
    "a breakpoint before the longest match refreshes its entry too": [
        (0, TWO_MARKS, (0, 2100, 0)),
        (200, TWO_MARKS, (2100, 0, 0)),
        (400, TWO_MARKS, (2100, 0, 0)),
        (600, body([words(2000) | MARK, words(90)]), (2000, 0, 90)),
    ],
}


@pytest.mark.parametrize("requests", REQUESTS.values(), ids=REQUESTS)
def test_requests_one_after_another(requests: list[tuple[int, dict[str, Any], tuple[int, int, int]]]) -> None:
    """Each request has its second, its content, and the tokens read, written and after the last breakpoint."""
    clock = Clock()
    cache = PromptCache(clock)
    for clock.now, request, expected in requests:
        assert ask(cache, request) == expected


@pytest.mark.parametrize(("back", "read"), [(0, 2000), (19, 2000), (20, 0)])
def test_twenty_positions_are_looked_at_the_breakpoint_included(back: int, read: int) -> None:
    cache = PromptCache()
    ask(cache, body(words(2000) | MARK))
    assert ask(cache, body([words(2000), *[words(10)] * back], **MARK)) == (read, 2000 - read + 10 * back, 0)


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-opus-5", 512),
        ("claude-opus-5-5", 512),
        ("claude-fable-5", 512),
        ("claude-sonnet-5", 1024),
        ("claude-haiku-4-5-20251001", 4096),
        ("another", 1024),
    ],
)
def test_a_prefix_below_the_minimum_is_neither_written_nor_read(model: str, least: int) -> None:
    cache = PromptCache()
    assert minimum(model) == least
    for tokens, cached in ((least - 1, 0), (least, least)):
        request = body([words(tokens) | MARK, words(10)], model=model)
        assert ask(cache, request) == (0, cached, tokens - cached + 10)
        assert ask(cache, request) == (cached, 0, tokens - cached + 10)


def test_an_entry_is_readable_from_the_first_event_on() -> None:
    cache = PromptCache()
    request = body(words(2000) | MARK)
    failed, first, second = (cache.look_up("k", request) for _ in range(3))
    assert [bill.usage["cache_creation_input_tokens"] for bill in (failed, first, second)] == [2000] * 3
    cache.begin(first, "m1")
    assert ask(cache, request) == (2000, 0, 0)


@pytest.mark.parametrize(("mark", "lasts"), [(MARK, 300), (HOUR, 3600)])
def test_an_entry_expires_after_its_own_time_which_a_read_begins_anew(mark: dict[str, Any], lasts: int) -> None:
    clock = Clock()
    cache = PromptCache(clock)
    ask(cache, body(words(2000) | mark))
    for _ in range(2):
        clock.now += lasts - 1
        assert ask(cache, body(words(2000) | MARK)) == (2000, 0, 0)
    clock.now += lasts
    assert ask(cache, body(words(2000) | MARK)) == (0, 2000, 0)


def test_of_two_writes_at_once_the_longer_time_counts() -> None:
    clock = Clock()
    cache = PromptCache(clock)
    bills = [cache.look_up("k", body(words(2000) | mark)) for mark in (HOUR, MARK)]
    for bill in bills:
        cache.begin(bill, "m")
    clock.now = 3599
    assert ask(cache, body(words(2000) | MARK)) == (2000, 0, 0)


def test_with_two_times_to_live_each_part_is_billed_and_kept_by_its_own() -> None:
    clock = Clock()
    cache = PromptCache(clock)
    request = body([words(1500), words(500) | MARK, words(7)], system=[words(3000) | HOUR])
    assert split(cache, request) == {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 3000}
    clock.now = 300
    assert ask(cache, request) == (3000, 2000, 7)
    assert split(cache, request) == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    small = body(words(2000) | MARK, system=[words(1000, "b") | HOUR])
    assert split(cache, small) == {"ephemeral_5m_input_tokens": 3000, "ephemeral_1h_input_tokens": 0}


def test_four_breakpoints_write_four_entries() -> None:
    cache = PromptCache()
    tools = [TOOL | {"description": "t" * 5000} | MARK]
    whole = body([words(1000) | MARK, words(1000) | MARK, words(10)], tools=tools, system=[words(1000) | MARK])
    read, written, rest = ask(cache, whole)
    first = written - 3000
    assert (read, rest) == (0, 10)
    other = words(10, "z")
    assert ask(cache, body(other, tools=tools)) == (first, 0, 10)
    assert ask(cache, body(other, tools=tools, system=whole["system"])) == (first + 1000, 0, 10)
    second = body([words(1000) | MARK, other], tools=tools, system=whole["system"])
    assert ask(cache, second) == (first + 2000, 0, 10)
    assert ask(cache, whole) == (written, 0, 10)


CALL = {"type": "tool_use", "id": "t", "name": "read_file", "input": {"a": 1, "b": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
RECALL = CALL | {"input": {"b": 2, "a": 1}}
TOOLS = [TOOL, TOOL | {"name": "write", "description": "d" * 5000} | MARK]
WHOLE = body([words(1000) | MARK], CALL, RESULT, tools=TOOLS, system=[words(2000) | MARK], **MARK)
TO_SYSTEM = size(*TOOLS)
TO_MESSAGES = TO_SYSTEM + 2000
TO_END = TO_MESSAGES + 1000 + size(CALL, RESULT)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({"model": "claude-sonnet-5-5"}, 0),
        ({"tools": TOOLS[::-1]}, 0),
        ({"tools": [*TOOLS, TOOL | {"name": "third"}]}, TO_SYSTEM),
        ({"system": [words(2000, "b") | MARK]}, TO_SYSTEM),
        ({"tool_choice": {"type": "none"}}, TO_MESSAGES),
        ({"thinking": {"type": "adaptive"}}, TO_MESSAGES),
        ({"messages": body(words(1000, "b") | MARK)["messages"]}, TO_MESSAGES),
        ({"messages": [{"role": "assistant", "content": [words(1000)]}, *WHOLE["messages"][1:]]}, TO_MESSAGES),
        ({"messages": body(words(1000) | MARK, RECALL, RESULT)["messages"]}, TO_MESSAGES + 1000),
        ({"messages": [{"role": "user", "content": words(1000)["text"]}, *WHOLE["messages"][1:]]}, None),
        ({"system": words(2000)["text"]}, None),
        ({"tools": [dict(reversed(tool.items())) for tool in TOOLS]}, None),
        ({"max_tokens": 10, "stream": True, "diagnostics": {}, "metadata": {"user_id": "u"}}, None),
        ({"cache_control": {"type": "ephemeral", "ttl": "5m"}}, None),
    ],
)
def test_what_is_read_after_a_change(change: dict[str, Any], read: int | None) -> None:
    """None: all of it."""
    cache = PromptCache()
    _, written, _ = ask(cache, WHOLE)
    assert ask(cache, WHOLE | change)[0] == (written if read is None else read)


def test_another_workspace_reads_nothing() -> None:
    cache = PromptCache()
    ask(cache, WHOLE, key="one")
    assert ask(cache, WHOLE, key="other")[0] == 0


def test_the_automatic_breakpoint_lies_on_the_last_block_that_can_carry_one() -> None:
    thought = {"type": "thinking", "thinking": "x" * 400, "signature": ""}
    request = body(words(2000), [words(100), thought, text("")], **MARK)
    read, written, rest = ask(PromptCache(), request)
    assert (read, written) == (0, 2100)
    assert rest > 100
    same = body([words(2000), words(100) | MARK], **MARK)
    assert ask(PromptCache(), same) == (0, 2100, 0)


def missed(kind: str, tokens: int | None = None) -> dict[str, Any]:
    return {"type": kind} | ({} if tokens is None else {"cache_missed_input_tokens": tokens})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"messages": [*WHOLE["messages"], {"role": "assistant", "content": "more"}]}, None),
        ({"model": "other"}, missed("model_changed", TO_END)),
        ({"tools": [TOOL]}, missed("tools_changed", TO_END - size(TOOL))),
        ({"system": "other"}, missed("system_changed", TO_END - TO_SYSTEM)),
        ({"messages": WHOLE["messages"][:1]}, missed("messages_changed", size(CALL, RESULT))),
        ({"tools": [], "system": "other", "messages": []}, missed("tools_changed", TO_END)),
        ({"tool_choice": {"type": "none"}}, missed("unavailable")),
    ],
)
def test_diagnostics_name_the_first_divergence(change: dict[str, Any], reason: dict[str, Any] | None) -> None:
    cache = PromptCache()
    first = cache.look_up("k", WHOLE | {"diagnostics": {"previous_message_id": None}})
    assert first.answer == {"diagnostics": None}
    cache.begin(first, "m1")
    answer = cache.look_up("k", WHOLE | {"diagnostics": {"previous_message_id": "m1"}} | change).answer
    assert answer == {"diagnostics": reason and {"cache_miss_reason": reason}}


def test_diagnostics_compare_only_with_requests_that_asked_for_them() -> None:
    cache = PromptCache()
    not_found = {"diagnostics": {"cache_miss_reason": missed("previous_message_not_found")}}
    asking = WHOLE | {"diagnostics": {"previous_message_id": "m1"}}
    silent, begun = cache.look_up("k", WHOLE), cache.look_up("k", asking)
    assert (silent.answer, begun.answer) == ({}, not_found)
    cache.begin(silent, "m1")
    assert cache.look_up("k", asking).answer == not_found
    cache.begin(begun, "m1")
    assert cache.look_up("other", asking).answer == not_found
    assert cache.look_up("k", asking).answer == {"diagnostics": None}
