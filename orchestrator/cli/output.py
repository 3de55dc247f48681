"""All output of the command line, so that text from outside is always escaped on a terminal; and forms for people."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from ...shared.errors import Misconfigured
from ...shared.marks import MARKS
from ...shared.remade_files import is_remade
from ...shared.text import count, visible, visible_block, visible_json
from ...shared.wording import cut, dollars, seconds, short_id

if TYPE_CHECKING:
    from ...shared.delegation import FileChange, ToolAgentResult
    from ...shared.facts import Check, Verification
    from ...shared.kept_step import ToolAgentStep
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings
    from ...shared.wire import Wire

W = TypeVar("W", bound="Wire")
READER_GONE = 141
"""The exit code where the reader of the output has left, as of a program that SIGPIPE ended."""

SIGN = re.compile(r"(?<!\S)[✓✗](?!\S)|(?<!\w )(?<!\S)\?(?= \w)")
"""A mark. A question mark after a word is none."""
SIGNS = {"✓": "green", "?": "yellow", "✗": "red"}
VERDICT = re.compile(r"( *verdict +)(\w+)\b")
COMMAND = re.compile(r"(?<!\S)\$ .+?(?=  |$)")
VERDICTS = {"verified": "green", "passed": "green", "refuted": "red"}
"""Colours; the other verdicts are yellow."""
COUNTS = re.compile(r"(?<=\()(\+\d+) (-\d+)(?=[,)])")
"""Lines that a change adds and removes, in brackets."""
DIFF = re.compile(r"( {2}\| )(?=[-+]|@@ )")
"""Before a line of a diff."""

SHOWN_LEFT_OUT = 5
SHOWN_DOUBTS = 3
GROUNDS = ("base", "candidate", "canary")
MAX_CHECK = 60
"""Characters of a check in a line."""
WHOLE = re.compile(r"`[^`]+`|(?:(?<=: )|^ +)(?:[A-Z_]+=\S+ )?\S*deputize .*$")
"""Commands of ours in a line."""


def line(text: str, *, err: bool = False) -> None:
    """Writes one line; line ends inside it are escaped. On a terminal it is coloured, and broken at blanks."""
    shown = visible(text)
    if (stream := sys.stderr if err else sys.stdout).isatty():
        shown = "\n".join(painted(part, stream) for part in _fitted(shown, stream, hang=4))
    _write(shown + "\n", err)


def is_read_by_a_person() -> bool:
    """Returns whether results and what stands beside them are on a terminal: there they must fit in one glance."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def can_ask() -> bool:
    """Returns whether a person at a terminal sees a question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _fitted(line: str, stream: TextIO, hang: int) -> list[str]:
    columns = os.get_terminal_size(stream.fileno()).columns or len(line)
    return wrapped(line, columns, hang=min(hang, columns // 2))


def lines(texts: Iterable[str], *, err: bool = False) -> None:
    for text in texts:
        line(text, err=err)


def note(text: str) -> None:
    """Writes one line to stderr, which is for everything but the result."""
    line(text, err=True)


def painted(text: str, stream: TextIO) -> str:
    """Returns a line with the colours of its signs, verdict, commands and diffs, where this terminal has colours."""
    diff, sign, verdict = DIFF.match(text), SIGN.search(text), VERDICT.match(text)
    counts = COUNTS.search(text)
    if not (diff or sign or verdict or counts or COMMAND.search(text)) or not _has_colours(stream):
        return text
    if verdict:
        return verdict[1] + click.style(verdict[2], fg=VERDICTS.get(verdict[2], "yellow")) + text[verdict.end() :]
    if diff:
        return diff[0] + _coloured(text[diff.end() :])
    text = COMMAND.sub(lambda found: click.style(found[0], fg="cyan"), text)
    text = COUNTS.sub(lambda found: " ".join(map(_coloured, found.groups())), text)
    return SIGN.sub(lambda found: click.style(found[0], fg=SIGNS[found[0]]), text, count=1)


def _has_colours(stream: TextIO) -> bool:
    from rich.console import Console

    console = Console(file=stream)
    return console.color_system is not None and not console.no_color


def block(text: str, *, err: bool = False) -> None:
    """Writes text of several lines as they are."""
    _write(visible_block(text) + "\n", err)


def prose(text: str, *, err: bool = False) -> None:
    """Writes text of several lines that is for people, such as a summary; a terminal shows its Markdown."""
    shown = visible_block(text)
    if (stream := sys.stderr if err else sys.stdout).isatty():
        from .markdown import rendered

        shown = rendered(shown, os.get_terminal_size(stream.fileno()).columns, colours=_has_colours(stream))
    _write(shown + "\n", err)


def json_line(text: str) -> None:
    """Writes one JSON value per line, escaped in case the output is a terminal."""
    _write(visible_json(text) + "\n", err=False)


def data(result: ToolAgentResult) -> None:
    """Writes the output that was asked for by a schema; a note on stderr where there is none."""
    if result.output_status == "valid":
        block(json.dumps(result.output, ensure_ascii=False, indent=2))
    elif result.output_status:
        note(f"  output: {result.output_status}")


def json_lines(values: Iterable[Wire]) -> None:
    for value in values:
        json_line(value.to_json())


def table(
    found: Sequence[W], head: Sequence[str], row: Callable[[W], Sequence[str]], nothing: str, *, as_json: bool
) -> None:
    """Writes a table of what was found, or each as a JSON line; where that is ``nothing``, a note."""
    if as_json:
        json_lines(found)
    elif found:
        lines(columns([head, *map(row, found)]))
    else:
        note(nothing)


def content(text: str) -> None:
    """Writes a patch or an artifact: byte for byte to a file or pipe, escaped on a terminal."""
    _write(visible_block(text) if sys.stdout.isatty() else text.encode(), err=False)


def patch(text: str) -> None:
    """Writes a patch like other content, on a terminal with git's colours."""
    if not sys.stdout.isatty():
        content(text)
        return
    coloured = _has_colours(sys.stdout)
    for each in visible_block(text).splitlines():
        _write(_coloured(each) + "\n" if coloured else each + "\n", err=False)


