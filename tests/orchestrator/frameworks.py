"""Agents of other frameworks with scripted models, which call the tool once, and answer when they read its output.

Each imports its framework late: that takes seconds of every process that collects tests.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from deputize.orchestrator.delegate_tool import DelegateTool
from tests.fake_model import FakeModel, Turn, call, text

QUESTION = "How many classes are there?"
ANSWER = "There are 3."
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Heard:
    """What a model was offered, and what it read as the output of its call."""

    parameters: Mapping[str, Any]
    output: str
    is_error: bool | None
    """None where the framework has no errors of tools."""
    answer: str


async def with_anthropic(tool: DelegateTool[Any], arguments: Arguments) -> Heard:
    import anthropic

    turns = [Turn([call("delegate", **arguments)]), Turn([text(ANSWER)])]
    async with FakeModel(turns) as model, anthropic.AsyncAnthropic(base_url=model.url, api_key=model.key) as client:
        runner = client.beta.messages.tool_runner(
            model="claude-sonnet-5-5",
            max_tokens=1000,
            tools=[tool.for_anthropic()],
            messages=[{"role": "user", "content": QUESTION}],
        )
        answer: Any = (await runner.until_done()).content[-1]
        asked = model.journal[-1].body
    (result,) = asked["messages"][-1]["content"]
    return Heard(asked["tools"][0]["input_schema"], result["content"], result.get("is_error", False), answer.text)


def _response(*output: Mapping[str, Any]) -> dict[str, Any]:
    """A response of OpenAI's Responses API."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "output": [*output],
    }


def _reply(read: str | list[Any], arguments: Arguments) -> dict[str, Any]:
    """The reply of OpenAI's model to these items: a call, and after its output the answer."""
    items: list[Any] = [] if isinstance(read, str) else read
    if any(item.get("type") == "function_call_output" for item in items):
        part = {"type": "output_text", "text": ANSWER, "annotations": []}
        message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
        return _response(message)
    called = {"name": "delegate", "call_id": "call_1", "arguments": json.dumps(arguments)}
    return _response({"type": "function_call", "id": "f1", **called})


async def with_openai(tool: DelegateTool[Any], arguments: Arguments) -> Heard:
    import openai

    asked: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        return httpx2.Response(200, json=_reply(asked[-1]["input"], arguments))

    transport = httpx2.MockTransport(answer)
    async with openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient(transport=transport)) as client:
        items: list[Any] = [{"role": "user", "content": QUESTION}]
        tools: Any = [tool.for_openai()]
        while True:
            response = await client.responses.create(model="m", input=items, tools=tools)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                output = items[-1]["output"]
                return Heard(asked[-1]["tools"][0]["parameters"], output, None, response.output_text)
            items += [item.to_dict() for item in response.output]
            for each in calls:
                output = (await tool.call(each.arguments)).text
                items.append({"type": "function_call_output", "call_id": each.call_id, "output": output})


async def with_openai_agents(tool: DelegateTool[Any], arguments: Arguments) -> Heard:
    import agents
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from openai.types.responses import Response

    read: list[Any] = []
    offered: list[Any] = []

    class ScriptedModel(Model):
        async def get_response(
            self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *_: Any, **__: Any
        ) -> ModelResponse:
            read[:], offered[:] = input, tools
            output = Response.model_validate(_reply(input, arguments)).output
            return ModelResponse(output=output, usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            raise NotImplementedError

    agent = agents.Agent(name="parent", model=ScriptedModel(), tools=[tool.for_openai_agents()])
    done = await agents.Runner.run(agent, QUESTION, run_config=agents.RunConfig(tracing_disabled=True))
    return Heard(offered[0].params_json_schema, read[-1]["output"], None, done.final_output)


async def with_pydantic_ai(tool: DelegateTool[Any], arguments: Arguments) -> Heard:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    offered: list[Mapping[str, Any]] = []
    read: list[ToolReturnPart] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append(info.function_tools[0].parameters_json_schema)
        read.extend(part for part in messages[-1].parts if isinstance(part, ToolReturnPart))
        return ModelResponse(parts=[TextPart(ANSWER) if read else ToolCallPart("delegate", dict(arguments))])

    done = await Agent(FunctionModel(reply), tools=[tool.for_pydantic_ai()]).run(QUESTION)
    return Heard(offered[-1], str(read[-1].content), read[-1].outcome == "failed", done.output)


async def with_langchain(tool: DelegateTool[Any], arguments: Arguments) -> Heard:
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool

    calls = [{"name": "delegate", "args": dict(arguments), "id": "call_1", "type": "tool_call"}]
    model = FakeMessagesListChatModel(responses=[AIMessage("", tool_calls=calls), AIMessage(ANSWER)])
    made = tool.for_langchain()
    messages: list[Any] = [HumanMessage(QUESTION)]
    while (reply := await model.ainvoke(messages)).tool_calls:
        messages += [reply, *[await made.ainvoke(each) for each in reply.tool_calls]]
    offered = convert_to_openai_tool(made)["function"]["parameters"]
    return Heard(offered, messages[-1].content, messages[-1].status == "error", str(reply.content))


FRAMEWORKS: dict[str, Callable[[DelegateTool[Any], Arguments], Coroutine[Any, Any, Heard]]] = {
    "anthropic": with_anthropic,
    "openai": with_openai,
    "openai-agents": with_openai_agents,
    "pydantic-ai": with_pydantic_ai,
    "langchain": with_langchain,
}
"""Each lets an agent with this tool answer the question; its model calls the tool with these arguments."""
