"""``bash``: a command line in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from ...shared.errors import ErrorType, ToolError
from ...shared.settings import Settings
from ...shared.text import clip, terminal_text
from ..contracts import Command
from ..sandbox.command import ansi_display, format_output, metadata, metadata_of
from .base import (
    Availability,
    DisplayOptions,
    Kind,
    OutputLimit,
    Params,
    Probed,
    Recoverable,
    ToolContext,
    ToolResult,
    Touches,
)
from .command_calls import (
    DEFAULT_TIMEOUT,
    MAX_TIMEOUT,
    effective_timeout,
    killed_error,
    live,
    outcome_of,
    shell,
    timeout_error,
)
from .command_hints import command_hints

WAIT_SECONDS = 1.0
"""A command that takes longer beside a running background command may be waiting for that one."""


class BashParams(Params):
    command: str = Field(min_length=1, max_length=100_000, description="The command line.")
    timeout: int = Field(
        default=DEFAULT_TIMEOUT,
        description="Seconds after which the command is stopped. A background command needs none.",
    )
    run_in_background: bool = Field(
        default=False,
        description="True starts the command and answers at once with a bash_id; it goes on until it ends, bash_kill "
        "ends it or the task is over.",
    )

    @field_validator("command")
    @classmethod
    def _line_ends(cls, command: str) -> str:
        return command.replace("\r\n", "\n")  # what is judged is what runs


class Bash(Recoverable[BashParams]):
    """Runs a command line with bash in the workspace and returns its output and exit code.

    Every command starts anew in the workspace: a cd or an exported variable does not last. {network}
    no input: a program that asks a question or waits for input is stopped when its time is over, after {seconds}
    seconds at the latest. When the command ends, everything it started ends.
    Dangerous commands (such as rm -rf) may wait for a person's approval or be refused. Over-long output is cut in the
    middle; the whole of it is saved, and the answer names its file.
    Run what takes minutes with run_in_background and go on with other work: bash_output reads it, bash_kill ends it.
    Commands share the workspace and nothing else, no network, no processes and no files in /tmp or the home folder:
    start a server and what connects to it in one command line (server & sleep 1; client).
    For reading, writing, editing and searching files the tools made for it are better.
    """

    name = "bash"
    availability = Availability("enable_bash", needs_sandbox=True)
    kind = Kind.EXECUTE
    display = DisplayOptions("bash", OutputLimit(keep="head_tail"))
    aliases = ("run_shell_command", "shell", "execute", "Bash", "execute_command", "run_terminal_cmd")
    params = BashParams

    def __init__(self, max_timeout: int = MAX_TIMEOUT, hosts: Sequence[str] = ()) -> None:
        self._max_timeout = max_timeout
        self._hosts = hosts

    def configured(self, settings: Settings) -> Bash:
        return Bash(settings.sandbox.command_seconds, settings.sandbox.allowed_hosts)

    @property
    def description(self) -> str:
        """The docstring with what the operator has configured."""
        hosts = ", ".join(self._hosts)
        reached = f"The network reaches {hosts}, by the proxy in HTTPS_PROXY, and nothing else; there is"
        network = reached if hosts else "There is no network, and"
        return super().description.format(network=network, seconds=self._max_timeout)

    def title(self, params: BashParams) -> str:
        return f"$ {clip(' '.join(params.command.split()), 76)}{' &' * params.run_in_background}"

    def touches(self, params: BashParams) -> Touches:
        return Touches(command=params.command)

    async def probe(self, ctx: ToolContext, params: BashParams, facts: Mapping[str, Any]) -> Probed:
        return outcome_of(ctx, self.title(params))

    async def run(self, ctx: ToolContext, params: BashParams) -> ToolResult:
        if "\0" in params.command:
            raise ToolError(ErrorType.INVALID_TOOL_PARAMS, "the command contains a NUL character, as no shell accepts")
        argv = shell(params.command, has_bash=ctx.sandbox.program("bash") is not None)
        if params.run_in_background:
            return await self._start(ctx, params, argv)
        seconds, remark = effective_timeout(params.timeout, self._max_timeout)
        done = await ctx.sandbox.run(Command(argv, seconds, status_file=ctx.call_id, reads=ctx.reads), live(ctx))
        printed = "\n".join(part for part in (format_output(done), remark) if part)
        content = terminal_text(printed)
        running = any(each.running for each in ctx.sandbox.shells)
        shown: dict[str, Any] = {
            "title": self.title(params),
            "metadata": metadata_of(done),
            "display": ansi_display(printed),
            "pending": running and done.seconds >= WAIT_SECONDS,
            "hint": command_hints(ctx.files, ctx.sandbox, params.command, done, printed),
        }
        if done.exceeded:
            failure = killed_error(done)
        elif done.timed_out:
            failure = timeout_error(seconds, self._max_timeout)
        elif done.exit_code:
            failure = ToolError(ErrorType.EXECUTION_FAILED, f"the command ended with exit code {done.exit_code}")
        else:
            return ToolResult(content or "(no output)", **shown)
        return ToolResult.failed(failure, content, **shown)

    async def _start(self, ctx: ToolContext, params: BashParams, argv: list[str]) -> ToolResult:
        command = Command(argv, params.timeout, status_file=ctx.call_id, reads=ctx.reads)
        started = await ctx.sandbox.shells.start(params.command, command)
        id = started.bash_id
        text = f"Command started in background. Use bash_output to monitor (bash_id='{id}')."
        facts = metadata(0, f"Background command started with ID: {id}", bash_id=id)
        return ToolResult(f"{text}\n\nCommand: {params.command}\nBash ID: {id}", self.title(params), metadata=facts)