def _coloured(line: str) -> str:
    if line.startswith(("diff --git ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")):
        return click.style(line, bold=True)
    colours = {"@@": "cyan", "+": "green", "-": "red", "#": "yellow"}
    colour = next((colour for start, colour in colours.items() if line.startswith(start)), None)
    return click.style(line, fg=colour) if colour else line


def confirm(question: str) -> bool:
    """Asks on the terminal; no is the default. Raises click.Abort at Ctrl-C."""
    # An event loop's own handler only notes the first one, and reading goes on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(visible(question), err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _write(text: str | bytes, err: bool) -> None:
    # Not by click.echo, which strips colour codes: a patch that contains some must be written as it is.
    stream = sys.stderr if err else sys.stdout
    try:
        if isinstance(text, bytes):
            stream.flush()
            stream.buffer.write(text)
        else:
            stream.write(text)
        stream.flush()
    except OSError as error:
        # A failed write of progress must not lose the result; a failed write of the result is an error.
        _discard_rest(stream)
        if not err and isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(READER_GONE) from None
        if not err:
            raise Misconfigured(f"the output cannot be written: {error.strerror}") from None


def _discard_rest(stream: TextIO) -> None:
    """Lets the interpreter's own flush at exit succeed: a failure there would replace the exit code by 120."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def ago(moment: datetime, now: datetime) -> str:
    value = max(0, round((now - moment).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= size:
            return f"{value // size} {unit}"
    return f"{value} s"


def some(names: Sequence[str], most: int = 3) -> str:
    """Returns the first names; "…" stands for more."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Returns the rows of a table as lines; ``left`` are the columns that are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def size(octets: int) -> str:
    """`60 MB`, in powers of 1000; `32 GiB` where that is exact, as limits are set."""
    if octets and octets % 2**30 == 0:
        return f"{octets >> 30} GiB"
    for least, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if octets >= least:
            return f"{octets / least:.{1 if octets < 10 * least else 0}f} {unit}"
    return count(octets, "byte")


def command(settings: Settings, *arguments: str) -> str:
    """Returns a command line that works in the shell from which this one was called."""
    program = "deputize"
    called = Path(sys.argv[0])
    if called.name == program and (found := shutil.which(program)) != str(called.absolute()):
        program = str(called.absolute()) if found is None or not called.samefile(found) else program
    home = "" if "home" not in settings.model_fields_set else f"DEPUTIZE_HOME={shlex.quote(str(settings.home))} "
    return f"{home}{shlex.quote(program)} {shlex.join(arguments)}"


def wrapped(line: str, width: int, *, hang: int = 0, hard: bool = False) -> list[str]:
    """Returns the line in parts that fit, broken at blanks; ``hang``: blanks before all parts but the first.

    Commands of ours stay whole, to be copied, and so does a word that is too long, unless ``hard``.
    """
    parts: list[str] = []
    while len(line) > width:
        start = len(line) - len(line.lstrip()) + 1
        at = line.rfind(" ", start, width + 1)
        if at < start:
            at = width if hard else line.find(" ", width)
        for whole in () if hard else WHOLE.finditer(line):
            if whole.start() <= at < whole.end():
                at = whole.start() - 1 if whole.start() > start else -1
        if at < 0:
            break
        parts.append(line[:at])
        line = " " * hang + line[at:].removeprefix(" ")
    return [*parts, line]


def end_line(result: ToolAgentResult, title: str, request: DelegationRequest | None) -> str:
    """`✓ Count the files  dlg_01…  succeeded (completed, 1 call denied)  2.1 s  $0.0031  2 files changed`.

    On a terminal the id is short.
    """
    took, price = seconds(result.execution_time_ms / 1000), dollars(result.usage.cost_usd)
    id = short_id(result.delegation_id) if sys.stdout.isatty() else result.delegation_id
    parts = (id, result.ending, took, price, changes(result, request))
    return "  ".join(part for part in (f"{MARKS[result.mark]} {title}", *parts) if part)


