"""`deputize batch`: many tasks from a file, and the file of their results, from which `--resume` continues."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from ...shared.errors import Invalid, Misconfigured, Refused
from ...shared.text import count
from ...shared.wording import cut
from . import output
from .batch_input import FORMATS, BatchInput, RequestLine
from .connect import connect, lacks_endpoint, load_settings, note_before_work
from .errors import Exit, exit_code_of_results
from .request_options import agree_to_copies, given_options, note_if_empty, request_options, workspace_here
from .values import TEXT, StrictCommand, denied_option, stdin_once, stream_option, wait_option
from .watcher import Watcher, display, note_if_queued

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, ToolAgentResult
    from ...shared.settings import Settings
    from ..client import Client


BATCH = "batch"
"""The label with the id of a batch."""


_DIGEST = "requestDigest"
"""The field of a row with the digest of its request."""
_BEGINNING = b'{"line": '
"""What each row begins with."""


Command = TypeVar("Command", bound=Callable[..., Any])


def new_batch() -> str:
    return f"b{secrets.token_hex(6)}"


def labelled(lines: Sequence[RequestLine], batch: str) -> list[RequestLine]:
    """Returns the requests with the batch's id as a label, unless they have one of that name, or too many.

    One with a key of its own stays as it is: another batch may send it again, and it has to be the same request.
    """
    from ...shared.request import MAX_ENTRIES

    if batch.startswith("batch-"):  # that of an earlier version: its requests were sent without
        return [*lines]
    return [
        line
        if BATCH in (labels := line.request.labels)
        or len(labels) >= MAX_ENTRIES
        or line.request.idempotency_key not in (None, _key(batch, line))
        else replace(line, request=line.request.model_copy(update={"labels": {**labels, BATCH: batch}}))
        for line in lines
    ]


def _key(batch: str, line: RequestLine) -> str:
    return f"{batch}-{line.number}"


class Places:
    """What the requests of a batch are by their numbers: lines of a file."""

    def fields(self, number: int) -> Mapping[str, Any]:
        """Returns the fields of a row, besides those of its result."""
        return {"line": number}

    def name(self, number: int) -> str:
        """Returns what people read of it."""
        return f"line {number}"


class Results:
    """The results so far, by the numbers of their requests."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.done: dict[int, ToolAgentResult] = {}
        self.batch = new_batch()

    def keyed(self, lines: list[RequestLine]) -> list[RequestLine]:
        """Returns the requests as they are to be submitted."""
        return lines

    def add(self, number: int, result: ToolAgentResult) -> None:
        self.done[number] = result

    def withdraw(self) -> None:
        """Forgets the requests, because they were refused."""

    def complete(self) -> None:
        """Forgets the requests, because all are done."""


class ResultsFile(Results):
    """A file of results: locked by one batch at a time, append-only. The file beside it has the batch's keys.

    Each row has the digest of its request: the file beside it is deleted when all are done.
    """

    def __init__(self, places: Places, path: Path, file: BinaryIO, rows: Mapping[int, bytes]) -> None:
        """``rows``: those of the file, by their numbers. Raises Invalid where one is not a result."""
        super().__init__(places)
        self.path = path
        self.file = file
        self._state = path.with_name(path.name + ".batch")
        self._fresh = False
        """Nothing was submitted before this command."""
        self._digests: dict[int, str] = {}
        """Of the requests: of those that are done, then of all."""
        if wrong := [str(number) for number, text in rows.items() if not self._read_row(text)]:
            raise Invalid(
                f"{path} is not a file of results: see row {output.some(wrong)}; remove what is none, "
                "or name another file for the results"
            )

    def keyed(self, lines: list[RequestLine]) -> list[RequestLine]:
        """Returns the requests with idempotency keys of this batch.

        A later `--resume` sends the same keys, so that accepted requests are found again, not repeated. The requests
        must be unchanged: otherwise a result would be attributed to another task.
        """
        self._fresh = not self._state.exists() and not self.done
        name, known = self._read_state()
        self.batch, known = name, {**self._digests, **known}
        self._digests = {line.number: _digest(line) for line in lines}
        for number in sorted({*known, *self.done}):
            if number not in self._digests:
                change = "is not there any more, as it was"
            elif known.get(number, self._digests[number]) != self._digests[number]:
                change = "is not what it was"
            else:
                continue
            raise Invalid(
                f"{self.places.name(number)} {change} when the batch into {self.path} began; "
                "put it back, or name another file for the results"
            )
        if unknown := self.done.keys() - known.keys():
            output.note(f"{count(len(unknown), 'result')} of an earlier version cannot be compared with the requests")
        self._write_state(name)
        return [
            line
            if line.request.idempotency_key
            else replace(line, request=line.request.model_copy(update={"idempotency_key": _key(name, line)}))
            for line in lines
        ]

    def add(self, number: int, result: ToolAgentResult) -> None:
        fields = {**self.places.fields(number), _DIGEST: self._digests[number]}
        row = json.dumps({**fields, **result.to_dict()}, ensure_ascii=False)
        try:
            self.file.write(row.encode("utf-8", "surrogatepass") + b"\n")
            self.file.flush()
        except OSError as error:
            raise Misconfigured(
                f"{self.path} cannot be written: {error.strerror}; the others go on, and `--resume` collects them"
            ) from None
        super().add(number, result)

    def withdraw(self) -> None:
        """Deletes the keys: the corrected file is a new batch."""
        if self._fresh:
            self._state.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def complete(self) -> None:
        self._state.unlink(missing_ok=True)

    def _read_row(self, text: bytes) -> bool:
        """Takes a result over. Returns whether the row is one."""
        from ...shared.delegation import ToolAgentResult

        try:
            row = json.loads(text)
            result = ToolAgentResult.model_validate(row)
            number, digest = row["line"], row.get(_DIGEST, "")
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        if not (type(number) is int and isinstance(digest, str)):
            return False
        self.done[number] = result
        if digest:
            self._digests[number] = digest
        return True

    def _read_state(self) -> tuple[str, dict[int, str]]:
        try:
            name, *rows = self._state.read_text("utf-8").split("\n")
            return name, {int(number): digest for number, digest in (row.split() for row in rows if row)}
        except FileNotFoundError:
            return self.batch, {}
        except ValueError:
            raise Misconfigured(f"{self._state} is damaged, and only it names the delegations") from None

    def _write_state(self, name: str) -> None:
        digests = (f"{number} {digest}" for number, digest in self._digests.items())
        text = "".join(f"{row}\n" for row in (name, *digests))
        new = self._state.with_name(self._state.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state)


