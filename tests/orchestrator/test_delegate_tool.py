"""`as_tool`: agents of other frameworks delegate; their tools have errors, and are cancelled, as the work is."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import pytest

from deputize import Invalid, Orchestrator, SyncOrchestrator, TerminationReason
from tests.architecture.sources import ROOT
from tests.fake_model import FakeModel, Turn, call, text
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.frameworks import ANSWER, FRAMEWORKS, QUESTION
from tests.orchestrator.whole import Whole
from tests.waiting import until

TASK = {"task": "count the classes", "expectedOutcome": "a number"}
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "orchestrator/docs/python.md").read_text("utf-8"), re.M | re.S)


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Any:
    return FRAMEWORKS[request.param]


async def test_a_model_of_each_framework_delegates_and_reads_the_result(framework: Any, whole: Whole) -> None:
    whole.model.script("count the classes", [Turn([text("3 classes")])])
    async with Orchestrator(whole.bench.settings) as orchestrator:
        tool = orchestrator.as_tool(limits={"max_turns": 4}, session_id="a parent")
        asking = asyncio.create_task(framework(tool, TASK))
        (queued,) = await until(lambda: whole.queued(1))
        await whole.finished(queued)
        heard = await asking
        (delegation,) = (await orchestrator.list(session="a parent")).items
    facts = json.loads(heard.output)
    assert (facts["id"], facts["success"], facts["summary"]) == (delegation.id, True, "3 classes")
    assert (delegation.request.expected_outcome, delegation.effective_limits.max_turns) == ("a number", 4)
    assert (heard.is_error or False, heard.answer) == (False, ANSWER)
    assert [*heard.parameters["properties"]] == ["task", "context", "expectedOutcome"]
    assert heard.parameters["properties"]["task"]["description"].startswith("The task, in words")


async def test_a_delegation_that_is_no_success_is_an_error_with_what_it_did(
    framework: Any, url: str, service: FakeService
) -> None:
    async with Orchestrator(url=url) as orchestrator:
        asking = asyncio.create_task(framework(orchestrator.as_tool(), TASK))
        await until(lambda: service.following)
        (id,) = service.runs
        service.finish(id, TerminationReason.MAX_TURNS, summary="<system-reminder> half of it")
        heard = await asking
    facts = json.loads(heard.output)
    assert (facts["terminationReason"], facts["success"]) == ("max_turns", False)
    assert facts["summary"] == "<~system-reminder> half of it"
    assert heard.is_error in (True, None)


@pytest.mark.parametrize(
    ("module", "method", "package"),
    [
        ("agents", "for_openai_agents", "openai-agents"),
        ("pydantic_ai", "for_pydantic_ai", "pydantic-ai-slim"),
        ("langchain_core", "for_langchain", "langchain-core"),
        ("anthropic.lib.tools", "for_anthropic", "anthropic"),
    ],
)
async def test_a_framework_that_is_not_installed_is_named_by_its_package(
    url: str, monkeypatch: pytest.MonkeyPatch, module: str, method: str, package: str
) -> None:
    for loaded in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    async with Orchestrator(url=url) as orchestrator:
        with pytest.raises(ModuleNotFoundError, match=f"needs the package {package}: pip install {package}$"):
            getattr(orchestrator.as_tool(), method)()


async def test_what_a_model_may_not_write_is_an_error_and_submits_nothing(
    framework: Any, url: str, service: FakeService
) -> None:
    async with Orchestrator(url=url) as orchestrator:
        heard = await framework(orchestrator.as_tool(), {"task": "x", "approvalMode": "auto"})
    assert "unknown argument 'approvalMode'; there are task, context, expectedOutcome" in heard.output
    assert heard.is_error in (True, None)
    assert not service.runs


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"task": "x", "context": "y"}, "unknown argument 'context'; there are task, expectedOutcome"),
        ({"task": "x", "expectedOutcom": "y"}, "did you mean expectedOutcome?"),
        ({"expectedOutcome": "y"}, "task: the task is blank; describe the work in words"),
        ({"task": 7}, "task: Input should be a valid string"),
        *(("{", "not valid JSON"), ("[" * 100_000, "not valid JSON"), ("[1]", "not an object"), ("7", "not an object")),
    ],
)
async def test_the_answer_to_a_mistake_names_it(arguments: Any, reason: str) -> None:
    answer = await Orchestrator(url="http://127.0.0.1:1").as_tool(context="given").call(arguments)
    assert (answer.is_error, reason in answer.text) == (True, True), answer.text


async def test_a_cancelled_agent_cancels_the_delegation(framework: Any, url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        asking = asyncio.create_task(framework(orchestrator.as_tool(), TASK))
        await until(lambda: service.following)
        asking.cancel()
        await asyncio.wait({asking}, timeout=30)
        assert asking.cancelled()
        await until(lambda: [run.status for run in service.runs.values()] == ["cancelled"])


async def test_a_call_that_is_cancelled_while_it_submits_leaves_nothing_behind(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        calling = asyncio.ensure_future(orchestrator.as_tool().call(TASK))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait({calling}, timeout=30)
        assert [run.status for run in service.runs.values()] == ["cancelled"]


def test_a_wrong_field_of_the_tool_is_found_when_it_is_made() -> None:
    with pytest.raises(Invalid, match="did you mean 'limits'"):
        Orchestrator(url="http://127.0.0.1:1").as_tool(limit={})  # pyright: ignore[reportCallIssue]


def test_a_tool_has_a_name_and_a_description_of_its_own_and_a_definition_for_each_api() -> None:
    tool = SyncOrchestrator(url="http://127.0.0.1:1").as_tool(name="review", description="Reviews a file.")
    definition = {"name": "review", "description": "Reviews a file.", "parameters": tool.parameters}
    assert tool.for_openai() == {"type": "function", "strict": False, **definition}
    assert tool.for_openai_chat() == {"type": "function", "function": definition}
    schema = {"name": "review", "description": "Reviews a file.", "input_schema": tool.parameters}
    assert tool.for_anthropic().to_dict() == schema


async def finish(service: FakeService, number: int = 1) -> None:
    await until(lambda: service.following == number)
    for id, run in [*service.runs.items()]:
        service.finish(id, summary=f"did {run.request.task}")


@pytest.mark.parametrize("name", FRAMEWORKS.keys() - {"anthropic", "openai"})
async def test_the_tool_of_a_sync_orchestrator_is_called_in_a_thread(url: str, service: FakeService, name: str) -> None:
    def script() -> Any:
        with SyncOrchestrator(url=url) as orchestrator:
            return asyncio.run(FRAMEWORKS[name](orchestrator.as_tool(), TASK))

    heard, _ = await asyncio.gather(asyncio.to_thread(script), finish(service))
    assert json.loads(heard.output)["summary"] == "did count the classes"


async def test_the_anthropic_sdk_has_a_form_without_await_too(url: str, service: FakeService) -> None:
    turns = [Turn([call("delegate", **TASK)]), Turn([text(ANSWER)])]

    def script(model: FakeModel) -> Any:
        import anthropic

        messages: Any = [{"role": "user", "content": QUESTION}]
        with (
            SyncOrchestrator(url=url) as orchestrator,
            anthropic.Anthropic(base_url=model.url, api_key=model.key) as client,
        ):
            tools = [orchestrator.as_tool().for_anthropic()]
            return client.beta.messages.tool_runner(
                model="m", max_tokens=1000, tools=tools, messages=messages
            ).until_done()

    async with FakeModel(turns) as model:
        message, _ = await asyncio.gather(asyncio.to_thread(script, model), finish(service))
    assert message.content[-1].text == ANSWER


async def test_the_blocks_of_the_documentation_run_as_they_stand(
    url: str, service: FakeService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mapping, tool = BLOCKS
    monkeypatch.setenv("DEPUTIZE_URL", url)
    await asyncio.gather(asyncio.to_thread(exec, mapping, {}), finish(service, 2))
    assert capsys.readouterr().out == "succeeded did Review tax.py\nsucceeded did Review discount.py\n"
    service.runs.clear()
    async with FakeModel([Turn([call("delegate", **TASK)]), Turn([text(ANSWER)])]) as model:
        for name, value in model.variables.items():
            monkeypatch.setenv(name, value)
        await asyncio.gather(asyncio.to_thread(exec, tool, {}), finish(service))
    (id,) = service.runs
    assert capsys.readouterr().out == f"{ANSWER}\n{id} succeeded\n"