def other_errors(result: ToolAgentResult) -> list[str]:
    """Returns the errors that the summary does not contain already: a failed run's reason is in both."""
    return [error for error in result.trouble if error.strip() not in result.summary]


def changes(result: ToolAgentResult, request: DelegationRequest | None) -> str:
    """Returns `2 files changed`; "" where there is no workspace that could have changed, or that is not known."""
    if not result.file_changes:
        return "no files changed" if request and request.workspace.kind != "empty" and not result.truncated else ""
    return f"{count(len(result.file_changes), 'file')} changed"


def reasons(result: ToolAgentResult) -> list[str]:
    """Returns why the mark and the verdict of a result are what they are."""
    found = result.verification
    why = [found.why] if found.why else [f"{_checked(check)}: {check.why}" for check in found.checks[:1]]
    return [*why, *doubts(result), *(f"error: {error}" for error in other_errors(result)[-1:])]


def doubts(result: ToolAgentResult) -> list[str]:
    """Returns the claims that the run's steps and changes refute or do not prove."""
    found = [f"refuted by the run: {claim}" for claim in result.refuted_claims]
    found += [f"unproved by the run: {claim}" for claim in unproved(result)]
    more = len(found) - SHOWN_DOUBTS
    return found if more <= 0 else [*found[:SHOWN_DOUBTS], f"and {more} more"]


def unproved(result: ToolAgentResult) -> list[str]:
    """Returns the claims that no step or change shows, each with the reason."""
    claims = [each for each in result.verification.claims if each.verdict == "unproved"]
    return [f"{each.claim} ({each.why})" if each.why else each.claim for each in claims]


def left_out(result: ToolAgentResult) -> list[str]:
    """Returns what the copy or the patch lacks, without the changed files whose own lines have that."""
    from ...shared.patch_format import omission

    own = tuple(omission(changed.path) for changed in result.file_changes if not changed.in_patch)
    others = [sentence for sentence in result.left_out if not sentence.startswith(own)]
    more = len(others) - SHOWN_LEFT_OUT
    return others if more <= 0 else [*others[:SHOWN_LEFT_OUT], f"and {more} more"]


def change(changed: FileChange) -> str:
    """`modified pricing.py (+1 -1)`; `created data.bin (60 MB, not in the patch)` where there are no lines to count."""
    where = f"{changed.from_} → {changed.path}" if changed.from_ else changed.path
    if changed.path.rpartition("/")[2] == ".git":
        return f"{changed.change} {where} (its commits stay in its copy)"
    has_lines = changed.added_lines or changed.removed_lines or changed.size is None or changed.change == "renamed"
    amount = f"+{changed.added_lines} -{changed.removed_lines}" if has_lines else size(changed.size or 0)
    return f"{changed.change} {where} ({amount}{'' if changed.in_patch else ', not in the patch'})"


def step_changes(step: ToolAgentStep) -> Iterator[str]:
    """Yields a line for each file that a step changed: `modified pricing.py (+1 -1)`, `created data.bin`."""
    for each in step.changes:
        where = f"{each.from_} → {each.path}" if each.from_ else each.path
        yield f"{each.change} {where}" + (f" (+{each.added} -{each.removed})" if each.added is not None else "")
    if step.more_changes:
        yield f"{count(step.more_changes, 'more file')} changed"


def verdict(found: Verification) -> list[str]:
    """Returns the verdict on a result with a line per check; nothing where there were no checks."""
    if found.verdict == "unverified":
        return []
    why = f": {found.why}" if found.why else ""
    lines = [f"verdict    {found.verdict}{why}"]
    for check in found.checks:
        states = ", ".join(f"{on} {state}" for on in GROUNDS if (state := getattr(check, on)))
        lines.append(f"check      {check.outcome.replace('_', ' ')}: {_checked(check)} ({states}): {check.why}")
    if found.released:
        lines.append(f"released   to the checks, as the tests are as they were: {some(found.released)}")
    return lines + ([f"restored   for the checks: {some(found.restored)}"] if found.restored else [])


def _checked(check: Check) -> str:
    """Returns what a check is about: its command or its paths."""
    what = check.item.get("run") or check.item.get("path") or ", ".join(check.item.get("paths", ()))
    return cut(what or str(check.item.get("kind")), MAX_CHECK)


def ignored(number: int, paths: Sequence[str], known: int | None = None) -> str:
    """`3 new files that .gitignore names: report.csv, a.log, …`; "" where they are caches, which no one wants.

    ``number``: how many there are; ``known``: how many of them have a path, where ``paths`` are only some of these.
    """
    wanted = [path for path in paths if not is_remade(path)]
    if not wanted:
        return ""
    number = len(wanted) + number - (len(paths) if known is None else known)
    names = ", ".join(wanted[:3]) + (", …" if number > 3 else "")
    return f"{count(number, 'new file')} that .gitignore names: {names}"
