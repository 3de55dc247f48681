"""Discovered tools: the operator's discovery command declares them, and a call command executes them.

The discovery command prints JSON: a list of declarations ``{name, description, parameters}`` or of
``{functionDeclarations: […]}``. It runs once per run, in the run's sandbox and workspace, and only if the request may
select such tools. Errors are warnings; the run continues without the tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NoReturn

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.settings import ToolSettings
from ...shared.text import clip
from ..contracts import Command, Sandbox
from ..sandbox.command import format_output, metadata_of
from ..text.output import OutputLimit
from ..threads import run_in_thread
from ..tools.base import AnyTool, Availability, DisplayOptions, Origin, Probed, Recoverable, ToolContext, ToolResult
from ..tools.command_calls import killed_error, live, outcome_of, shell
from .sources import SchemaTool, ToolSourceContext

DISCOVERY_SECONDS = 15
CALL_SECONDS = 120
MAX_OUTPUT = 1024 * 1024
MAX_TOOLS = 128
MAX_DECLARATION_CHARS = 20_000
MAX_NAME = 64
MAX_WARNINGS = 10
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "input_schema", "inputSchema", "parameters")


class ToolDeclaration(BaseModel):
    """One tool as the discovery command declares it. Unknown keys are ignored."""

    name: str = Field(min_length=1, max_length=200)
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, validation_alias=AliasChoices(*_SCHEMAS))


class DiscoveredTool(SchemaTool, Recoverable[Any]):
    """Executed by the call command: the last argument is the tool's name, stdin holds the arguments as JSON."""

    availability = Availability(needs_sandbox=True)
    display = DisplayOptions(output=OutputLimit(keep="head_tail"))

    def __init__(self, name: str, declaration: ToolDeclaration, command: str) -> None:
        description = declaration.description or f"The tool {declaration.name}."
        super().__init__(name, description, declaration.parameters or {})
        self.origin = Origin("discovered", remote=declaration.name)
        self._line = f'{command} "$@"'

    async def probe(self, ctx: ToolContext, params: Any, facts: Mapping[str, Any]) -> Probed:
        return outcome_of(ctx, self.name)

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        """Returns the output. Only the exit code marks a failure, because programs that succeed may print warnings."""
        argv = [*_argv(self._line, ctx.sandbox), "call", self.origin.remote or ""]
        stdin = json.dumps(params).encode()
        done = await ctx.sandbox.run(Command(argv, CALL_SECONDS, stdin=stdin, status_file=ctx.call_id), live(ctx))
        whole, facts = format_output(done), metadata_of(done)
        if done.exceeded:
            error = killed_error(done)
        elif done.timed_out:
            error = ToolError(ErrorType.TIMEOUT, f"{self.name} was stopped after {CALL_SECONDS} seconds. Its output:")
        elif done.exit_code:
            message = f"{self.name} ended with exit code {done.exit_code}. Check the arguments, or do without it."
            error = ToolError(ErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, f"{message} Its output:")
        else:
            return ToolResult(whole, self.name, metadata=facts)
        return ToolResult.failed(error, whole, title=self.name, metadata=facts)


class Discovery:
    """The source of discovered tools. A tool whose name is in ``reserved``, is that of an MCP tool or was discovered
    before gets another name."""

    def __init__(self, settings: ToolSettings, reserved: Iterable[AnyTool]) -> None:
        self._discovery = settings.discovery_command if settings.enable_discovered is not False else None
        self._call = settings.call_command or ""
        self._reserved = {name for tool in reserved for name in (tool.name, *tool.aliases)}

    @asynccontextmanager
    async def open(self, context: ToolSourceContext) -> AsyncGenerator[Sequence[AnyTool]]:
        # They may have any name that no other tool has.
        patterns, others = context.patterns, self._reserved
        wanted = patterns is None or any(each not in others and not each.startswith("mcp__") for each in patterns)
        yield await self._discover(self._discovery, context) if self._discovery and wanted else ()

    async def _discover(self, command: str, context: ToolSourceContext) -> list[AnyTool]:
        try:
            output = await _run_discovery(command, context.sandbox)
            tools, warnings = await run_in_thread(_create_tools, output, self._call, self._reserved)
        except ToolError as error:
            tools, warnings = [], [f"there are no discovered tools: {error.message}"]
            context.add_missing("")  # discovered tools may have any name
        for warning in warnings[:MAX_WARNINGS]:
            context.warn(warning)
        if more := warnings[MAX_WARNINGS:]:
            context.warn(f"{len(more)} more discovered tools are left out, or have another name here")
        return tools


