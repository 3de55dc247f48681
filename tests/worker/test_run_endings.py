"""What a run makes of the end of a reply: what it asks, what it executes, and what its result has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import Settings
from deputize.worker.models import close_models
from deputize.worker.task import carry_out
from deputize.worker.xml_calls.instruction import format_tool_call
from tests.fake_model import FakeModel, Turn, call, refuse, text, thinking
from tests.runs.bench import Bench, open_bench, talking
from tests.runs.nesting import carrying_out

INVOKE = '<invoke name="bash">\n<parameter name="command">touch a.txt</parameter>\n</invoke>'
WRITE = call("write_file", path="a.txt", content="x")
LONG = call("write_file", path="a.txt", content="x" * 3000)


async def ran(redis_url: str, tmp_path: Path, *turns: Turn, **fields: Any) -> tuple[ToolAgentResult, FakeModel]:
    async with talking(redis_url, tmp_path / "home", *turns) as (bench, fake):
        return await bench.run(**fields), fake


def last_texts(fake: FakeModel) -> list[str]:
    return [each.body["messages"][-1]["content"][-1].get("text", "") for each in fake.journal]


async def test_a_call_in_writing_is_asked_for_again_and_the_real_one_is_executed(
    redis_url: str, tmp_path: Path
) -> None:
    turns = Turn([text(f"I make it.\n{INVOKE}")]), Turn([WRITE]), Turn([text("Written.")])
    result, fake = await ran(redis_url, tmp_path, *turns)
    assert (result.status, result.summary, result.files_modified) == ("succeeded", "Written.", ["a.txt"])
    assert 'type="call_in_text"' in last_texts(fake)[1]


@pytest.mark.parametrize("stop", ["end_turn", "tool_use", "max_tokens", "stop_sequence", "who_knows"])
async def test_a_model_that_only_writes_its_calls_has_failed_and_the_result_has_the_reason(
    redis_url: str, tmp_path: Path, stop: str
) -> None:
    result, fake = await ran(redis_url, tmp_path, Turn([text(INVOKE)], stop=stop))
    assert (result.status, result.success, result.files_modified, len(fake.journal)) == ("failed", False, [], 3)
    assert "tool calls" in result.summary
    assert "<invoke" not in result.summary
    assert result.errors == [result.summary]


async def test_a_reply_that_announces_a_call_and_makes_none_is_no_end(redis_url: str, tmp_path: Path) -> None:
    result, fake = await ran(redis_url, tmp_path, Turn([text("I write it.")], stop="tool_use"), Turn([text("Done.")]))
    assert (result.status, result.summary, len(fake.journal)) == ("succeeded", "Done.", 2)


async def test_calls_in_writing_and_empty_replies_in_turn_are_not_asked_about_for_ever(
    redis_url: str, tmp_path: Path
) -> None:
    turns = [Turn([text(INVOKE)]), Turn([]), Turn([text(INVOKE)]), Turn([])] * 5
    result, fake = await ran(redis_url, tmp_path, *turns)
    assert (result.status, len(fake.journal)) == ("failed", 2)


async def test_an_answer_that_shows_calls_as_code_is_an_answer(redis_url: str, tmp_path: Path) -> None:
    answer = f"Calls have this form:\n\n```xml\n{INVOKE}\n```\n\nThe harness executes them."
    result, fake = await ran(redis_url, tmp_path, Turn([text(answer)]))
    assert (result.status, result.summary, len(fake.journal)) == ("succeeded", answer, 1)


async def test_a_call_in_writing_is_no_summary_where_a_limit_ends_the_run(redis_url: str, tmp_path: Path) -> None:
    result, _ = await ran(redis_url, tmp_path, Turn([WRITE]), Turn([text(INVOKE)]), limits={"max_turns": 1})
    assert (result.termination_reason, result.files_modified) == ("max_turns", ["a.txt"])
    assert result.summary == "Stopped: maxTurns 1 reached. 1 step was made."


async def test_in_calls_as_xml_another_form_is_asked_for_again_as_well(redis_url: str, tmp_path: Path) -> None:
    written = format_tool_call("write_file", {"path": "a.txt", "content": "x"})
    turns = Turn([text(INVOKE)]), Turn([text(written)]), Turn([text("Written.")])
    result, _ = await ran(redis_url, tmp_path, *turns, tool_call_style="xml")
    assert (result.status, result.summary, result.files_modified) == ("succeeded", "Written.", ["a.txt"])


@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
async def test_a_refusal_states_the_reason_and_its_calls_are_not_executed(
    redis_url: str, tmp_path: Path, stop: str
) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "This would do harm."}
    turn = Turn([text("I must not."), WRITE], stop=stop, details=details)
    result, _ = await ran(redis_url, tmp_path, turn, Turn([text("never")]))
    assert (result.status, result.termination_reason, result.files_modified) == ("failed", "refused", [])
    for said in (result.summary, *result.errors):
        assert f"({stop}: cyber: This would do harm.)" in said
        assert said.endswith("Its words: I must not.")
    assert len(result.errors) == 1


@pytest.mark.parametrize(("stop", "named"), [("error", "'error'"), ("who_knows", "'who_knows'"), (None, "no stop")])
async def test_an_end_of_an_unknown_kind_is_no_success(
    redis_url: str, tmp_path: Path, stop: str | None, named: str
) -> None:
    raw = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 10}}},
        {"type": "content_block_start", "index": 0, "content_block": text("The answer.")},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    result, fake = await ran(redis_url, tmp_path, Turn(raw=raw))
    assert (result.status, result.termination_reason, len(fake.journal)) == ("failed", "model_unavailable", 3)
    (error,) = result.errors
    assert named in error
    assert "may be incomplete" in error


async def test_after_an_end_of_an_unknown_kind_the_whole_answer_is_asked_for(redis_url: str, tmp_path: Path) -> None:
    turns = Turn([text("Half of the ans")], stop="timeout"), Turn([WRITE], stop="abort"), Turn([text("The answer.")])
    result, _ = await ran(redis_url, tmp_path, *turns)
    assert (result.status, result.summary, result.files_modified) == ("succeeded", "The answer.", ["a.txt"])


async def test_a_call_in_writing_by_another_name_of_its_tool_is_asked_for_as_a_call(
    redis_url: str, tmp_path: Path
) -> None:
    written = "<execute_command>\n<command>echo x > a.txt</command>\n</execute_command>"
    result, _ = await ran(redis_url, tmp_path, Turn([text(written)]), Turn([WRITE]), Turn([text("Written.")]))
    assert (result.status, result.summary, result.files_modified) == ("succeeded", "Written.", ["a.txt"])


# Answers over several replies


@pytest.mark.parametrize("stop", ["max_tokens", "length", "pause_turn"])
async def test_an_answer_over_several_replies_is_whole(redis_url: str, tmp_path: Path, stop: str) -> None:
    turns = Turn([text("One, ")], stop=stop), Turn([text("two,")], stop=stop), Turn([thinking("?")], stop=stop)
    result, fake = await ran(redis_url, tmp_path, *turns, Turn([text(" three.")]))
    assert (result.status, result.summary, len(fake.journal)) == ("succeeded", "One, two, three.", 4)


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["One half", "and the other."], "One half and the other."),
        (["One half ", "and the other."], "One half and the other."),
        (["One half", ", and the other."], "One half, and the other."),
        (["First.", "# Second"], "First.\n# Second"),
        (["All of it.", ""], "All of it. (After an empty reply.)"),
    ],
)
async def test_the_seam_of_two_pieces_is_that_of_a_text(
    redis_url: str, tmp_path: Path, pieces: list[str], whole: str
) -> None:
    first, second = pieces
    turns = Turn([text(first)], stop="max_tokens"), Turn([text(second)] if second else [])
    result, _ = await ran(redis_url, tmp_path, *turns, Turn([text("(After an empty reply.)")]))
    assert result.summary == whole


async def test_words_before_calls_are_no_part_of_the_answer(redis_url: str, tmp_path: Path) -> None:
    turns = Turn([text("I write.")], stop="max_tokens"), Turn([text("Now."), WRITE]), Turn([text("Written.")])
    result, _ = await ran(redis_url, tmp_path, *turns)
    assert result.summary == "Written."


async def test_the_next_worker_has_the_beginning_of_the_answer(redis_url: str, tmp_path: Path) -> None:
    turns = Turn([text("One half, ")], stop="max_tokens"), Turn([text("the other.")], delay=0.5)
    async with talking(redis_url, tmp_path / "home", *turns) as (bench, fake):
        id = await bench.accept(DelegationRequest(task="do it"))
        await bench.interrupt(id, lambda: len(fake.journal) == 2)
        await carry_out(bench.services, id)
        result = await bench.result(id)
    assert (result.attempts, result.summary) == (2, "One half, the other.")


async def test_the_report_of_a_subagent_is_whole(redis_url: str, tmp_path: Path) -> None:
    async with talking(redis_url, tmp_path / "home", Turn([text("never")])) as (bench, fake):
        fake.script("the parent's", [Turn([call("call_subagent", task="the part")]), Turn([text("Reported.")])])
        fake.script("the part", [Turn([text("One half, ")], stop="max_tokens"), Turn([text("the other.")])])
        async with carrying_out(bench):
            result = await bench.run("the parent's", tools=["call_subagent"])
        entries = (await bench.store.conversation(result.delegation_id))[0]
    (answer,) = [block for entry in entries for block in json.loads(entry)["content"] if block["type"] == "tool_result"]
    assert json.loads(answer["content"])["summary"] == "One half, the other."


# What is sent back


async def sent_back(redis_url: str, tmp_path: Path, *calls: dict[str, Any]) -> tuple[ToolAgentResult, list[Any]]:
    """The result of a run that makes these calls, one a turn, and its last request's messages; it may refuse none."""
    turns = [Turn([each]) for each in calls]
    result, fake = await ran(redis_url, tmp_path, *turns, Turn([text("Done.")]))
    assert [each.status for each in fake.journal] == [200] * (len(calls) + 1)
    return result, fake.journal[-1].body["messages"]


