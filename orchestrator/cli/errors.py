"""Exit codes, and errors as one line on stderr."""

from __future__ import annotations

import io
import os
import platform
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...shared.errors import DeputizeError, Invalid, Misconfigured, Refused, SpendCapReached, Unauthorized, placed
from ...shared.text import did_you_mean, visible
from . import output

if TYPE_CHECKING:
    from ...shared.delegation import ToolAgentResult
    from ...shared.masking import SecretMask

PACKAGES = ("orchestrator", "shared")
SHOWN_MISTAKES = 20
FAIL_ON_DENIED = "deputize.fail_on_denied"
"""Whether the command was called with that option, in its context's ``meta``."""
FRAMES = 3
"""Stack frames of our code that the report of an internal error contains."""


class Exit(IntEnum):
    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    """The service cannot be reached, or the configuration is wrong."""
    CANCELLED = 4
    """Also where calls were denied and `--fail-on-denied` was given."""
    LIMIT = 5
    """A limit or budget ended it; the result is partial."""
    NOT_PROVEN = 6
    """It completed, and is not proven: its verdict is less than what was required, all its calls were denied, or its
    summary states what the facts contradict."""
    WAITED = 124
    """The wait ran out; the delegation goes on."""
    INTERRUPTED = 130


def exit_code_of_result(result: ToolAgentResult) -> Exit:
    if result.termination_reason == "completed" and result.verification.shortfall():
        return Exit.FAILED if result.verification.verdict == "refuted" else Exit.NOT_PROVEN
    if result.success:
        context = click.get_current_context(silent=True)
        if result.denied_call_count and context and context.meta.get(FAIL_ON_DENIED):
            return Exit.CANCELLED
        return Exit.NOT_PROVEN if result.mark == "unproven" else Exit.SUCCEEDED
    if result.status == "cancelled":
        return Exit.CANCELLED
    if result.termination_reason in ("checks_cannot_start", "environment_failed"):
        return Exit.UNREACHABLE  # nothing was tried: what is missing is on the service's machine
    return Exit.LIMIT if result.termination_reason.is_limit else Exit.FAILED


def exit_code_of_results(results: Iterable[ToolAgentResult]) -> Exit:
    """Returns the exit code that all failures have in common, or that of a failure if they differ."""
    codes = {exit_code_of_result(result) for result in results} - {Exit.SUCCEEDED}
    if len(codes) > 1:
        return Exit.FAILED
    return codes.pop() if codes else Exit.SUCCEEDED


def exit_code_of_error(error: DeputizeError) -> Exit:
    if isinstance(error, SpendCapReached):
        return Exit.LIMIT
    if isinstance(error, Refused) and not isinstance(error, Unauthorized):
        return Exit.USAGE
    return Exit.UNREACHABLE


def refusal(mistakes: list[dict[str, str]]) -> Invalid:
    """Returns one error for all mistakes; nothing was submitted."""
    if len(mistakes) == 1:
        return Invalid(placed(mistakes[0]), mistakes)
    more = len(mistakes) - SHOWN_MISTAKES
    shown = mistakes[:SHOWN_MISTAKES]
    if more > 0:
        shown = [*shown, {"pointer": "and", "detail": f"{more} more"}]
    return Invalid(f"{len(mistakes)} mistakes, so nothing was handed over", shown)


def run_command(command: Callable[[], Any]) -> int:
    """Runs the command and prints its error, if any. Returns the exit code."""
    try:
        return int(command() or 0)
    except DeputizeError as error:
        output.note(f"deputize: {error}")
        if isinstance(error, Refused) and len(error.errors) > 1:
            output.lines((f"  {placed(each)}" for each in error.errors), err=True)
        return exit_code_of_error(error)
    except click.ClickException as error:
        _print_usage_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except OSError as error:
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        output.note(f"deputize: {named}{error.strerror or error}")
        return Exit.UNREACHABLE
    except Exception as error:  # noqa: BLE001 - a traceback does not help a user
        output.note(f"deputize: {_internal_error(error)}")
        return Exit.UNREACHABLE