async def _run_discovery(command: str, sandbox: Sandbox) -> bytes:
    done = await sandbox.run(Command(_argv(command, sandbox), DISCOVERY_SECONDS, max_output=MAX_OUTPUT, keep="head"))
    if done.timed_out:
        _fail(f"the discovery command was stopped after {DISCOVERY_SECONDS} seconds")
    if done.exit_code:
        stderr = clip(done.stderr.decode("utf-8", "replace").strip(), 500)
        _fail(f"the discovery command ended with exit code {done.exit_code}: {stderr or '(nothing on standard error)'}")
    if done.dropped_bytes:
        _fail(f"the discovery command printed more than {MAX_OUTPUT} bytes")
    return done.stdout


def _create_tools(output: bytes, command: str, reserved: set[str]) -> tuple[list[AnyTool], list[str]]:
    """Returns the declared tools, and warnings about invalid or renamed ones.

    Raises ToolError for output that is not valid JSON.
    """
    try:
        value: Any = json.loads(output, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        _fail(f"the discovery command did not print valid JSON ({clip(str(error), 200)})")
    tools: dict[str, DiscoveredTool] = {}
    warnings: list[str] = []
    for number, entry in enumerate(_entries(value), 1):
        if len(tools) == MAX_TOOLS:
            warnings.append(f"more than {MAX_TOOLS} tools were discovered; the others are left out")
            break
        try:
            declaration = _parse_declaration(entry)
            if any(tool.origin.remote == declaration.name for tool in tools.values()):
                raise Misconfigured(f"{declaration.name!r} is declared twice")
            name = _unique_name(declaration.name, reserved | tools.keys())
            tools[name] = DiscoveredTool(name, declaration, command)
        except (Misconfigured, ValueError, RecursionError) as error:
            warnings.append(f"discovered tool {number} is left out: {clip(str(error), 500)}")
        else:
            if name != declaration.name:
                warnings.append(f"the discovered tool {declaration.name!r} is named {name} here")
    return [*tools.values()], warnings


def _entries(value: Any) -> Iterator[Any]:
    """Yields the declarations in both accepted forms."""
    for entry in value if isinstance(value, list) else [value]:
        nested = entry.get("functionDeclarations", entry.get("function_declarations")) if _is_object(entry) else None
        yield from nested if isinstance(nested, list) else [entry]


def _parse_declaration(entry: Any) -> ToolDeclaration:
    if not _is_object(entry):
        raise ValueError("it is not an object with name, description and parameters")
    if len(json.dumps(entry, ensure_ascii=False).encode()) > MAX_DECLARATION_CHARS:
        raise ValueError(f"it is longer than {MAX_DECLARATION_CHARS} bytes")
    try:
        declaration = ToolDeclaration.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if "\0" in declaration.name:
        raise ValueError("its name contains a NUL character, which a command's argument cannot contain")
    if (declaration.parameters or {}).get("type", "object") != "object":
        raise ValueError("parameters: the schema must be that of an object")
    return declaration


def _unique_name(declared_name: str, taken: set[str]) -> str:
    """Returns a unique name that models accept: invalid characters replaced, and prefixed where it is taken."""
    clean = _INVALID_CHARACTER.sub("_", declared_name)[:MAX_NAME]
    if clean not in taken and not clean.startswith("mcp__"):
        return clean
    suffixes = ("" if number == 1 else f"_{number}" for number in count(1))
    names = (f"discovered_{clean}"[: MAX_NAME - len(suffix)] + suffix for suffix in suffixes)
    return next(name for name in names if name not in taken)


def _argv(command: str, sandbox: Sandbox) -> list[str]:
    return shell(command, has_bash=sandbox.program("bash") is not None)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _fail(reason: str) -> NoReturn:
    raise ToolError(ErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, reason)
