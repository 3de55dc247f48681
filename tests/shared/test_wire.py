"""What travels, and what callers read about mistakes."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError, create_model

from deputize.shared import tokens
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import Wire, explain


def mistakes(**fields: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        DelegationRequest.model_validate({"task": "do it"} | fields)
    return {mistake["pointer"]: mistake["detail"] for mistake in explain(caught.value, DelegationRequest)}


@pytest.mark.requirement("P-01")
@pytest.mark.parametrize("task", ["", "  \n\t"])
def test_a_blank_task_is_refused(task: str) -> None:
    assert mistakes(task=task) == {"/task": "the task is blank; describe the work in words"}


COMMAND = {"kind": "command", "run": "make"}
HALVES = {
    "a text": ({"task": "x \ud83d"}, "/task"),
    "a text without a bound": ({"context": "\udcff"}, "/context"),
    "a text with one": ({"session_id": "\udcff"}, "/session_id"),
    "a label": ({"labels": {"a": "\udcff"}}, "/labels/a"),
    "a name in a list": ({"tools": ["bash", "\udcff"]}, "/tools/1"),
    "a path": ({"workspace": "b\udcff"}, "/workspace/path"),
    "a check": ({"verify": ["make\ud83d"]}, "/verify/0/run"),
    "a file of a check": ({"verify": [COMMAND | {"files": {"a": "\ud83d"}}]}, "/verify/0/files/a"),
    "an argument": (
        {"verify": [{"kind": "own", "name": "n", "arguments": {"a": ["\ud83d"]}}]},
        "/verify/0/arguments/a",
    ),
    "a schema": ({"output_schema": {"const": "\ud83d"}}, "/output_schema/const"),
    "a key in a schema": ({"output_schema": {"properties": {"\ud83d": {}}}}, "/output_schema/properties"),
    "JSON in a text": ({"deliver": '{"message": "\\ud83d"}'}, "/deliver/message"),
}


@pytest.mark.parametrize(("fields", "pointer"), HALVES.values(), ids=HALVES)
def test_half_of_a_character_is_refused_wherever_a_request_has_text(fields: dict[str, Any], pointer: str) -> None:
    detail = (
        "there is half of a character, a lone surrogate, which cannot be sent; write the whole character, or remove it"
    )
    assert mistakes(**fields) == {pointer: detail}


def test_whole_characters_of_every_script_are_taken() -> None:
    task = "naïve 日本 😀 \U0010ffff \x00"
    assert json.loads(DelegationRequest(task=task, labels={task: task}).given_json())["labels"] == {task: task}


@pytest.mark.parametrize("value", [object(), [{"a": object()}]], ids=["plain", "nested"])
def test_what_json_has_no_form_for_is_refused_with_a_sentence(value: Any) -> None:
    assert "cannot be written as JSON" in mistakes(output_schema={"const": value})["/output_schema/const"]


@pytest.mark.requirement("P-02")
def test_an_unknown_key_is_refused_by_name_with_the_closest_known_one() -> None:
    assert mistakes(limits={"maxTurn": 3}) == {"/limits/maxTurn": "unknown key 'maxTurn'; did you mean 'maxTurns'?"}
    assert mistakes(limits={"max_turn": 3})["/limits/max_turn"] == "unknown key 'max_turn'; did you mean 'max_turns'?"
    assert mistakes(deliver={"brunch": "x"}) == {"/deliver/brunch": "unknown key 'brunch'; did you mean 'branch'?"}
    assert mistakes(deliver={"pullRequest": {"titel": "x"}}) == {
        "/deliver/pullRequest/titel": "unknown key 'titel'; did you mean 'title'?"
    }
    assert mistakes(maxTurns=3)["/maxTurns"] == "unknown key 'maxTurns'; did you mean 'limits.maxTurns'?"
    assert mistakes(max_turn=3)["/max_turn"] == "unknown key 'max_turn'; did you mean 'limits.max_turns'?"
    assert mistakes(title=3)["/title"] == "unknown key 'title'; did you mean 'deliver.pullRequest.title'?"
    assert mistakes(url="x")["/url"] == "unknown key 'url'; did you mean 'workspace.url' or 'webhook.url'?"
    assert mistakes(wait=3)["/wait"].startswith("unknown key 'wait'; known keys: task, ")
    assert mistakes(verify=[{"kind": "comand"}])["/verify/0"].endswith("; did you mean 'command'?")
    assert mistakes(workspace={"kind": "dir"})["/workspace"].endswith("; did you mean 'directory'?")
    assert mistakes(workspace={"kind": "zzz"})["/workspace"].endswith("'archive'")
    assert mistakes(wrkspace={})["/wrkspace"] == "unknown key 'wrkspace'; did you mean 'workspace'?"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"workspace": "/srv/x"}, {"workspace": {"kind": "directory", "path": "/srv/x"}}),
        ({"workspace": '{"kind": "directory", "path": "/x"}'}, {"workspace": {"kind": "directory", "path": "/x"}}),
        ({"workspace": "{x}"}, {"workspace": {"kind": "directory", "path": "{x}"}}),
        ({"limits": '{"maxTurns": 3}'}, {"limits": {"maxTurns": 3}}),
        ({"limits": ' {"max_turns": "3", "maxTokens": null}'}, {"limits": {"maxTurns": 3}}),
        ({"tools": '["bash", "grep"]'}, {"tools": ["bash", "grep"]}),
        ({"labels": '{"a": "[1]"}'}, {"labels": {"a": "[1]"}}),
        ({"retry": '{"attempts": 2, "on": "[\\"error\\"]"}'}, {"retry": {"attempts": 2, "on": ["error"]}}),
        ({"limits": {"maxTurns": None, "timeoutSeconds": None}, "approvalMode": None, "priority": None}, {}),
        (dict.fromkeys(("workspace", "limits", "tools", "labels", "context", "tool_call_style")), {}),
        ({"context": '{"a": 1}', "systemPrompt": "[x]"}, {"context": '{"a": 1}', "systemPrompt": "[x]"}),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_callers_mean_is_taken(given: dict[str, Any], meant: dict[str, Any]) -> None:
    request = DelegationRequest.model_validate({"task": "do it"} | given)
    assert request == DelegationRequest.model_validate_json(json.dumps({"task": "do it"} | given))
    assert request.model_dump(by_alias=True, exclude_defaults=True) == {"task": "do it"} | meant


def test_null_leaves_a_field_to_the_agent() -> None:
    request = DelegationRequest.model_validate({"task": "x", "limits": {"maxTurns": None}, "approvalMode": None})
    assert json.loads(request.given_json()) == {"task": "x", "limits": {}}


@pytest.mark.parametrize(
    ("given", "pointer", "detail"),
    [
        ({"limits": '{"maxTurn": 3}'}, "/limits/maxTurn", "unknown key 'maxTurn'; did you mean 'maxTurns'?"),
        ({"limits": '{"maxTurns": 3, "maxTurns": 4}'}, "/limits", "Input should be a valid dictionary"),
        ({"limits": "3"}, "/limits", "Input should be a valid dictionary"),
        ({"tools": "bash"}, "/tools", "Input should be a valid list"),
        ({"tools": "[" * 100_000}, "/tools", "Input should be a valid list"),
        ({"tools": '["bash", 3]'}, "/tools/1", "Input should be a valid string"),
        ({"labels": {"a": None}}, "/labels/a", "Input should be a valid string"),
        ({"task": None}, "/task", "Input should be a valid string"),
        ({"priority": True}, "/priority", "Input should be a valid integer"),
        ({"limits": '{"maxTurns": true}'}, "/limits/maxTurns", "Input should be a valid integer"),
        ({"limits": {"max_tokens": False}}, "/limits/max_tokens", "Input should be a valid integer"),
        ({"limits": {"timeoutSeconds": True}}, "/limits/timeoutSeconds", "Input should be a valid number"),
        ({"workspace": ""}, "/workspace/path", "String should have at least 1 character"),
        ({"workspace": {"kind": "directory", "path": None}}, "/workspace/path", "Input should be a valid string"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_cannot_be_meant_is_refused_at_its_place(given: dict[str, Any], pointer: str, detail: str) -> None:
    ((found, said),) = mistakes(**given).items()
    assert (found, said[: len(detail)]) == (pointer, detail)


def test_a_pointer_leads_into_the_document_and_not_into_the_validators_mind() -> None:
    found = mistakes(workspace={"kind": "directory", "pth": "x"})
    assert found["/workspace/path"] == "Field required"
    assert found["/workspace/pth"] == "unknown key 'pth'; did you mean 'path'?"
    assert "/workspace" in mistakes(workspace={"kind": "tape"})
    assert "/verify/0/run" in mistakes(verify=[{"kind": "command", "run": ""}])


def test_negative_limits_are_refused() -> None:
    assert set(mistakes(limits={"maxTurns": -1, "timeoutSeconds": 0, "maxCostUsd": -2})) == {
        "/limits/maxTurns",
        "/limits/timeoutSeconds",
        "/limits/maxCostUsd",
    }


@pytest.mark.requirement("P-02")
def test_both_spellings_are_read_and_one_is_written() -> None:
    one = DelegationRequest.model_validate({"task": "t", "expectedOutcome": "o", "limits": {"maxTurns": 3}})
    other = DelegationRequest.model_validate({"task": "t", "expected_outcome": "o", "limits": {"max_turns": 3}})
    assert one == other
    assert '"expectedOutcome":"o"' in one.to_json()


@pytest.mark.requirement("P-02")
def test_a_request_survives_json_byte_for_byte() -> None:
    request = DelegationRequest(task="ä\u2028", labels={"k": "v"}, limits=Limits(max_cost_usd=0.1))
    once = request.to_json()
    assert DelegationRequest.model_validate_json(once).to_json() == once


def test_a_reader_of_results_ignores_keys_of_a_newer_writer() -> None:
    fields = {"delegationId": "d", "status": "failed", "terminationReason": "error", "newKey": 1}
    assert ToolAgentResult.model_validate(fields).success is False


def test_a_result_cannot_claim_success_that_it_did_not_have() -> None:
    with pytest.raises(ValidationError, match="status is succeeded"):
        ToolAgentResult.model_validate({"delegationId": "d", "status": "succeeded", "terminationReason": "timeout"})


def test_caps_lower_limits_and_never_raise_them() -> None:
    caps = Limits(max_turns=10, max_cost_usd=1.0)
    lowered = Limits(max_turns=50, timeout_seconds=5).capped(caps)
    assert (lowered.max_turns, lowered.timeout_seconds, lowered.max_cost_usd) == (10, 5, 1.0)


def test_ids_rise_and_have_the_form_of_the_contract() -> None:
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert all(id.startswith("dlg_") and len(id) == 30 and id == id.lower() for id in ids)


@pytest.mark.requirement("S000-044")
def test_the_vendored_encoding_is_whole_and_counts_without_a_network() -> None:
    assert hashlib.sha256(tokens.encoding_file()).hexdigest() == tokens.CHECKSUM
    assert tokens.count("hello world") == 2
    assert tokens.count("<|endoftext|>") > 1
    assert tokens.tokens_at_most("hello world") == 4


def test_a_gap_that_the_encoder_could_not_hold_is_counted() -> None:
    assert tokens.count(" " * 1_000_001) < 10_000


def test_more_mistakes_than_anybody_reads_are_counted_and_not_named() -> None:
    found = mistakes(**{f"key{number}": number for number in range(3000)})
    assert found == {"": "3,000 mistakes, too many to name; is this the right document?"}


class Fruit(Wire):
    """A fruit."""

    best_before: int
    """Day of the year,
    from 1."""
    plain: int = 0


class Apple(Fruit):
    kind: str
    """Its variety."""
    seeds: ClassVar[int] = 5
    """Not a field."""


def test_the_docstrings_of_fields_of_a_model_and_its_bases_describe_them_in_the_schema() -> None:
    properties = Apple.model_json_schema()["properties"]
    described = {name: field.get("description") for name, field in properties.items()}
    assert described == {"bestBefore": "Day of the year,\nfrom 1.", "plain": None, "kind": "Its variety."}
    made = create_model("Made", __base__=Apple)
    assert made.model_json_schema()["properties"]["kind"]["description"] == "Its variety."


def test_no_module_is_parsed_for_docstrings_before_a_schema_is_wanted() -> None:
    parsed_by_pydantic = [name for name, field in DelegationRequest.model_fields.items() if field.description]
    assert parsed_by_pydantic == []
