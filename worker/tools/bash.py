"""``bash``: a command line in the sandbox."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.text import clip
from deputize.worker.sandbox import command_output
from deputize.worker.sandbox.command import Command
from deputize.worker.text.display import plain
from deputize.worker.tools.base import Availability, Effect, Kind, OutputLimit, Params, Recoverable, ToolResult
from deputize.worker.tools.context import ToolContext, Touches

DEFAULT_TIMEOUT = 120
MAX_TIMEOUT = 600
LIVE_SECONDS = 0.2
LIVE_CHARS = 2000


class BashParams(Params):
    command: str = Field(min_length=1, max_length=100_000, description="The command line.")
    timeout: int = Field(
        default=DEFAULT_TIMEOUT,
        description="Seconds after which the command is stopped, at most 600. A background command needs none.",
    )
    run_in_background: bool = Field(
        default=False,
        description="True starts the command and answers at once with a bash_id; it goes on until it ends, bash_kill "
        "ends it or the task is over.",
    )


class Bash(Recoverable[BashParams]):
    """Runs a command line with bash in the workspace and returns its output and exit code.

    Every command starts anew in the workspace: a cd or an exported variable does not last. There is no network and
    no input: a program that asks a question or waits for input is stopped when its time is over. When the command
    ends, everything it started ends. Dangerous commands (such as rm -rf) may wait for a person's approval or be
    refused. Over-long output is cut in the middle; the whole of it is saved, and the answer says where.
    Run what takes minutes with run_in_background and go on with other work: bash_output reads it, bash_kill ends it.
    Commands share the workspace and nothing else: a server is reached only from the command line that started it.
    For reading, writing, editing and searching files the tools made for it are better.
    """

    name = "bash"
    availability = Availability("enable_bash")
    kind = Kind.EXECUTE
    effect = Effect.EFFECTFUL
    step_type = "bash"
    aliases = ("run_shell_command", "shell", "execute")
    needs_sandbox = True
    output = OutputLimit(keep="head_tail")
    params = BashParams

    def title(self, params: BashParams) -> str:
        return f"$ {clip(' '.join(params.command.split()), 76)}{' &' * params.run_in_background}"

    def touches(self, params: BashParams) -> Touches:
        return Touches(command=params.command)

    async def probe(
        self, ctx: ToolContext, params: BashParams, facts: Mapping[str, Any]
    ) -> ToolResult | Literal[False] | None:
        return outcome_of(ctx, self.title(params))

    async def run(self, ctx: ToolContext, params: BashParams) -> ToolResult:
        if "\0" in params.command:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS, "the command contains a NUL character, which shells do not accept"
            )
        argv = shell(params.command, has_bash=ctx.sandbox.program("bash") is not None)
        if params.run_in_background:
            return await self._start(ctx, params, argv)
        seconds, remark = _effective_timeout(params.timeout)
        done = await ctx.sandbox.run(Command(argv, seconds, status_file=ctx.call_id), live(ctx))
        facts = command_output.metadata_of(done)
        printed = "\n".join(part for part in (command_output.format_output(done), remark) if part)
        content = plain(printed)
        shown: dict[str, Any] = {"title": self.title(params), "display": command_output.ansi_display(printed)}
        if done.timed_out:
            return ToolResult.failed(_timeout_error(seconds), content, metadata=facts, **shown)
        if done.exit_code:
            failure = ToolError(ErrorType.EXECUTION_FAILED, f"the command ended with exit code {done.exit_code}")
            return ToolResult.failed(failure, content, metadata=facts, **shown)
        return ToolResult(content or "(no output)", metadata=facts, **shown)

    async def _start(self, ctx: ToolContext, params: BashParams, argv: list[str]) -> ToolResult:
        started = await ctx.sandbox.shells.start(params.command, Command(argv, params.timeout, status_file=ctx.call_id))
        id = started.bash_id
        said = f"Command started in background. Use bash_output to monitor (bash_id='{id}')."
        facts = command_output.metadata(0, f"Background command started with ID: {id}", bash_id=id)
        content = f"{said}\n\nCommand: {params.command}\nBash ID: {id}"
        return ToolResult(content, self.title(params), metadata=facts)


def shell(command: str, *, has_bash: bool, system: str = sys.platform) -> list[str]:
    """Returns the argument vector of the shell that runs a command line."""
    if system == "win32":
        return ["powershell.exe", "-NoProfile", "-Command", command]
    return ["bash", "--noprofile", "--norc", "-c", command] if has_bash else ["sh", "-c", command]


def outcome_of(ctx: ToolContext, title: str) -> ToolResult | Literal[False] | None:
    """``probe`` of a command: its mark shows whether it ended; its output was lost with the worker."""
    code = ctx.sandbox.outcome(ctx.call_id)
    if code is None or code is False:
        return code
    said = f"the command completed with exit code {code}, but the run was interrupted and its output lost"
    failure = ToolError(ErrorType.EXECUTION_FAILED, said)
    return ToolResult.failed(failure) if code else ToolResult(f"[{said}]", title)


def _effective_timeout(timeout: int) -> tuple[int, str]:
    """Returns the effective timeout in seconds, and a remark for the model if it differs."""
    if timeout < 1:
        return DEFAULT_TIMEOUT, ""
    if timeout > MAX_TIMEOUT:
        return MAX_TIMEOUT, f"[timeout: {timeout} is more than allowed; {MAX_TIMEOUT} seconds were used]"
    return timeout, ""


def _timeout_error(seconds: int) -> ToolError:
    longer = "" if seconds == MAX_TIMEOUT else f", or set a longer timeout (at most {MAX_TIMEOUT})"
    return ToolError(
        ErrorType.TIMEOUT,
        f"the command was stopped after {seconds} second{'s' * (seconds != 1)}, with all that it had started. "
        f"If it waits for input, pass the input in the command{longer}. The output so far:",
    )


def live(ctx: ToolContext) -> Callable[[bytes], None]:
    """Returns a callback that publishes the end of the output so far, with a rate limit."""
    seen = b""
    next_news = 0.0

    def on_output(part: bytes) -> None:
        nonlocal seen, next_news
        seen = (seen + part[-4 * LIVE_CHARS :])[-4 * LIVE_CHARS :]
        if (now := time.monotonic()) >= next_news:
            next_news = now + LIVE_SECONDS
            ctx.metadata(output=seen.decode("utf-8", "replace")[-LIVE_CHARS:])

    return on_output
