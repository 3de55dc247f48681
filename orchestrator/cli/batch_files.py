"""The file of a batch's results, from which `--resume` continues."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...shared.errors import Invalid, Misconfigured
from .batch_input import RequestLine

if TYPE_CHECKING:
    from ...shared.delegation import ToolAgentResult


@dataclass(slots=True)
class Results:
    """The file of results: locked by one batch at a time, append-only."""

    path: Path
    file: BinaryIO
    done: dict[int, ToolAgentResult]
    _fresh: bool = False
    """Nothing was submitted before this command."""

    @property
    def _state(self) -> Path:
        return self.path.with_name(self.path.name + ".batch")

    def keyed(self, lines: list[RequestLine]) -> list[RequestLine]:
        """Returns the requests with idempotency keys of this batch.

        A later `--resume` sends the same keys, so that accepted requests are found again, not repeated. The requests
        must be unchanged: otherwise a result would be attributed to another task.
        """
        self._fresh = not self._state.exists() and not self.done
        name, known = self._read_state()
        for line in lines:
            if known.get(line.number, digest := _digest(line)) != digest:
                raise Invalid(
                    f"line {line.number} is not what it was when the batch into {self.path} began; "
                    "put it back, or name another file for the results"
                )
        self._write_state(name, lines)
        return [
            line
            if line.request.idempotency_key
            else replace(line, request=line.request.model_copy(update={"idempotency_key": f"{name}-{line.number}"}))
            for line in lines
        ]

    def add(self, number: int, result: ToolAgentResult) -> None:
        row = json.dumps({"line": number, **result.to_dict()}, ensure_ascii=False)
        try:
            self.file.write(row.encode("utf-8", "surrogatepass") + b"\n")
            self.file.flush()
        except OSError as error:
            raise Misconfigured(
                f"{self.path} cannot be written: {error.strerror}; what runs goes on, and `--resume` collects it"
            ) from None
        self.done[number] = result

    def withdraw(self) -> None:
        """Deletes the keys after a refusal: the corrected file is a new batch."""
        if self._fresh:
            self._state.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def complete(self) -> None:
        """Deletes the keys when all is done."""
        self._state.unlink(missing_ok=True)

    def _read_state(self) -> tuple[str, dict[int, str]]:
        try:
            name, *rows = self._state.read_text("utf-8").split("\n")
            return name, {int(number): digest for number, digest in (row.split() for row in rows if row)}
        except FileNotFoundError:
            return f"batch-{secrets.token_hex(8)}", {}
        except ValueError:
            raise Misconfigured(f"{self._state} is damaged; without it, it is unknown what was handed over") from None

    def _write_state(self, name: str, lines: Iterable[RequestLine]) -> None:
        text = "".join(f"{row}\n" for row in (name, *(f"{line.number} {_digest(line)}" for line in lines)))
        new = self._state.with_name(self._state.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state)


def _digest(line: RequestLine) -> str:
    return hashlib.sha256(line.request.to_json().encode()).hexdigest()[:16]


@contextmanager
def open_results(path: Path, requests: BinaryIO, *, resume: bool) -> Generator[Results]:
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
        yield Results(path, file, _done(rows))


def _is_same(file: BinaryIO, requests: BinaryIO) -> bool:
    try:
        return os.path.sameopenfile(file.fileno(), requests.fileno())
    except (OSError, ValueError):
        return False


def _whole_rows(file: BinaryIO) -> list[bytes]:
    """Returns the complete rows, and truncates a partial last row, to which the next one would be appended."""
    if not file.seekable():
        return []
    file.seek(0)
    *rows, torn = file.read().split(b"\n")
    if torn and not _row(torn):
        file.truncate(file.tell() - len(torn))
    elif torn:
        file.write(b"\n")
        rows.append(torn)
    return [row for row in rows if row.strip()]


def _row(text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _done(rows: list[bytes]) -> dict[int, ToolAgentResult]:
    from ...shared.delegation import ToolAgentResult

    done: dict[int, ToolAgentResult] = {}
    for text in rows:
        try:
            row = _row(text)
            done[int(row["line"])] = ToolAgentResult.model_validate(row)
        except (ValueError, KeyError, TypeError):
            continue  # not one of our rows
    return done