def _digest(line: RequestLine) -> str:
    return hashlib.sha256(line.request.to_json().encode()).hexdigest()[:16]


@contextmanager
def open_results(path: Path, requests: BinaryIO, places: Places, *, resume: bool) -> Generator[ResultsFile]:
    """Opens and locks the file of results, before anything is submitted. Raises Invalid, Misconfigured."""
    try:
        file = path.open("a+b")
    except OSError as error:
        raise Misconfigured(f"{path} cannot be written: {error.strerror or error}") from None
    with file:
        if _is_same(file, requests):
            raise Invalid(f"{path} holds the requests; name another file for the results")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Invalid(f"another batch writes to {path} now") from None
        rows = _whole_rows(file)
        if rows and not resume:
            raise Invalid(f"{path} has results already; go on with --resume, or name another file")
        results = ResultsFile(places, path, file, rows)
        if rows:
            _end_last_row(file)
        yield results


def _is_same(file: BinaryIO, requests: BinaryIO) -> bool:
    try:
        return os.path.sameopenfile(file.fileno(), requests.fileno())
    except (OSError, ValueError):
        return False


def _whole_rows(file: BinaryIO) -> dict[int, bytes]:
    """Returns the complete rows by their numbers, and truncates the beginning of one at the end.

    The next row would be appended to it. Other text at the end is a row: it may be a file of something else.
    """
    if not file.seekable():
        return {}
    file.seek(0)
    *rows, torn = file.read().split(b"\n")
    if torn and _is_torn(torn):
        file.truncate(file.tell() - len(torn))
    elif torn:
        rows.append(torn)
    return {number: row for number, row in enumerate(rows, 1) if row.strip()}


def _end_last_row(file: BinaryIO) -> None:
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.write(b"\n")


def _is_torn(text: bytes) -> bool:
    if not (text.startswith(_BEGINNING) or _BEGINNING.startswith(text)):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


CHUNK_SIZE = 1000
"""Requests per call to the service."""


def line_options(file: str) -> Callable[[Command], Command]:
    """Adds the options of a command that reads requests from a file, whose argument has that name."""
    about_format = f"The format of {file}; the default is that of its extension, or jsonl."
    about_task = "The task of every line; {{column}} stands for its cell."

    def add(command: Command) -> Command:
        command = click.option("--task", type=TEXT, metavar="TEXT|@FILE", help=about_task)(request_options(command))
        return click.option("--format", type=click.Choice(FORMATS), help=about_format)(command)

    return add


