"""Traces of runs: one for whoever submitted the task, the run with all its attempts, and its subagents."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.log import log
from deputize.shared.runs.keys import record_key
from deputize.shared.runs.record import TRACE
from deputize.shared.settings import Settings
from deputize.worker.models.platforms import PLATFORMS
from deputize.worker.task import carry_out
from deputize.worker.tools.base import Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tracing.conventions import ANTHROPIC, PROVIDERS
from tests.fake_model import FakeModel, Turn, refuse, text
from tests.fake_model import call as call_of
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.collector import Collected, Collector
from tests.runs.nesting import by_task, children_of, delegate
from tests.shared.log_lines import lines_of
from tests.worker.tracing.conftest import OpenTraced
from tests.worker.tracing.submitting import CALLER, SAMPLED, TRACE_ID, UNSAMPLED, accept, run

WRITE = call("write_file", path="a.txt", content="one\n")
HOLD = call("bash", command="touch begun; exec sleep 1000")


async def interrupt(bench: Bench, id: str) -> None:
    """Carries out an attempt until a command is under way, and hands it over."""
    folder = bench.settings.workspaces / id
    await bench.interrupt(id, lambda: list(folder.glob("files*/begun")))


async def trace_in_record(bench: Bench, id: str) -> str:
    return await bench.store.redis.hget(record_key(id), TRACE)


def genai(span: Collected) -> dict[str, Any]:
    return {name: value for name, value in span.attributes.items() if name.startswith(("gen_ai.", "error."))}


async def test_a_run_its_tools_and_its_subagent_are_one_trace_of_their_caller(
    traced: OpenTraced, collector: Collector, tmp_path: Path
) -> None:
    parent = [[WRITE], [delegate("child", tools=["write"])], [say("ok")]]
    model = by_task(tmp_path, parent=parent, child=[[WRITE], [say("done")]])
    async with traced() as bench:
        id = await run(bench, model=model, tools=["*", "call_subagent"])
        (child,) = await children_of(bench.store, id)
    assert collector.tree() == [
        "invoke_agent",
        f"  chat {model}",
        "  execute_tool write_file",
        f"  chat {model}",
        "  execute_tool call_subagent",
        "    invoke_agent",
        f"      chat {model}",
        "      execute_tool write_file",
        f"      chat {model}",
        f"  chat {model}",
    ]
    assert {span.trace for span in collector.spans} == {TRACE_ID}
    assert not any(span.failed for span in collector.spans)
    ours, of_child = collector.named("invoke_agent")
    assert ours.parent == CALLER
    assert [span.attributes["gen_ai.conversation.id"] for span in (ours, of_child)] == [id, child.id]
    assert collector.schemas == {"https://opentelemetry.io/schemas/gen-ai/0.1.0"}
    resource = collector.spans[0].resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("deputize", "worker-1")


async def test_spans_have_the_attributes_of_the_conventions_and_no_content(
    traced: OpenTraced, collector: Collector
) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3}
    words = "words that only the model may read"
    last = Turn([text(words)], usage=usage, faults=[refuse(529, retry_after_ms="5")])
    async with FakeModel([Turn([call_of("write_file", path="a.txt", content=words)]), last]) as fake:
        endpoint = Settings.load(environ=fake.variables).model_endpoint
        async with traced(model_endpoint=endpoint, model="claude-sonnet-5-5") as bench:
            id = await run(bench, task=words, limits={"max_turns": 5})
    agent, tool = collector.the("invoke_agent"), collector.the("execute_tool write_file")
    chat = collector.named("chat claude-sonnet-5-5")[1]
    assert [agent.kind, chat.kind, tool.kind] == ["internal", "client", "internal"]
    assert genai(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-5-5",
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": id,
        "gen_ai.response.finish_reasons": ["end_turn"],
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 7,
        "gen_ai.usage.cache_write.input_tokens": 3,
    }
    assert chat.events == [("model_retried", {"deputize.seconds": pytest.approx(0.005, rel=0.5)})]
    assert genai(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "write_file",
        "gen_ai.tool.call.id": "call_1_1",
    }
    assert (agent.attributes["deputize.attempt"], agent.attributes["deputize.termination_reason"]) == (1, "completed")
    assert agent.attributes["gen_ai.usage.output_tokens"] > 5
    assert agent.start <= chat.start < chat.end <= agent.end
    assert words not in str(collector.spans)


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_the_provider_is_that_of_the_models_platform(
    platform: str, traced: OpenTraced, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, client = PLATFORMS[platform].client.partition(":")
    of_sdk: str = getattr(import_module(module), client)._gen_ai_provider_name
    assert PROVIDERS.get(platform, ANTHROPIC) == of_sdk
    if platform == "google-cloud":  # it has no key: nothing is sent without credentials of Google
        return
    variables = {"PLATFORM_KEY": "platform-key-0123456789", "AWS_REGION": "eu-west-1"}
    for name, value in (variables | {"ANTHROPIC_AWS_WORKSPACE_ID": "w"}).items():
        monkeypatch.setenv(name, value)
    async with FakeModel([Turn([text("Done.")])]) as fake:
        table = {"platform": platform, "base_url": fake.url, "key": "PLATFORM_KEY"}
        settings = Settings.load(environ=variables, models={"there": table})
        async with traced(model_endpoint=settings.model_endpoint, models=settings.models) as bench:
            await run(bench, model="there")
    assert collector.the("chat there").attributes["gen_ai.provider.name"] == of_sdk


@pytest.mark.parametrize("caller", [SAMPLED, ""], ids=["of a caller", "of its own"])
async def test_an_attempt_that_goes_on_with_a_run_is_in_its_trace_and_refers_to_the_one_before(
    traced: OpenTraced, collector: Collector, tmp_path: Path, caller: str
) -> None:
    model = script(tmp_path, [HOLD], [say("done")])
    async with traced("one") as bench:
        id = await accept(bench, caller, model=model)
        await interrupt(bench, id)
    async with traced("two") as bench:
        await carry_out(bench.services, id)
        kept = await trace_in_record(bench, id)
    first, second = collector.named("invoke_agent")
    assert first.trace == second.trace == kept[3:35]
    assert (first.parent, second.parent) == (CALLER, CALLER) if caller else ("", first.id)
    assert (first.links, second.links) == ([], [first.id])
    assert [span.attributes["deputize.attempt"] for span in (first, second)] == [1, 2]
    assert [span.attributes.get("deputize.interrupted") for span in (first, second)] == [True, None]
    cut, settled = collector.named("execute_tool bash")  # it is in doubt, and then reported to the model
    assert [(span.parent, span.failed) for span in (cut, settled)] == [(first.id, True), (second.id, True)]


async def test_the_trace_of_a_lost_worker_is_kept_although_its_spans_may_not_be(
    traced: OpenTraced, collector: Collector, tmp_path: Path
) -> None:
    async with traced() as bench:
        id = await accept(bench, "", model=script(tmp_path, [say("done")]))
        claim = await bench.services.claim(id)  # by a worker that dies with its spans
        assert claim is not None
        await bench.store.redis.hset(record_key(id), mapping={TRACE: SAMPLED, "attempt_span": SAMPLED})
        await bench.lose(id)
        await carry_out(bench.services, id)
    assert (span := collector.the("invoke_agent")).trace == TRACE_ID
    assert span.links == [CALLER]


async def test_what_the_caller_does_not_sample_has_no_spans_but_the_trace_goes_on(
    traced: OpenTraced, collector: Collector, tmp_path: Path
) -> None:
    model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[say("done")]])
    async with traced() as bench:
        id = await run(bench, UNSAMPLED, model=model, tools=["*", "call_subagent"])
        (child,) = await children_of(bench.store, id)
        handed_on = await trace_in_record(bench, child.id)
    assert collector.spans == []
    assert (handed_on[:35], handed_on[-3:]) == (f"00-{TRACE_ID}", "-00")


async def test_without_an_exporter_subagents_belong_to_the_trace_of_the_caller(busy: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[say("done")]])
    id = await run(busy, SAMPLED, model=model, tools=["*", "call_subagent"])
    (child,) = await children_of(busy.store, id)
    assert await trace_in_record(busy, child.id) == SAMPLED
    assert busy.services.tracing is None


async def test_a_failed_call_a_refused_one_and_a_failed_run_are_failed_spans(
    traced: OpenTraced, collector: Collector, tmp_path: Path
) -> None:
    turns = [call("read_file", path="none.txt"), call("no_such_tool"), WRITE]
    async with traced() as bench:
        await run(bench, model=script(tmp_path, turns, [WRITE]), approval_mode="readOnly", limits={"max_turns": 1})
    kinds = {span.name.partition(" ")[2]: genai(span).get("error.type") for span in collector.spans if span.failed}
    assert kinds == {
        "read_file": "tool_error",
        "no_such_tool": "tool_error",
        "write_file": "permission_denied",
        "": "max_turns",
    }


async def test_a_model_call_that_gets_no_reply_is_a_failed_span(traced: OpenTraced, collector: Collector) -> None:
    async with FakeModel([Turn([text("never")], faults=[refuse(401)])]) as fake:
        endpoint = Settings.load(environ=fake.variables).model_endpoint
        async with traced(model_endpoint=endpoint, model="claude-sonnet-5-5") as bench:
            await run(bench)
    chat, agent = collector.the("chat claude-sonnet-5-5"), collector.the("invoke_agent")
    assert (chat.failed, agent.failed) == (True, True)
    assert chat.attributes["error.type"] == agent.attributes["error.type"] == "model_unavailable"


@pytest.mark.parametrize("value", ["true", "SPAN_ONLY"])
async def test_content_is_recorded_where_it_is_asked_for_without_secrets_and_bounded(
    traced: OpenTraced, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    secret = "token-of-the-operator"
    turns = [[call("write_file", path="a.txt", content=f"{secret}\n" + "x" * 100_000)], [say(f"I saw {secret}.")]]
    async with traced(token=secret) as bench:
        await run(bench, task=f"Use {secret}.", model=script(tmp_path, *turns))
    agent, tool = collector.the("invoke_agent"), collector.the("execute_tool write_file")
    asked, said = (agent.attributes[f"gen_ai.{way}.messages"] for way in ("input", "output"))
    assert asked == '[{"role":"user","parts":[{"type":"text","content":"Use ***."}]}]'
    assert '"content":"I saw ***."' in said
    assert '"finish_reason":"completed"' in said
    assert tool.attributes["gen_ai.tool.call.arguments"].startswith('{"path": "a.txt", "content": "***\\nxxx')
    assert len(tool.attributes["gen_ai.tool.call.arguments"]) < 10_000
    assert "a.txt" in tool.attributes["gen_ai.tool.call.result"]
    assert secret not in str(collector.spans)


class Breaking(Tool[Params]):
    """Fails inside."""

    name = "break_inside"
    kind = Kind.OTHER
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        raise RuntimeError("a defect")


async def line_of_failure(bench: Bench, folder: Path, trace: str) -> tuple[str, dict[str, Any]]:
    """A run's id, and a line that it writes to the log."""
    with lines_of(log) as lines:
        model = script(folder, [call("break_inside")], [say("ok")])
        id = await run(bench, trace, model=model, approval_mode="auto", tools=["*"])
    (line,) = (line for line in lines() if line["message"] == "tool break_inside failed")
    return id, line


async def test_log_lines_of_a_run_name_its_delegation_its_attempt_and_its_trace(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", offered=(*BUILTIN, Breaking())) as bench:
        id, line = await line_of_failure(bench, tmp_path, SAMPLED)
        _, of_none = await line_of_failure(bench, tmp_path, "")
    assert (line["delegation"], line["attempt"], line["trace_id"]) == (id, 1, TRACE_ID)
    assert "trace_id" not in of_none


async def test_log_lines_name_a_trace_that_begins_with_the_run(
    traced: OpenTraced, collector: Collector, tmp_path: Path
) -> None:
    async with traced(offered=(*BUILTIN, Breaking())) as bench:
        _, line = await line_of_failure(bench, tmp_path, "")
    assert line["trace_id"] == collector.the("invoke_agent").trace
