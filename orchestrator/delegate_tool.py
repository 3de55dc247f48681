"""``delegate`` as a tool for the models of other programs: one description, and an adapter for each framework.

The model writes the task; the program decides about all else: workspace, limits, approval mode, … An adapter imports
its framework when it is called, and by name: type checkers of programs would else read every one that is installed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar, cast

from ..shared.delegation import Delegation
from ..shared.errors import DeputizeError, Invalid
from ..shared.request import DelegationRequest, RequestFields
from ..shared.text import did_you_mean, shortened
from ..shared.wire import LONGEST_SHOWN
from .mcp.outcome import explained, outcome
from .mcp.schemas import input_schema
from .mcp.tools import DELEGATE
from .request_fields import ToolFields, request_of

NAME = "delegate"
PARAMETERS = ("task", "context", "expectedOutcome")
"""The fields of a request that the model writes, unless the program has set them."""


def _framework(module: str, package: str) -> Any:
    """Imports a module of a framework. Raises ModuleNotFoundError with the package to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the package is there, and one that it needs is not
        message = f"the tool needs the package {package}: pip install {package}"
        raise ModuleNotFoundError(message, name=error.name) from None


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to one call: of a delegation its facts as JSON, with the words of its agent in fields of their own."""

    text: str
    is_error: bool
    """Whether the delegation was refused, could not be waited for, or was not a success."""

    def text_or(self, failure: Callable[[str], Exception]) -> str:
        """Returns the text; raises it as a ``failure`` where it is an error."""
        if self.is_error:
            raise failure(self.text)
        return self.text


A = TypeVar("A", ToolAnswer, Awaitable[ToolAnswer])


@dataclass(frozen=True)
class DelegateTool(Generic[A]):
    """A tool that delegates: ``as_tool`` of an ``Orchestrator`` returns it with a ``call`` that is awaited.

    A call raises no ``DeputizeError``: an error is an answer, and in each framework what that has for errors of tools.
    A call that is cancelled cancels its delegation.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of the arguments."""
    call: Callable[[Mapping[str, Any] | str], A]
    """Takes the arguments: an object, or its JSON."""

    def for_anthropic(self) -> Any:
        """Returns a tool for ``client.beta.messages.tool_runner``; its ``to_dict()`` is one for ``messages.create``.

        The client is an ``AsyncAnthropic`` where the tool is that of an ``Orchestrator``, else an ``Anthropic``.
        """
        tools = _framework("anthropic.lib.tools", "anthropic")
        kind = tools.BetaAsyncFunctionTool if self._is_async else tools.BetaFunctionTool
        function = self._function(tools.ToolError)
        return kind(function, name=self.name, description=self.description, input_schema=self.parameters)

    def for_openai(self) -> dict[str, Any]:
        """Returns the definition for ``tools`` of the Responses API. A call's output is ``call(arguments).text``."""
        return {"type": "function", "strict": False, **self._definition}

    def for_openai_chat(self) -> dict[str, Any]:
        """Returns the definition for ``tools`` of Chat Completions."""
        return {"type": "function", "function": self._definition}

    def for_openai_agents(self) -> Any:
        """Returns a tool for agents of the Agents SDK; outputs that are errors are marked by their text alone there."""

        async def invoke(_: Any, arguments: str) -> str:
            answer: Any = self.call(arguments) if self._is_async else asyncio.to_thread(self.call, arguments)
            return (await answer).text

        kind = _framework("agents", "openai-agents").FunctionTool
        return kind(self.name, self.description, self.parameters, invoke, strict_json_schema=False)

    def for_pydantic_ai(self) -> Any:
        """Returns a tool for agents of pydantic-ai."""
        framework = _framework("pydantic_ai", "pydantic-ai-slim")
        function = self._function(framework.ToolFailed)
        return framework.Tool.from_schema(function, self.name, self.description, self.parameters)

    def for_langchain(self) -> Any:
        """Returns a tool for models and agents of LangChain."""
        tools = _framework("langchain_core.tools", "langchain-core")
        return tools.StructuredTool(
            name=self.name,
            description=self.description,
            args_schema=self.parameters,
            handle_tool_error=True,
            **{"coroutine" if self._is_async else "func": self._function(tools.ToolException)},
        )

    @property
    def _is_async(self) -> bool:
        return iscoroutinefunction(self.call)

    @property
    def _definition(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    def _function(self, failure: Callable[[str], Exception]) -> Callable[..., Any]:
        """Returns the call as a function of keyword arguments that raises a ``failure``."""
        call: Any = self.call

        def delegate(**arguments: Any) -> str:
            return call(arguments).text_or(failure)

        async def delegate_async(**arguments: Any) -> str:
            return (await call(arguments)).text_or(failure)

        return delegate_async if self._is_async else delegate


def delegate_tool(
    run: Callable[[DelegationRequest], Awaitable[Delegation]], fields: ToolFields
) -> DelegateTool[Awaitable[ToolAnswer]]:
    """Returns the tool whose calls are ``run`` to their end. Raises ``Invalid`` for a wrong field."""
    fixed = cast(
        "RequestFields", {name: value for name, value in fields.items() if name not in ("name", "description")}
    )
    set_already = {DelegationRequest.model_fields[name].alias for name in request_of(NAME, fixed).model_fields_set}
    schema = input_schema(DelegationRequest)["properties"]
    properties = {name: schema[name] for name in PARAMETERS if name == "task" or name not in set_already}
    parameters = {"type": "object", "properties": properties, "required": ["task"], "additionalProperties": False}

    async def call(arguments: Mapping[str, Any] | str) -> ToolAnswer:
        try:
            given = _checked(arguments, properties)
            return _answer(await run(request_of(given.pop("task", ""), cast("RequestFields", {**fixed, **given}))))
        except DeputizeError as error:
            return ToolAnswer(explained(error), is_error=True)

    return DelegateTool(fields.get("name", NAME), fields.get("description", DELEGATE), parameters, call)


def _checked(arguments: Mapping[str, Any] | str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments. Raises ``Invalid`` where there is one that the model may not write."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the arguments are not valid JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise Invalid(f"the arguments are not an object with {', '.join(known)}")
    found = dict(cast("Mapping[str, Any]", given))
    for name in found.keys() - known.keys():
        hint = did_you_mean(name[:LONGEST_SHOWN], known, 1) or f"there are {', '.join(known)}"
        raise Invalid(f"unknown argument {shortened(name, LONGEST_SHOWN)!r}; {hint}")
    return found


def _answer(delegation: Delegation) -> ToolAnswer:
    facts = outcome(delegation)
    # Without what has its default: the caller's model reads it at a price.
    text = facts.model_dump_json(by_alias=True, exclude_defaults=True, exclude={"patch_uri"})
    return ToolAnswer(text, is_error=not facts.success)
