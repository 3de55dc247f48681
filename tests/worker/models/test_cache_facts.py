"""What an endpoint reports about its prompt cache: writes by lifetime, and why a read was missed."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.worker.models.base import Price, Reply
from deputize.worker.models.stream import ReplyAssembler

PRICE = Price(input=2, output=10, cache_read=0.2, cache_write=2.5)


def assembled(message: dict[str, Any], *more: dict[str, Any], price: Price | None = None) -> Reply:
    assembler = ReplyAssembler(price)
    assembler.feed([{"type": "message_start", "message": message}, *more, {"type": "message_stop"}])
    assert assembler.done
    return assembler.finish()


def used(**counts: Any) -> Usage:
    return assembled({"usage": {"input_tokens": 10, "cache_creation_input_tokens": 1000, **counts}}).usage


def lifetimes(short: Any, long: Any) -> dict[str, Any]:
    return {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}


@pytest.mark.parametrize(
    ("cache_creation", "kept"),
    [
        (lifetimes(600, 400), 400),
        (lifetimes(1000, 0), 0),
        (lifetimes(0, 1000), 1000),
        (lifetimes(0, 2000), 1000),
        (lifetimes(None, None), 0),
        ({}, 0),
        (None, 0),
        ("?", 0),
        ([400], 0),
    ],
    ids=repr,
)
def test_what_is_kept_for_an_hour_is_a_part_of_what_was_written(cache_creation: Any, kept: int) -> None:
    usage = used(cache_creation=cache_creation)
    assert (usage.cache_write_tokens, usage.cache_write_1h_tokens, usage.total) == (1000, kept, 1010)


def test_an_endpoint_that_does_not_split_its_writes_keeps_them_for_minutes() -> None:
    assert used().cache_write_1h_tokens == 0


def test_the_hour_is_billed_from_the_beginning_of_a_reply_on() -> None:
    counts = {"cache_creation_input_tokens": 1000, "cache_creation": lifetimes(600, 400)}
    assembler = ReplyAssembler(PRICE)
    (started,) = assembler.feed([{"type": "message_start", "message": {"usage": counts}}])
    assert assembler.usage == started.usage  # pyright: ignore[reportAttributeAccessIssue]
    assert assembler.usage.cost_usd == pytest.approx((600 * 2.5 + 400 * 4) / 1e6)
    assert assembler.usage.cache_saved_usd == pytest.approx(-(600 * 0.5 + 400 * 2) / 1e6)


@pytest.mark.parametrize(
    ("message", "id"), [({"id": "msg_1"}, "msg_1"), ({}, ""), ({"id": None}, ""), ({"id": 7}, "")], ids=repr
)
def test_a_reply_has_the_endpoints_id(message: dict[str, Any], id: str) -> None:
    assert assembled(message).id == id


REASONS = (
    "model_changed",
    "system_changed",
    "tools_changed",
    "messages_changed",
    "previous_message_not_found",
    "unavailable",
)


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_read_was_missed_is_the_type_of_the_reason(reason: str) -> None:
    missed = {"type": reason, "cache_missed_input_tokens": 900}
    assert assembled({"diagnostics": {"cache_miss_reason": missed}}).cache_miss == reason


def test_every_reason_that_the_sdk_knows_is_tried() -> None:
    from anthropic.types import cache_miss_reason

    names = [name for name in vars(cache_miss_reason) if name.startswith("CacheMiss") and name != "CacheMissReason"]
    known = [getattr(cache_miss_reason, name).model_fields["type"].annotation.__args__[0] for name in names]
    assert sorted(known) == sorted(REASONS)


@pytest.mark.parametrize(
    "diagnostics",
    [
        None,
        {"cache_miss_reason": None},
        {},
        {"cache_miss_reason": {}},
        {"cache_miss_reason": {"type": None}},
        {"cache_miss_reason": {"type": ""}},
        {"cache_miss_reason": "tools_changed"},
        [1],
        "?",
    ],
    ids=repr,
)
def test_where_nothing_is_reported_there_is_no_reason(diagnostics: Any) -> None:
    assert assembled({"diagnostics": diagnostics}).cache_miss is None


def test_a_reason_is_not_longer_than_a_name() -> None:
    missed = {"type": "x" * 100_000}
    assert assembled({"diagnostics": {"cache_miss_reason": missed}}).cache_miss == "x" * 64
