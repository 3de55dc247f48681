"""``bash_kill``: ends a background shell."""

from __future__ import annotations

from pydantic import Field

from ...shared.text import clip
from ..sandbox.command import metadata
from ..sandbox.shells import format_shell_output
from .base import Availability, Effect, Kind, OutputLimit, Params, Tool, ToolResult
from .context import ToolContext


class BashKillParams(Params):
    bash_id: str = Field(min_length=1, description="The shell's id, as bash with run_in_background gave it.")


class BashKill(Tool[BashKillParams]):
    """Ends a background shell with all that it has started, and shows its last output and its status.

    Everything in it is asked to end (SIGTERM) and has two seconds for that; what is left then is killed (SIGKILL).
    The status is terminated, or completed or failed where it had ended before. Afterwards its id is gone.
    """

    name = "bash_kill"
    availability = Availability("enable_bash")
    kind = Kind.EXECUTE
    effect = Effect.IDEMPOTENT
    aliases = ("kill_shell", "KillShell", "KillBash")
    needs_sandbox = True
    output = OutputLimit(keep="head_tail")
    params = BashKillParams

    def title(self, params: BashKillParams) -> str:
        return f"end background shell {clip(params.bash_id, 40)}"

    async def run(self, ctx: ToolContext, params: BashKillParams) -> ToolResult:
        shell = ctx.sandbox.shells.lookup(params.bash_id)
        await shell.stop()
        news = await shell.read()
        ctx.sandbox.shells.remove(shell.bash_id)
        facts = metadata(news.exit_code, news.text, bash_id=shell.bash_id, status=news.status)
        return ToolResult(format_shell_output(shell, news), self.title(params), metadata=facts)
