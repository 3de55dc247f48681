"""Parameter types of the command line, and option names for JSON pointers."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

if TYPE_CHECKING:
    from deputize.shared.errors import Refused

OPTIONS = {
    "task": "TASK",
    "context": "--context",
    "expectedOutcome": "--expect",
    "workspace": "--workspace",
    "tools": "--tools",
    "approvalMode": "--approval",
    "limits/maxTurns": "--max-turns",
    "limits/maxToolCalls": "--max-tool-calls",
    "limits/timeoutSeconds": "--timeout",
    "limits/maxCostUsd": "--max-cost",
    "model": "--model",
}
"""Pointers into a request, and their options on the command line."""


class Text(click.ParamType[str]):
    """TEXT itself, @FILE for a file's content, - for stdin; @@ begins a text with @."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.startswith("@@") or not (value == "-" or value.startswith("@")):
            return value[1:] if value.startswith("@@") else value
        try:
            if value == "-":
                return read_text(_stdin_once(ctx))
            with Path(value[1:]).open("rb") as file:
                return read_text(file)
        except OSError as error:
            self.fail(f"{value[1:]} cannot be read: {error.strerror} (@@ begins a text with @)", param, ctx)
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)


class Finite(click.FloatRange):
    """A finite number: ``nan`` and ``inf`` would pass every range check or none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Directory(click.ParamType[Path]):
    """A path; an empty one, as from an unset variable, is refused, not the current directory."""

    name = "directory"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("it names no directory; leave the option out for an empty one", param, ctx)
        return Path(value)


class Label(click.ParamType[str]):
    """``KEY:VALUE``."""

    name = "label"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.partition(":")[0] or ":" not in value:
            self.fail(f"{value!r} is not KEY:VALUE", param, ctx)
        return value


def stdin_text(ctx: click.Context) -> str:
    """Returns the text of a pipe or file on stdin; "" for a terminal. Raises ``click.UsageError``."""
    if sys.stdin.isatty():
        return ""
    try:
        return read_text(_stdin_once(ctx))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"the task on standard input cannot be read: {error}", ctx) from None


def read_text(file: BinaryIO) -> str:
    """Reads UTF-8, with or without a byte order mark. Raises ValueError with the actual encoding."""
    from deputize.shared.request import MAX_TEXT_BYTES

    data = file.read(MAX_TEXT_BYTES + 4)  # a device has no end
    if len(data) > MAX_TEXT_BYTES + 3:
        raise ValueError(f"it is larger than a request may be ({MAX_TEXT_BYTES} bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None


def _stdin_once(ctx: click.Context | None) -> BinaryIO:
    if ctx is not None and ctx.meta.setdefault("deputize.stdin_read", False):
        raise click.UsageError("standard input can be read only once; give the other text as @FILE", ctx)
    if ctx is not None:
        ctx.meta["deputize.stdin_read"] = True
    return sys.stdin.buffer


def in_options(error: Refused) -> Refused:
    """Returns the refusal with the names of options instead of pointers."""
    errors = [{**each, "pointer": _option(each["pointer"])} for each in error.errors]
    detail = error.detail
    for before, after in zip(error.errors, errors, strict=True):
        if before["pointer"] and detail.startswith(f"{before['pointer']}: "):
            detail = detail.replace(before["pointer"], after["pointer"], 1)
    if len(errors) == 1 and errors[0]["pointer"] not in detail:
        detail = f"{errors[0]['pointer']}: {detail}"
    return type(error)(detail, errors)


def _option(pointer: str) -> str:
    for path, option in OPTIONS.items():
        if pointer.strip("/") == path or pointer.startswith(f"/{path}/"):
            item = re.fullmatch(r"/(\d+)", pointer.removeprefix(f"/{path}"))
            return f"{option}, item {int(item[1]) + 1}" if item else option
    return pointer