@pytest.mark.parametrize(
    "name", ["browser.tabs.open", "functions.bash:0", "größe", "", " ", "a b", "x" * 300, "<bash>", "bash\n"]
)
async def test_a_name_that_no_endpoint_accepts_poisons_no_later_request_and_the_model_reads_it(
    redis_url: str, tmp_path: Path, name: str
) -> None:
    result, messages = await sent_back(redis_url, tmp_path, call(name, x=1))
    assert (result.status, result.tool_call_count) == ("succeeded", 1)
    assert f"there is no tool {name[:100]!r}"[:40] in messages[-1]["content"][0]["content"]


@pytest.mark.parametrize("id", ["", "call:1", "call_1.2", "ü", "a b", "x" * 500, "call_0"])
async def test_an_odd_id_or_one_that_comes_twice_poisons_no_later_request(
    redis_url: str, tmp_path: Path, id: str
) -> None:
    result, messages = await sent_back(
        redis_url, tmp_path, *({**call("glob", pattern=str(n)), "id": id} for n in (1, 2))
    )
    assert (result.status, result.tool_call_count) == ("succeeded", 2)
    ids = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("raw", ["[1]", '"text"', "null", "{", '{"path": "\\ud83d"}', '{"path": 1e400}'])
async def test_arguments_that_are_no_object_poison_no_later_request(redis_url: str, tmp_path: Path, raw: str) -> None:
    result, _ = await sent_back(redis_url, tmp_path, {**call("read_file"), "raw": raw})
    assert result.status == "succeeded"


