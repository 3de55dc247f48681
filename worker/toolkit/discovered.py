"""Tools that a command of the operator's announces and another carries out, both in the run's sandbox.

The discovery command prints JSON: a list of declarations ``{name, description, parameters}`` or of
``{functionDeclarations: […]}``. It is run once a run, over the run's workspace, and only where the kit can want what
it announces. What cannot be had is warned of, and the run goes on without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Literal, NoReturn

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from shared.errors import ErrorType, Misconfigured, ToolError
from shared.settings import ToolSettings
from shared.text import clip
from worker.sandbox import command_output
from worker.sandbox.base import Sandbox
from worker.sandbox.command import Command
from worker.schemas.arguments import ArgumentSchema
from worker.schemas.pool import ValidatorPool
from worker.text.output import OutputLimit
from worker.threads import run_in_thread
from worker.toolkit.declared import DeclaredTool
from worker.toolkit.sources import ToolSourceContext
from worker.tools.base import AnyTool, Effect, ToolResult
from worker.tools.bash import live, outcome_of, shell
from worker.tools.context import ToolContext

DISCOVERY_SECONDS = 15
CALL_SECONDS = 120
MAX_OUTPUT = 1024 * 1024
MAX_TOOLS = 128
MAX_DECLARATION_CHARS = 20_000
MAX_NAME = 64
MAX_WARNINGS = 10
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "input_schema", "inputSchema", "parameters")


class Declaration(BaseModel):
    """One tool as the discovery command announces it. Keys that we do not know are not read."""

    name: str = Field(min_length=1, max_length=200)
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, validation_alias=AliasChoices(*_SCHEMAS))


class DiscoveredTool(DeclaredTool):
    """Carried out by the call command: its last argument is the tool's name, the arguments come as JSON on stdin."""

    source = "discovered"
    needs_sandbox = True
    output = OutputLimit(keep="head_tail")

    def __init__(self, name: str, declared: Declaration, command: str, schema: ArgumentSchema | None = None) -> None:
        description = declared.description or f"The tool {declared.name}."
        super().__init__(name, description, schema or declared.parameters or {}, effect=Effect.EFFECTFUL)
        self.remote = declared.name
        self._argv = (f'{command} "$@"', "call", declared.name)

    async def probe(
        self, ctx: ToolContext, params: Any, facts: Mapping[str, Any]
    ) -> ToolResult | Literal[False] | None:
        return outcome_of(ctx, self.name)

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        """Standard output is the answer, and the exit code decides: programs warn on standard error and succeed."""
        line, *words = self._argv
        argv = [*_argv(line, ctx.sandbox), *words]
        told = json.dumps(params).encode()
        done = await ctx.sandbox.run(Command(argv, CALL_SECONDS, stdin=told, mark=ctx.call_id), live(ctx))
        whole, facts = command_output.whole(done), command_output.facts_of(done)
        if done.timed_out:
            error = ToolError(ErrorType.TIMEOUT, f"{self.name} was stopped after {CALL_SECONDS} seconds. It said:")
        elif done.exit_code:
            how = f"{self.name} ended with exit code {done.exit_code}"
            said = f"{how}. Check the arguments, or do without it. It said:"
            error = ToolError(ErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, said)
        else:
            return ToolResult(whole, self.name, metadata=facts)
        return ToolResult.failed(error, whole, title=self.name, metadata=facts)


class Discovery:
    """The source of discovered tools. None of them takes the name of one in ``reserved``, of an MCP tool or of another
    discovered one: it gets a name of its own instead."""

    def __init__(self, settings: ToolSettings, reserved: Iterable[AnyTool]) -> None:
        self._discovery = settings.discovery_command if settings.enable_discovered is not False else None
        self._call = settings.call_command or ""
        self._reserved = {name for tool in reserved for name in (tool.name, *tool.aliases)}

    @asynccontextmanager
    async def open(self, place: ToolSourceContext) -> AsyncGenerator[Sequence[AnyTool]]:
        if self._discovery and self._wanted(place.patterns):
            yield await self._found(self._discovery, place)
        else:
            yield ()

    def _wanted(self, patterns: Sequence[str] | None) -> bool:
        """Whether anything is asked for that is not the name of another tool: discovered ones may have any name."""
        others = self._reserved
        return patterns is None or any(each not in others and not each.startswith("mcp__") for each in patterns)

    async def _found(self, command: str, place: ToolSourceContext) -> list[AnyTool]:
        try:
            printed = await _printed(command, place.sandbox)
            read = await run_in_thread(_read, printed)
            tools, warnings = await _tools(read, self._call, self._reserved, place.validators)
        except ToolError as error:
            tools, warnings = [], [f"there are no discovered tools: {error.message}"]
            place.miss("")  # they might have had any name
        for warning in warnings[:MAX_WARNINGS]:
            place.warn(warning)
        if more := warnings[MAX_WARNINGS:]:
            place.warn(f"{len(more)} more discovered tools are left out, or have another name here")
        return tools


