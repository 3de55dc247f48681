"""A command for a sandbox, its result as text for the model and as metadata for programs, and its status file.

That file survives the loss of the worker.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from ...shared.libc import beneath, closing_fd
from ...shared.text import clip
from ..contracts import Completed
from ..text.encodings import controls_in
from ..text.output import MAX_DISPLAY_CHARS, AnsiOutput, Display

MAX_METADATA_CHARS = 2000
"""Per stream; the content has all of it."""
NOT_STARTED = 125
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def create_status_file(folder: Path, name: str) -> int:
    """Creates a status file and returns its descriptor. Raises OSError, also for a name outside of the folder."""
    return _open_status_file(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def read_status_file(folder: Path, name: str) -> int | Literal[False] | None:
    """Returns the exit code in a status file; False if the command never started, None if its outcome is unknown.

    A death by a signal may be due to the loss of the worker, and 125 may be the guard's own exit code: in both cases
    the outcome is unknown.
    """
    try:
        with open(_open_status_file(folder, name, os.O_RDONLY), encoding="ascii", errors="replace") as status_file:
            text = status_file.read()
    except FileNotFoundError:
        return False
    except OSError:
        return None
    codes = re.findall(r'"exit-code"\s*:\s*(-?\d+)', text)
    code = int(codes[-1]) if codes else NOT_STARTED
    return code if 0 <= code < NOT_STARTED else None


def _open_status_file(folder: Path, name: str, flags: int) -> int:
    with closing_fd(os.open(folder, _FOLDER)) as folder_fd:
        return beneath(folder_fd, name, flags | os.O_NOFOLLOW)


def format_output(done: Completed) -> str:
    """Returns standard output, standard error and exit code; empty parts are left out."""
    parts = [printed_text(done.stdout).rstrip("\n")]
    if errors := printed_text(done.stderr).rstrip("\n"):
        parts.append(f"[stderr]\n{errors}")
    if done.dropped_bytes:
        parts.append(dropped(done.dropped_bytes))
    if done.exit_code and not done.timed_out:
        parts.append(f"[exit code: {done.exit_code}]")
    return "\n".join(part for part in parts if part)


def printed_text(output: bytes) -> str:
    """Returns what a command printed as text; binary data in it is summed up."""
    if not controls_in(output) and output.isascii():
        return output.decode("ascii")
    from ..text.printed import shown_text  # much output is plain

    return shown_text(output)


def ansi_display(text: str) -> Display:
    """Returns coloured output for users if it is short enough to be shown as a whole; else the content suffices."""
    return AnsiOutput(text) if "\x1b" in text and len(text) <= MAX_DISPLAY_CHARS else ""


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


def dropped(count: int) -> str:
    return f"[{count} bytes of output exceeded the limit and were dropped]"