async def test_the_next_worker_keeps_the_ids_apart(redis_url: str, tmp_path: Path) -> None:
    hold = call("bash", command="echo x > begun; exec sleep 1000")
    turns = [Turn([{**each, "id": "call_0"}]) for each in (call("glob", pattern="*"), hold, WRITE)]
    async with talking(redis_url, tmp_path / "home", *turns, Turn([text("Done.")])) as (bench, fake):
        id = await bench.accept(DelegationRequest(task="do it"))
        await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)
        await carry_out(bench.services, id)
        assert [each.status for each in fake.journal] == [200] * 4
        assert (await bench.result(id)).status == "succeeded"


async def test_a_call_that_was_cut_is_answered_with_how_to_go_on(redis_url: str, tmp_path: Path) -> None:
    result, fake = await ran(redis_url, tmp_path, Turn([LONG], stop="max_tokens"), Turn([text("Done.")]))
    assert result.files_modified == []
    answer = fake.journal[-1].body["messages"][-1]["content"][0]
    assert answer["is_error"]
    assert "write the first part of a long file with write_file" in answer["content"]


async def test_a_task_that_the_scripted_model_cannot_do_ends_with_what_to_set(bench: Bench) -> None:
    result = await bench.run("Bake a cake.", model="scripted")
    assert (result.status, result.termination_reason) == ("failed", "refused")
    assert result.summary.startswith("the scripted model cannot do this task: it plays a script")
    assert "set ANTHROPIC_API_KEY, and DEPUTIZE_MODEL or --model" in result.summary
    assert "refused the task" not in result.summary


