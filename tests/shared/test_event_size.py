"""No event is larger than its cap in bytes, and whatever it holds, what is left of it can be read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.delegation import FileChange, Status, TerminationReason, ToolAgentResult, Usage
from deputize.shared.event_size import MAX_EVENT_BYTES, capped
from deputize.shared.events import (
    AnyEvent,
    AskedCall,
    Envelope,
    ProgressMade,
    Replied,
    RunFinished,
    RunQueued,
)
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.record import acceptance
from deputize.shared.wire import now

FILES = {f"{number}/{'f' * 900}": "x" * 9000 for number in range(90)}


def envelope(event: AnyEvent) -> Envelope:
    return Envelope(delegation_id="dlg_01k9zxv3q8h4t7m2n5p6r8s9ta", seq=2, at=now(), attempt=1, event=event)


def asked(arguments: dict[str, Any]) -> Envelope:
    calls = [AskedCall(id="toolu_01", name="bash", arguments=arguments)]
    return envelope(Replied(turn=1, stop_reason="tool_use", usage=Usage(input_tokens=7), tool_calls=calls))


def nested(depth: int, width: int) -> Any:
    return [nested(depth - 1, width)] * width if depth else "leaf"


def check(whole: Envelope) -> Envelope:
    text = capped(whole.to_json())
    assert len(text.encode()) <= MAX_EVENT_BYTES
    back = Envelope.from_json(text)
    assert back.model_dump(exclude={"event"}) == Envelope.from_json(whole.to_json()).model_dump(exclude={"event"})
    return back


@pytest.mark.requirement("P-19")
@pytest.mark.parametrize("character", ["x", "é", "字", "🙂", '"', "\n", "\u2028"])
@pytest.mark.parametrize("texts", [1, 5])
def test_the_cap_is_one_of_bytes_whatever_the_texts_are_made_of(character: str, texts: int) -> None:
    event = check(asked({str(number): character * (60_000 // texts) for number in range(texts)} | {"k": "x" * 60_000}))
    assert isinstance(event.event, Replied)
    assert "[cut: 60000 characters" in event.event.tool_calls[0].arguments["k"]


def test_an_event_of_exactly_the_cap_is_left_as_it_is_and_one_byte_more_is_cut() -> None:
    room = MAX_EVENT_BYTES - len(envelope(ProgressMade(message="")).to_json().encode())
    for message in ("x" * room, "é" * (room // 2) + "x" * (room % 2)):
        whole = envelope(ProgressMade(message=message)).to_json()
        assert capped(whole) == whole
        assert "[cut: " in capped(envelope(ProgressMade(message=message + "x")).to_json())


@pytest.mark.requirement("P-19")
@pytest.mark.parametrize(
    "arguments",
    [
        {"a": nested(3, 40)},
        {"a": nested(60, 1), "b": nested(5, 9)},
        {f"key-{number}": "v" for number in range(20_000)},
        {"k" * 100_000: 1},
        {"🙂" * 20_000: {"🙂" * 20_000: []}},
        {"a": [0.1] * 100_000},
        {"a": [{}] * 100_000},
    ],
    ids=["deep", "deeper", "keys", "one key", "keys in keys", "numbers", "objects"],
)
def test_many_small_parts_are_cut_like_few_large_ones(arguments: dict[str, Any]) -> None:
    event = check(asked(arguments)).event
    assert isinstance(event, Replied)
    assert (event.usage.input_tokens, event.tool_calls[0].name) == (7, "bash")


def test_a_cut_list_and_a_cut_object_say_so() -> None:
    event = check(asked({"list": [1] * 30_000, "object": {str(n): 1 for n in range(30_000)}})).event
    assert isinstance(event, Replied)
    arguments = event.tool_calls[0].arguments
    assert arguments["list"][-1].startswith("… [cut: 30000 entries, ")
    assert arguments["object"]["…"] == arguments["list"][-1]
    assert arguments["list"][0] == 1


def test_a_result_with_very_many_files_ends_its_stream_all_the_same() -> None:
    files = [f"folder/{number}/" + "n" * 200 for number in range(5000)]
    result = ToolAgentResult(
        delegation_id="dlg_x",
        status=Status.SUCCEEDED,
        termination_reason=TerminationReason.COMPLETED,
        summary="done",
        files_modified=files,
        file_changes=[FileChange(path=path, change="created", new_hash="a" * 64) for path in files],
    )
    event = check(envelope(RunFinished(result=result))).event
    assert isinstance(event, RunFinished)
    assert (event.result.success, event.result.summary) == (True, "done")
    assert event.result.files_modified[0].startswith("folder/0/nnn")


@pytest.mark.requirement("P-19")
@pytest.mark.parametrize(
    "request_",
    [
        {"context": "é" * 59_000},
        {"context": " " * 500_000},
        {"task": " " * 100_000 + "do it"},
        {"expected_outcome": "🙂" * 100_000},
        {"labels": {f"label-{number}": "value" * 500 for number in range(100)}},
        {"output_schema": {"enum": ["x" * 10] * 20_000}},
        {"tools": ["\x01" * 200] * 100},
        {"verify": [{"kind": "unchanged", "paths": ["p" * 900] * 100}] * 20},
        {
            "verify": [
                {"kind": "command", "run": "r" * 9000, "files": {f"{n}/" + "f" * 900: "x" * 9000 for n in range(90)}}
            ]
        },
    ],
    ids=lambda request_: next(iter(request_)),
)
def test_the_first_event_is_capped_like_every_other_and_the_record_keeps_the_request(request_: dict[str, Any]) -> None:
    request = DelegationRequest.model_validate({"task": "do it"} | request_)
    new = acceptance("dlg_x", request, request.limits, request)
    first = Envelope.from_json(new["event"])
    assert len(new["event"].encode()) <= MAX_EVENT_BYTES
    assert isinstance(first.event, RunQueued)
    assert new["fields"]["request"] == request.to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.costly
@settings(max_examples=30)
@given(st.dictionaries(st.text(), JSON), st.sampled_from([1, 100, 1000]))
def test_whatever_a_model_passes_its_event_can_be_read_back(arguments: dict[str, Any], times: int) -> None:
    check(asked({"many": [arguments] * times, "once": arguments}))
