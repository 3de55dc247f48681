"""What tools that run commands have in common: the shell, the time limit, live output, the outcome after a loss."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from ...shared.errors import ErrorType, ToolError
from ...shared.text import count
from ..contracts import Completed
from ..text.output import word_start
from .base import Probed, ToolContext, ToolResult

DEFAULT_TIMEOUT = 120
MAX_TIMEOUT = 600
LIVE_SECONDS = 0.2
LIVE_CHARS = 2000


def effective_timeout(timeout: int, most: int) -> tuple[int, str]:
    """Returns the effective timeout in seconds, and a remark for the model if it differs."""
    if timeout < 1:
        return min(DEFAULT_TIMEOUT, most), ""
    if timeout <= most:
        return timeout, ""
    remark = f"[timeout: {timeout} is more than allowed; {most} seconds were used]"
    return most, "" if timeout == DEFAULT_TIMEOUT else remark


def timeout_error(seconds: int, most: int) -> ToolError:
    longer = "" if seconds == most else f", or set a longer timeout (at most {most})"
    return ToolError(
        ErrorType.TIMEOUT,
        f"the command was stopped after {count(seconds, 'second')}, with all that it had started. "
        f"If it waits for input, pass the input in the command{longer}. The output so far:",
    )


def killed_error(done: Completed) -> ToolError:
    """Returns the error of a command that was killed for a limit of the sandbox."""
    return ToolError(ErrorType.LIMIT_REACHED, f"the command was killed: {done.exceeded}. The output so far:")


def shell(command: str, *, has_bash: bool, system: str = sys.platform) -> list[str]:
    if system == "win32":
        return ["powershell.exe", "-NoProfile", "-Command", command]
    return ["bash", "--noprofile", "--norc", "-c", command] if has_bash else ["sh", "-c", command]


def outcome_of(ctx: ToolContext, title: str) -> Probed:
    """``probe`` of a command: its mark shows whether it ended; its output was lost with the worker."""
    code = ctx.sandbox.outcome(ctx.call_id)
    if code is None or code is False:
        return code
    text = f"the command completed with exit code {code}, but the run was interrupted and its output lost"
    failure = ToolError(ErrorType.EXECUTION_FAILED, text)
    return ToolResult.failed(failure) if code else ToolResult(f"[{text}]", title)


def live(ctx: ToolContext) -> Callable[[bytes], None]:
    """Returns a callback that publishes the end of the output so far, with a rate limit."""
    seen = b""
    next_news = 0.0

    def on_output(part: bytes) -> None:
        nonlocal seen, next_news
        seen = (seen + part[-4 * LIVE_CHARS :])[-4 * LIVE_CHARS :]
        if (now := time.monotonic()) >= next_news:
            next_news = now + LIVE_SECONDS
            text = seen.decode("utf-8", "replace")
            ctx.metadata(output=text[word_start(text, max(0, len(text) - LIVE_CHARS)) :])

    return on_output