def _print_usage_error(error: click.ClickException) -> None:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        error = _no_such_option(error.option_name, error.ctx)
    shown = io.StringIO()
    error.show(shown)
    message = error.format_message()
    # The usage before it has several lines; the message contains user input, which must be escaped.
    one_line = " ".join(message.split()) if isinstance(error, click.MissingParameter) else message
    text = shown.getvalue().replace(click.unstyle(message), visible(one_line))
    output.block(text.rstrip("\n"), err=True)


def _no_such_option(name: str, context: click.Context) -> click.UsageError:
    """Returns the error for an unknown option. The dashes, which all names share, make no name alike."""
    from ...shared.request_options import OPTIONS

    bare = name.lstrip("-")[:100]
    known = [each for param in context.command.get_params(context) for each in param.opts if each.startswith("--")]
    parts = [each.flag for pointer, each in OPTIONS.items() if pointer.startswith(f"{bare}/") and each.flag in known]
    near = did_you_mean(bare, [each.removeprefix("--") for each in known], cutoff=0.6, show="--{}".format)
    hint = f"its parts are {', '.join(parts)}" if parts else near
    return click.UsageError(f"No such option {name!r}" + (f"; {hint}" if hint else ""), context)


def _internal_error(error: Exception) -> str:
    from ...shared.masking import SecretMask
    from ...shared.settings import Settings

    frames = [
        f"{'/'.join(parts[-3:])}:{frame.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if any(package in (parts := Path(frame.filename).parts) for package in PACKAGES)
    ]
    where = f" at {', called from '.join(frames[:FRAMES])}" if frames else ""
    logs, mask = None, SecretMask()  # a report is made to be passed on
    with suppress(DeputizeError):
        settings = Settings.load(None)
        logs, mask = settings.home / "logs", SecretMask(settings.secrets)
    return (
        f"internal error: {type(error).__name__}: {mask.text(str(error))}{where}. "
        f"This is a defect of deputize; please report it{_report(error, mask, logs)}"
    )


def _report(error: Exception, mask: SecretMask, logs: Path | None) -> str:
    """Writes what a report needs below the home's logs. Returns the end of a sentence with its path."""
    from ...shared.fleet import own_version

    now = datetime.now(UTC)
    without_file = " with this line and the command that led to it."
    if logs is None:
        return without_file
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = logs / f"error-{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
        facts = (
            f"deputize {own_version()}, Python {platform.python_version()}, {platform.platform()}",
            f"{now:%Y-%m-%d %H:%M:%S} UTC: {shlex.join(sys.argv)}",
            "".join(traceback.format_exception(error)),
        )
        private = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(private, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(mask.text("\n".join(facts)))
    except OSError:
        return without_file
    return f" with the file {path}, which holds the command and the whole error."


def open_standard_streams() -> None:
    """Opens /dev/null for a closed standard stream: otherwise the next opened file would get its descriptor.

    Raises Misconfigured if standard output is closed, because results would be lost.
    """
    closed = [each for each in enumerate(("stdin", "stdout", "stderr")) if getattr(sys, each[1]) is None]
    for number, name in closed:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        mode = "r" if name == "stdin" else "w"
        raw = io.FileIO(number, mode, closefd=False)
        raw.name = f"<{name}>"  # as the interpreter calls it
        buffer = io.BufferedReader(raw) if name == "stdin" else io.BufferedWriter(raw)
        setattr(sys, name, io.TextIOWrapper(buffer, encoding="utf-8"))
    if (1, "stdout") in closed:
        raise Misconfigured("standard output is closed, so results would be lost; redirect it, to /dev/null if need be")


def tolerate_any_character() -> None:
    """Makes outputs write characters that they cannot encode as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
