"""Parameter types of the command line, and commands that report every wrong value."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from ...shared.request_options import OPTIONS, REQUIRED
from .errors import FAIL_ON_DENIED, refusal

Value = TypeVar("Value")
_SECTIONS = ("Task", "Files", "Agent", "Limits", "Checks", "Options", "Rarely needed")
_SECTION_OF = {
    **dict.fromkeys(("request", "format", "task"), "Task"),
    **dict.fromkeys(("workspace", "no_workspace", "with_ignored", "exclude", "apply"), "Files"),
    **{option.parameter: option.section for option in OPTIONS.values()},
}
"""The section of the help in which a parameter stands; all others stand in ``Options``."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", re.ASCII)
_SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"b": 1} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("kmgt", 1)
    for end, base in (("b", 1000), ("", 1024), ("ib", 1024))
}


class Parsed(click.ParamType[Value]):
    """A value as a function reads it, which raises ValueError for a wrong one."""

    def __init__(self, name: str, read: Callable[[str], Value]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _text(value: str) -> str:
    if value.startswith("@@") or not (value == "-" or value.startswith("@")):
        return value[1:] if value.startswith("@@") else value
    try:
        return read_text(None if value == "-" else value[1:])
    except OSError as error:
        raise ValueError(f"{value[1:]} cannot be read: {error.strerror} (@@ begins a text with @)") from None
    except ValueError as error:
        raise ValueError(f"{value}: {error}") from None


def _directory(value: str) -> Path:
    if value == "":  # as from an unset variable
        raise ValueError("it names no directory; leave the option out for an empty one")
    return Path(value)


def _names(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise ValueError("it names none; leave the option out for the default ones")
    return names


def _label(value: str) -> str:
    if not value.partition(":")[0] or ":" not in value:
        raise ValueError(f"{value!r} is not KEY:VALUE")
    return value


def _retry(value: str) -> dict[str, Any]:
    number, colon, reasons = value.partition(":")
    on = [reason.strip() for reason in reasons.split(",") if reason.strip()]
    if not number.strip().isdecimal() or (colon and not on):
        raise ValueError(f"{value!r} is not N or N:REASON,REASON, as 2 or 2:timeout,error")
    return {"attempts": int(number)} | ({"on": on} if on else {})


def _after(value: str) -> dict[str, Any]:
    id, colon, require = value.partition(":")
    if not id or (colon and require not in REQUIRED):
        raise ValueError(f"{value!r} is not ID or ID:verified")
    return {"id": id} | ({"require": require} if colon else {})


TEXT = Parsed("text", _text)
"""TEXT itself, @FILE for a file's content, - for stdin; @@ begins a text with @."""
DIRECTORY = Parsed("directory", _directory)
NAMES = Parsed("names", _names)
"""Names separated by commas; at least one."""
LABEL = Parsed("label", _label)
"""``KEY:VALUE``."""
AFTER = Parsed("after", _after)
"""``ID`` or ``ID:verified``, as an item of a request's ``after``."""
RETRY = Parsed("retry", _retry)
"""``N`` or ``N:REASON,REASON``, as the fields of a request's ``retry``."""


class Finite(click.FloatRange):
    """A finite number, or an amount of units: ``nan`` and ``inf`` would pass every range check or none."""

    units: Mapping[str, int] = {}
    example = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
        unit = found and self.units.get(found[2].lower())
        amount: Any = float(found[1]) * unit if found and unit else value
        if self.example and amount is value and isinstance(value, str) and not _is_number(value):
            self.fail(f"{value!r} is not a {self.name} such as {self.example}", param, ctx)
        number = super().convert(amount, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def _is_number(value: str) -> bool:
    with suppress(ValueError):
        float(value)
        return True
    return False


class Duration(Finite):
    """``90`` or ``90s``, ``15min``, ``24h``, ``7d``, ``2w``: seconds."""

    name = "duration"
    units = _SECONDS
    example = "90s, 15min, 24h or 7d"


class Size(Finite):
    """``500MB``, ``2GB``, ``1.5GiB`` or a number of bytes."""

    name = "size"
    units = _BYTES
    example = "500MB or 1.5GiB"


class StrictCommand(click.Command):
    """A command that reports every wrong value at once, by the names of its options, whose help has sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found: dict[str, list[tuple[str, str]]] = {section: [] for section in _SECTIONS}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                found[_SECTION_OF.get(param.name or "", "Options")].append(record)
        for section, records in found.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as first:
            mistakes = self._mistakes(ctx, given)
            if len(mistakes) < 2:
                raise
            raise refusal(mistakes) from first

    def _mistakes(self, ctx: click.Context, args: list[str]) -> list[dict[str, str]]:
        values, _, _ = self.make_parser(ctx).parse_args(args)
        mistakes: list[dict[str, str]] = []
        for param in self.get_params(ctx):
            try:
                param.handle_parse_result(ctx, values, [])
            except click.BadParameter as error:
                name = max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
                mistakes.append({"pointer": name, "detail": error.message or f"missing {param.param_type_name}"})
            except click.UsageError:
                pass  # standard input was read the first time
        return mistakes


def stdin_text() -> str:
    """Returns the text of a pipe or file on stdin; "" for a terminal. Raises ``click.UsageError``."""
    if sys.stdin.isatty():
        return ""
    try:
        return read_text(None)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"the task on standard input cannot be read: {error}") from None


def read_text(path: str | None) -> str:
    """Reads UTF-8, with or without a byte order mark, from a file, or for None from standard input.

    Raises OSError, and ValueError with the actual encoding.
    """
    from ...shared.request import MAX_TEXT_BYTES

    with nullcontext(stdin_once()) if path is None else Path(path).open("rb") as file:
        data = file.read(MAX_TEXT_BYTES + 4)  # a device has no end
    if len(data) > MAX_TEXT_BYTES + 3:
        raise ValueError(f"it is larger than a request may be ({MAX_TEXT_BYTES} bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None


def stdin_once() -> BinaryIO:
    """Returns standard input. Raises ``click.UsageError`` where another parameter has read it."""
    read = click.get_current_context().meta
    if read.setdefault("deputize.stdin_read", False):
        raise click.UsageError("standard input can be read only once; give the other text as @FILE")
    read["deputize.stdin_read"] = True
    return sys.stdin.buffer


wait_option = click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds; the work goes on.")

stream_option = click.option(
    "--stream", is_flag=True, help="Show the model's words and the output of commands as they come."
)

denied_option = click.option(
    "--fail-on-denied",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({FAIL_ON_DENIED: value}),
    help="Exit with 4 if a call was denied, even if it completed.",
)