@click.command(cls=StrictCommand)
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@line_options("FILE")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write results here, one a line.")
@click.option("--resume", is_flag=True, help="Go on where an earlier batch into the same --out broke off.")
@wait_option
@denied_option
@stream_option
@click.option("--json", "as_json", is_flag=True, help="Each result as one JSON object a line.")
def batch(
    file: BinaryIO,
    format: str | None,
    out: Path | None,
    resume: bool,
    wait: float | None,
    stream: bool,
    as_json: bool,
    **given: Any,
) -> Exit:
    """Hand over many tasks: a JSON request, a line of text or a row of a CSV or TSV table each ("-" reads stdin).

    Options of a request hold for every line that sets no other value. In all of them {{column}} stands for a cell of
    the row, {{line}} for the line of a text: batch files.csv --task "Summarise {{path}}". Without --task the columns
    task, context and expectedOutcome count.

    Results come as the delegations finish; with --out each also goes to a file, with the number of its line.
    """
    if resume and out is None:
        raise click.UsageError("--resume needs --out: there it finds the lines that are done")
    settings, source, lines = read_lines(file, format, given)
    # What reads stdin is over: in an event loop the first Ctrl-C would not interrupt it.
    places = Places()
    with nullcontext(Results(places)) if out is None else open_results(out, file, places, resume=resume) as results:
        return asyncio.run(carry_out(settings, source, lines, results, wait=wait, stream=stream, as_json=as_json))


def read_lines(
    file: BinaryIO, format: str | None, given: dict[str, Any]
) -> tuple[Settings, BatchInput, list[RequestLine]]:
    """Returns the requests of a file, with what the options set."""
    if file is sys.stdin.buffer:
        stdin_once()
    settings = load_settings()
    given["workspace"] = workspace_here(settings, given)
    name = click.format_filename(file.name)
    source = BatchInput.of(name, format, given_options(given, task="--task"))
    lines = source.read(file)
    if not lines:
        raise click.UsageError(f"{name} holds no request")
    requests = [line.request for line in lines]
    note_if_empty(requests, given)
    agree_to_copies(requests, settings)
    return settings, source, lines


async def carry_out(
    settings: Settings, source: BatchInput, lines: list[RequestLine], results: Results, **how: Any
) -> Exit:
    """Submits the requests that are left, and waits for their results."""
    lines = labelled(results.keyed(lines), results.batch)
    left = [line for line in lines if line.number not in results.done]
    if results.done:
        output.note(f"{len(results.done)} done before, {count(len(left), 'request')} left")
    ended_by = await _run_lines(settings, source, left, results, **how) if left else None
    if len(results.done) >= len(lines):
        results.complete()
    return exit_code_of_results(results.done.values()) if ended_by is None else ended_by


async def _run_lines(
    settings: Settings,
    source: BatchInput,
    lines: list[RequestLine],
    results: Results,
    *,
    wait: float | None,
    stream: bool,
    as_json: bool,
) -> Exit | None:
    requests = [line.request for line in lines]
    async with connect(settings, workers=1, lacks_model=lacks_endpoint(requests, settings)) as service:
        await note_before_work(service, requests, output.note)
        try:
            delegations = await submit_in_chunks(service.client, source, lines)
        except Refused:
            results.withdraw()
            raise
        numbers: dict[str, list[int]] = {}
        for delegation, line in zip(delegations, lines, strict=True):
            numbers.setdefault(delegation.id, []).append(line.number)  # lines with the same key are one delegation
        by_id = {delegation.id: delegation for delegation in delegations}
        on_screen = sys.stdout.isatty() and not as_json  # then the results themselves show each outcome
        with display(show_outcomes=not on_screen, stream=stream) as shown:

            def on_result(result: ToolAgentResult) -> None:
                for number in numbers[result.delegation_id]:
                    results.add(number, result)
                    with shown.aside():
                        _print(by_id[result.delegation_id], result, results, number, as_json=as_json)

            group = f"--label {BATCH}:{results.batch}"
            accepted = f"{count(len(lines), 'delegation')} accepted as batch {results.batch}"
            shown.note(f"{accepted}; `deputize cancel {group}` stops it")
            if not service.own:
                await note_if_queued(service.client, shown.note)
            watcher = Watcher(service, shown, wait, on_result=on_result, group=group)
            await watcher.all([*by_id.values()])
    return watcher.cut


async def submit_in_chunks(client: Client, source: BatchInput, lines: Sequence[RequestLine]) -> list[Delegation]:
    """Submits the requests in chunks. Returns their delegations in order; none is accepted if one is refused."""
    taken: list[Delegation] = []
    for start in range(0, len(lines), CHUNK_SIZE):
        chunk = lines[start : start + CHUNK_SIZE]
        try:
            taken += await client.create_many([line.request for line in chunk])
        except Refused as refusal:
            await client.cancel_all(delegation.id for delegation in taken)
            raise source.placed(refusal, chunk) from None
    return taken


def _print(delegation: Delegation, result: ToolAgentResult, results: Results, number: int, *, as_json: bool) -> None:
    if as_json:
        output.json_line(json.dumps({**results.places.fields(number), **result.to_dict()}, ensure_ascii=False))
    else:
        end = output.end_line(result, results.places.name(number), delegation.request)
        output.line(f"{end}  {cut(result.summary, 100)}")
