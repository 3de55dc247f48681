"""``bash_output`` and ``bash_kill``: the output, the status and the end of background shells."""

from __future__ import annotations

from pydantic import Field

from ...shared.text import clip
from ..contracts import ShellStatus
from ..sandbox.command import metadata
from ..sandbox.shells import format_shell_output
from .base import Availability, DisplayOptions, Effect, Kind, OutputLimit, Params, Tool, ToolContext, ToolResult

WAIT_SECONDS = 5.0
"""How long to wait for output: every call costs the model a turn, so an empty result is delayed."""


class ShellParams(Params):
    bash_id: str = Field(min_length=1, description="The shell's id, as bash with run_in_background gave it.")


class BashOutputParams(ShellParams):
    filter: str | None = Field(
        default=None,
        max_length=1000,
        description="A regular expression: show only lines that match it. The others stay unread.",
    )


class BashOutput(Tool[BashOutputParams]):
    """Shows what a background shell has printed since the last look, and its status.

    The shell is one that bash started with run_in_background, running or ended; its standard error stands among its
    output, in the order of writing. Status is running, completed (exit code 0), failed (another one), terminated (by
    bash_kill) or error (it could not be started). Where nothing is new this waits a few seconds for it.
    With a filter, the last line of a running shell is shown only once it is whole; what the filter hides is shown by
    the next call without one.
    """

    name = "bash_output"
    availability = Availability("enable_bash", needs_sandbox=True)
    kind = Kind.READ
    effect = Effect.PURE
    """It consumes the output, but after a crash there is none left that a second call could miss."""
    aliases = ("BashOutput",)
    display = DisplayOptions(output=OutputLimit(keep="head_tail"))
    params = BashOutputParams

    def title(self, params: BashOutputParams) -> str:
        return f"output of background shell {clip(params.bash_id, 40)}"

    async def run(self, ctx: ToolContext, params: BashOutputParams) -> ToolResult:
        shell = ctx.sandbox.shells.lookup(params.bash_id)
        if params.filter is not None or not shell.hides_lines:
            await shell.wait_for_output(WAIT_SECONDS)
        news = await shell.read(params.filter)
        facts = metadata(
            news.exit_code, news.text, bash_id=shell.bash_id, status=news.status, startedAt=shell.start_time.isoformat()
        )
        text, pending = format_shell_output(shell, news), news.status is ShellStatus.RUNNING
        return ToolResult(text, self.title(params), metadata=facts, pending=pending)


class BashKill(Tool[ShellParams]):
    """Ends a background shell with all that it has started, and shows its last output and its status.

    Everything in it is asked to end (SIGTERM) and has two seconds for that; what is left then is killed (SIGKILL).
    The status is terminated, or completed or failed where it had ended before. Afterwards its id is gone.
    """

    name = "bash_kill"
    availability = Availability("enable_bash", needs_sandbox=True)
    kind = Kind.EXECUTE
    effect = Effect.IDEMPOTENT
    aliases = ("kill_shell", "KillShell", "KillBash")
    display = DisplayOptions(output=OutputLimit(keep="head_tail"))
    params = ShellParams

    def title(self, params: ShellParams) -> str:
        return f"end background shell {clip(params.bash_id, 40)}"

    async def run(self, ctx: ToolContext, params: ShellParams) -> ToolResult:
        shell = ctx.sandbox.shells.lookup(params.bash_id)
        await shell.stop()
        news = await shell.read()
        ctx.sandbox.shells.remove(shell.bash_id)
        facts = metadata(news.exit_code, news.text, bash_id=shell.bash_id, status=news.status)
        return ToolResult(format_shell_output(shell, news), self.title(params), metadata=facts)