# What it costs, and how long it may be

UNCOUNTED = [
    {"type": "message_start", "message": {}},
    {"type": "content_block_start", "index": 0, "content_block": call("glob", pattern="*")},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("limits", [{"max_tokens": 20_000}, {"max_cost_usd": 0.05}])
async def test_a_budget_holds_where_the_endpoint_counts_nothing(
    redis_url: str, tmp_path: Path, limits: dict[str, Any]
) -> None:
    home = tmp_path / "home"
    async with talking(redis_url, home, Turn(raw=UNCOUNTED)) as (bench, _):
        result = await bench.run("look " * 500, limits={"max_turns": 200, "max_tool_calls": 200, **limits})
    assert result.termination_reason in ("budget", "loop_detected")
    assert result.usage.input_tokens > 500 * result.turn_count
    assert (result.usage.cost_usd or 0) > 0
    assert [error for error in result.errors if "usage and cost are estimates" in error] == result.errors[:1]


async def test_a_task_that_fits_the_window_is_sent(redis_url: str, tmp_path: Path) -> None:
    home, task = tmp_path / "home", "word " * 66_000
    async with talking(redis_url, home, Turn([text("done")], usage={"input_tokens": 66_000})) as (bench, fake):
        result = await bench.run(task, model="some-other-model")
    assert (result.status, len(fake.journal)) == ("succeeded", 1)


TOO_LONG = {"type": "invalid_request_error", "message": "Your input exceeds the context window of this model."}
WITHIN = Turn(raw=[{"type": "error", "error": TOO_LONG}])


@pytest.mark.parametrize(
    "turn", [WITHIN, *(Turn([text("x")], faults=[refuse(status, error=TOO_LONG)]) for status in (200, 400, 422))]
)
async def test_too_long_in_other_words_is_followed_by_a_shorter_conversation(
    redis_url: str, tmp_path: Path, turn: Turn
) -> None:
    async with talking(redis_url, tmp_path / "home", Turn([WRITE]), turn) as (bench, fake):
        fake.script("Work so far", [Turn([text("Done.")])])
        result = await bench.run("write it")
    assert (result.status, result.summary, result.files_modified) == ("succeeded", "Done.", ["a.txt"])


async def test_the_longest_reply_is_a_setting(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel([Turn([text("done")])]) as fake:
        settings = Settings.load(environ={**fake.variables, "DEPUTIZE_MAX_OUTPUT_TOKENS": "4000"})
        given: dict[str, Any] = {name: getattr(settings, name) for name in ("model_endpoint", "max_output_tokens")}
        async with open_bench(redis_url, tmp_path / "home", **given) as bench:
            await bench.run()
            await close_models()
    assert [each.body["max_tokens"] for each in fake.journal] == [4000]


# A reply without a word is no success: the model is asked once more, and then the run fails with the reason.


NOTHING: list[list[dict[str, Any]]] = [[], [text("")], [text(" \n\t")], [thinking("Done, I think.")]]


@pytest.mark.parametrize("blocks", NOTHING)
async def test_an_empty_reply_is_asked_about_once_and_the_answer_counts(
    redis_url: str, tmp_path: Path, blocks: list[dict[str, Any]]
) -> None:
    result, _ = await ran(redis_url, tmp_path, Turn(blocks), Turn([text("done")]))
    assert (result.status, result.summary, result.turn_count) == ("succeeded", "done", 2)


@pytest.mark.parametrize("blocks", NOTHING)
async def test_a_model_that_is_silent_twice_has_failed(
    redis_url: str, tmp_path: Path, blocks: list[dict[str, Any]]
) -> None:
    work = Turn([text("I write."), call("write_file", path="a.txt", content="x")])
    result, _ = await ran(redis_url, tmp_path, work, Turn(blocks), Turn(blocks))
    assert (result.status, result.success, result.files_modified) == ("failed", False, ["a.txt"])
    assert "ended its work with an empty reply" in result.summary


async def test_an_empty_reply_in_each_of_two_phases_is_asked_about_in_both(redis_url: str, tmp_path: Path) -> None:
    work = Turn([call("write_file", path="a.txt", content="x")])
    result, _ = await ran(redis_url, tmp_path, Turn([]), work, Turn([]), Turn([text("done")]))
    assert (result.status, result.summary) == ("succeeded", "done")
