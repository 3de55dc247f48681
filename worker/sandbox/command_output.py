"""A command's output and status, as text for the model and as metadata for programs."""

from __future__ import annotations

from typing import Any

from ...shared.text import clip
from ..text.display import AnsiOutput, Display
from ..text.output import MAX_DISPLAY_CHARS
from .command import Completed
from .shells import BackgroundShell, ShellOutput, ShellStatus

MAX_METADATA_CHARS = 2000
"""Per stream; the content has all of it."""


def format_output(done: Completed) -> str:
    """Returns standard output, standard error and exit code; empty parts are left out."""
    parts = [done.stdout.decode("utf-8", "replace").rstrip("\n")]
    if errors := done.stderr.decode("utf-8", "replace").rstrip("\n"):
        parts.append(f"[stderr]\n{errors}")
    if done.dropped_bytes:
        parts.append(_dropped(done.dropped_bytes))
    if done.exit_code and not done.timed_out:
        parts.append(f"[exit code: {done.exit_code}]")
    return "\n".join(part for part in parts if part)


def ansi_display(text: str) -> Display:
    """Returns coloured output for users if it is short enough to be shown as a whole; else the content suffices."""
    return AnsiOutput(text) if "\x1b" in text and len(text) <= MAX_DISPLAY_CHARS else ""


def format_shell_output(shell: BackgroundShell, output: ShellOutput) -> str:
    """Returns the new output of a background shell, and its status."""
    parts = [output.text] if output.shown else ["(no line matches the filter)" if output.lines else "(no new output)"]
    if output.shown < output.lines:
        unread = "read without a filter to get the others"
        parts.append(f"[{output.shown} of {output.lines} unread lines match the filter; {unread}]")
    elif output.earlier:
        first = f"the first {output.earlier} lines" if output.earlier > 1 else "the first line"
        parts.append(f"[{first} had been hidden by a filter before]")
    if output.lost_lines:
        parts.append(f"[{output.lost_lines} older filtered lines exceeded the buffer and were dropped]")
    if output.lost_bytes:
        parts.append(_dropped(output.lost_bytes))
    if output.status is ShellStatus.ERROR:
        parts.append(f"It could not be started: {shell.process.failure}")
    code = "" if output.exit_code is None else f", exit code: {output.exit_code}"
    return "\n".join([*parts, f"[bash_id: {shell.bash_id}, status: {output.status}{code}]"])


def metadata(
    exit_code: int | None, stdout: str, stderr: str = "", bash_id: str | None = None, **more: Any
) -> dict[str, Any]:
    """Returns a command's result as metadata for programs."""
    streams = {"stdout": clip(stdout, MAX_METADATA_CHARS), "stderr": clip(stderr, MAX_METADATA_CHARS)}
    return {"exitCode": exit_code, **streams, "bashId": bash_id, **more}


def metadata_of(done: Completed) -> dict[str, Any]:
    """Returns ``metadata`` of a foreground command."""
    streams = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return metadata(done.exit_code, *streams, seconds=round(done.seconds, 3), timedOut=done.timed_out)


def _dropped(count: int) -> str:
    return f"[{count} bytes of output exceeded the limit and were dropped]"