async def _printed(command: str, sandbox: Sandbox) -> bytes:
    """What the discovery command prints. Raises ToolError that says why there is nothing to go by."""
    done = await sandbox.run(Command(_argv(command, sandbox), DISCOVERY_SECONDS, max_output=MAX_OUTPUT, keep="head"))
    if done.timed_out:
        _fail(f"the discovery command was stopped after {DISCOVERY_SECONDS} seconds")
    if done.exit_code:
        said = clip(done.stderr.decode("utf-8", "replace").strip(), 500)
        _fail(f"the discovery command ended with exit code {done.exit_code}: {said or '(nothing on standard error)'}")
    if done.dropped_bytes:
        _fail(f"the discovery command printed more than {MAX_OUTPUT} bytes")
    return done.stdout


def _read(printed: bytes) -> list[Declaration | str]:
    """Each declaration, or what is wrong with it. Raises ToolError for what is no JSON."""
    try:
        said: Any = json.loads(printed, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        _fail(f"the discovery command printed no JSON ({clip(str(error), 200)})")
    found: list[Declaration | str] = []
    for entry in _entries(said):
        try:
            found.append(_declared(entry))
        except (ValueError, RecursionError) as error:
            found.append(clip(str(error), 500))
    return found


async def _tools(
    read: Sequence[Declaration | str], command: str, reserved: set[str], validators: ValidatorPool
) -> tuple[list[AnyTool], list[str]]:
    """The tools, and what must be said of declarations that are none."""
    tools: dict[str, DiscoveredTool] = {}
    warnings: list[str] = []
    for number, declared in enumerate(read, 1):
        if len(tools) == MAX_TOOLS:
            warnings.append(f"more than {MAX_TOOLS} tools were discovered; the others are left out")
            break
        try:
            if isinstance(declared, str):
                raise Misconfigured(declared)
            if any(tool.remote == declared.name for tool in tools.values()):
                raise Misconfigured(f"{declared.name!r} is declared twice")
            name = _name(declared.name, reserved | tools.keys())
            schema = await ArgumentSchema.untrusted(name, declared.parameters or {}, validators)
            tools[name] = DiscoveredTool(name, declared, command, schema)
        except Misconfigured as error:
            warnings.append(f"discovered tool {number} is left out: {clip(str(error), 500)}")
        else:
            if name != declared.name:
                warnings.append(f"the discovered tool {declared.name!r} is called {name} here")
    return [*tools.values()], warnings


def _entries(said: Any) -> Iterator[Any]:
    """The declarations in either form, or in both."""
    for entry in said if isinstance(said, list) else [said]:
        nested = entry.get("functionDeclarations", entry.get("function_declarations")) if _is_object(entry) else None
        yield from nested if isinstance(nested, list) else [entry]


def _declared(entry: Any) -> Declaration:
    """Raises ValueError that says what is wrong with a declaration."""
    if not _is_object(entry):
        raise ValueError("it is no object with name, description and parameters")
    if len(json.dumps(entry, ensure_ascii=False).encode()) > MAX_DECLARATION_CHARS:
        raise ValueError(f"it is longer than {MAX_DECLARATION_CHARS} bytes")
    try:
        declared = Declaration.model_validate(entry)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from None
    if "\0" in declared.name:
        raise ValueError("its name contains a NUL character, which no command can be given")
    if (declared.parameters or {}).get("type", "object") != "object":
        raise ValueError("parameters: the schema must be that of an object")
    return declared


def _name(declared: str, taken: set[str]) -> str:
    """The name that models accept and nobody else has: cleaned, and marked where it is another tool's."""
    clean = _UNFIT.sub("_", declared)[:MAX_NAME]
    if clean not in taken and not clean.startswith("mcp__"):
        return clean
    endings = ("" if number == 1 else f"_{number}" for number in count(1))
    names = (f"discovered_{clean}"[: MAX_NAME - len(ending)] + ending for ending in endings)
    return next(name for name in names if name not in taken)


def _argv(command: str, sandbox: Sandbox) -> list[str]:
    return shell(command, has_bash=sandbox.program("bash") is not None)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _fail(why: str) -> NoReturn:
    raise ToolError(ErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, why)
