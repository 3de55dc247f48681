"""A command's output and status, as text for the model and as metadata for programs."""

from __future__ import annotations

from typing import Any

from shared.text import clip
from worker.sandbox.command import Completed
from worker.sandbox.shells import BackgroundShell, ShellOutput, ShellStatus
from worker.text.display import AnsiOutput, Display
from worker.text.output import MAX_DISPLAY_CHARS

MAX_FACT_CHARS = 2000
"""Per stream; the content has all of it."""


def whole(done: Completed) -> str:
    """Returns standard output, standard error and exit code; empty parts are left out."""
    parts = [done.stdout.decode("utf-8", "replace").rstrip("\n")]
    if errors := done.stderr.decode("utf-8", "replace").rstrip("\n"):
        parts.append(f"[stderr]\n{errors}")
    if done.dropped_bytes:
        parts.append(_lost(done.dropped_bytes))
    if done.exit_code and not done.timed_out:
        parts.append(f"[exit code: {done.exit_code}]")
    return "\n".join(part for part in parts if part)


def ansi_display(printed: str) -> Display:
    """Returns coloured output for users if it is short enough to be shown as a whole; else the content suffices."""
    return AnsiOutput(printed) if "\x1b" in printed and len(printed) <= MAX_DISPLAY_CHARS else ""


def new(shell: BackgroundShell, news: ShellOutput) -> str:
    """Returns the new output of a background shell, and its status."""
    parts = [news.text] if news.shown else ["(no line matches the filter)" if news.lines else "(no new output)"]
    if news.shown < news.lines:
        unread = "without a filter you get the others"
        parts.append(f"[{news.shown} of {news.lines} unread lines match the filter; {unread}]")
    elif news.earlier:
        first = f"the first {news.earlier} lines" if news.earlier > 1 else "the first line"
        parts.append(f"[{first} had been hidden by a filter before]")
    if news.lost_lines:
        parts.append(f"[{news.lost_lines} older lines that a filter hid were too many and are lost]")
    if news.lost_bytes:
        parts.append(_lost(news.lost_bytes))
    if news.status is ShellStatus.ERROR:
        parts.append(f"It could not be started: {shell.process.failure}")
    code = "" if news.exit_code is None else f", exit code: {news.exit_code}"
    return "\n".join([*parts, f"[bash_id: {shell.bash_id}, status: {news.status}{code}]"])


def facts(
    exit_code: int | None, stdout: str, stderr: str = "", bash_id: str | None = None, **more: Any
) -> dict[str, Any]:
    """Returns a command's result as metadata for programs."""
    streams = {"stdout": clip(stdout, MAX_FACT_CHARS), "stderr": clip(stderr, MAX_FACT_CHARS)}
    return {"exitCode": exit_code, **streams, "bashId": bash_id, **more}


def facts_of(done: Completed) -> dict[str, Any]:
    """Returns ``facts`` of a foreground command."""
    streams = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return facts(done.exit_code, *streams, seconds=round(done.seconds, 3), timedOut=done.timed_out)


def _lost(count: int) -> str:
    return f"[{count} bytes of output were too much and are lost]"
