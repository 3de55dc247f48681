"""The requests of a batch: a JSON object, a text or a row of a table each, with templates for texts and tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

from ...shared.errors import Invalid, Refused, placed
from ...shared.text import count, did_you_mean, mapped
from .errors import refusal
from .request_options import RequestOptions, merged, read_json, read_request

if TYPE_CHECKING:
    from ...shared.request import DelegationRequest

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
FORMATS = ("jsonl", "text", "csv", "tsv")
EXTENSIONS = {".txt": "text", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
LINE = "line"
"""What a line of a text is called in a template."""
REQUEST_COLUMNS = ("task", "context", "expectedOutcome")
"""Columns of a table without a template that are fields of the request."""

Mistakes = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class RequestLine:
    number: int
    request: DelegationRequest
    fields: dict[str, Any]
    """What the request was made of: options, and what the line itself sets."""
    repeats: int = 0
    """The number of the line that it is another run of; 0: of its own."""


class _LineMistake(Exception):
    """A line is not a request."""


Fields = dict[str, Any]
Row = list[str] | _LineMistake


@dataclass(frozen=True, slots=True)
class BatchInput:
    """A file of requests, and the options that hold where a line sets no other value."""

    name: str
    format: str
    options: RequestOptions

    @classmethod
    def of(cls, name: str, format: str | None, options: RequestOptions) -> BatchInput:
        """Without a format it is the one of the file's extension, else JSON lines."""
        return cls(name, format or EXTENSIONS.get(PurePath(name).suffix.lower(), "jsonl"), options)

    def read(self, file: BinaryIO) -> list[RequestLine]:
        """Returns every request. Raises Invalid with every mistake of every line."""
        data = file.read()
        if data.startswith(UTF_16_MARKS):
            raise Invalid(f"{self.name} is UTF-16; save it as UTF-8")
        data = data.removeprefix(b"\xef\xbb\xbf")
        lines: list[RequestLine] = []
        mistakes: Mistakes = []
        rows, parse = self._table(data) if self.format in ("csv", "tsv") else self._lines(data)
        for number, row in rows:
            fields: Fields = {}
            try:
                fields = parse(row)
                lines.append(RequestLine(number, read_request(fields), fields))
            except _LineMistake as error:
                mistakes.append({"pointer": self._place(number), "detail": str(error)})
            except Refused as error:
                mistakes += self._placed(error.errors, number, fields)
        if mistakes:
            raise refusal(_once(mistakes))
        return lines

    def placed(self, error: Refused, lines: Sequence[RequestLine]) -> Refused:
        """Returns the service's refusal of a batch with line numbers of the file instead of indexes."""
        mistakes: Mistakes = []
        for each in error.errors:
            parts = each["pointer"].split("/", 3)  # "", "requests", the index, the rest
            if len(parts) < 3 or parts[1] != "requests" or not parts[2].isdigit() or int(parts[2]) >= len(lines):
                return error
            line = lines[int(parts[2])]
            rest = {"pointer": f"/{parts[3]}" if len(parts) > 3 else "", "detail": each["detail"]}
            mistakes += self._placed([rest], line.repeats or line.number, line.fields)
        return refusal(_once(mistakes)) if mistakes else error

    def _placed(self, errors: Mistakes, number: int, fields: Fields) -> Mistakes:
        """Names the option where the value is as an option gave it, else the line."""
        found: Mistakes = []
        for each in errors:
            field = each["pointer"].strip("/").partition("/")[0]
            is_own = fields.get(field) != self.options.fields.get(field)
            option = None if is_own else self.options.name(each["pointer"])
            if option is not None:
                found.append(each | {"pointer": option})
            else:
                found.append({"pointer": self._place(number), "detail": placed(each)})
        return found

    def _place(self, number: int) -> str:
        return f"{self.name}, line {number}"

    def _lines(self, data: bytes) -> tuple[Iterable[tuple[int, Any]], Callable[[Any], Fields]]:
        self._check_columns(() if self.format == "jsonl" else (LINE,))
        rows = ((number, raw) for number, raw in enumerate(data.split(b"\n"), 1) if raw.strip())
        return rows, self._json_line if self.format == "jsonl" else self._text_line

    def _json_line(self, raw: bytes) -> Fields:
        try:
            fields = read_json(_decoded(raw))
        except json.JSONDecodeError as error:
            hint = "" if raw.lstrip()[:1] in (b"{", b"[") else "; for plain lines use --format text"
            raise _LineMistake(f"not valid JSON: {error.msg} at column {error.colno}{hint}") from None
        except RecursionError:
            raise _LineMistake("not valid JSON: it is nested too deeply") from None
        except ValueError as error:
            raise _LineMistake(str(error)) from None
        if not isinstance(fields, dict):
            raise _LineMistake('not a JSON object, as {"task": "…"}')
        return merged(self.options.fields, fields)

    def _text_line(self, raw: bytes) -> Fields:
        text = _decoded(raw).strip()
        return self._filled({LINE: text}, task=text)

    def _table(self, data: bytes) -> tuple[Iterable[tuple[int, Any]], Callable[[Any], Fields]]:
        try:
            rows = _rows(_decoded(data), self.format)
            number, first = next(rows, (1, None))
            if isinstance(first, _LineMistake):
                raise first
        except _LineMistake as error:
            raise Invalid(f"{self.name}: {error}") from None
        columns = [] if first is None else self._header(first, number)
        return rows, partial(self._row, columns)

    def _header(self, row: Sequence[str], number: int) -> list[str]:
        columns = [cell.strip() for cell in row]
        if twice := sorted({each for each in columns if columns.count(each) > 1}):
            raise Invalid(f"{self._place(number)}: there are several columns {', '.join(map(repr, twice))}")
        self._check_columns(columns)
        if "task" not in self.options.fields and "task" not in columns:
            raise Invalid(
                f"{self.name} has no column 'task', and no --task is given, as in --task 'Check {{{{{columns[0]}}}}}'"
            )
        return columns

    def _row(self, columns: Sequence[str], row: Row) -> Fields:
        if isinstance(row, _LineMistake):
            raise row
        if len(row) != len(columns):
            raise _LineMistake(
                f"{count(len(row), 'cell')}, but {count(len(columns), 'column')}; a cell with a separator needs quotes"
            )
        cells = dict(zip(columns, row, strict=True))
        own = () if "task" in self.options.fields else REQUEST_COLUMNS
        return self._filled(cells, **{name: cells[name] for name in own if cells.get(name)})

    def _filled(self, cells: Mapping[str, str], **own: str) -> Fields:
        """Returns the request's fields, its own ones where no option sets them."""
        return {**own, **{name: _fill(value, cells) for name, value in self.options.fields.items()}}

    def _check_columns(self, columns: Sequence[str]) -> None:
        """Raises Invalid if a template names what is not there, or if no template uses the lines."""
        mistakes: Mistakes = []
        named = False
        for field, value in self.options.fields.items():
            for column in _placeholders(value):
                named = True
                if column not in columns:
                    option = self.options.name(f"/{field}") or field
                    mistakes.append({"pointer": option, "detail": _no_column(column, columns)})
        if mistakes:
            raise refusal(_once(mistakes))
        if columns and not named and "task" in self.options.fields:
            raise Invalid(
                f"{self.options.task} is the same for every line; put {{{{{columns[0]}}}}} where a line's text belongs"
            )


def _rows(text: str, format: str) -> Iterator[tuple[int, Row]]:
    """Yields the rows of a table with the number of the line where each begins; a mistake for a row that has one."""
    from ...shared.request import MAX_REQUEST_BYTES

    csv.field_size_limit(MAX_REQUEST_BYTES)
    first = text.partition("\n")[0]
    comma = ";" if ";" in first and "," not in first else ","  # as spreadsheets write it where "," is in numbers
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if format == "tsv" else comma, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, _LineMistake(f"not a row of the table: {error}")
            continue
        if any(cell.strip() for cell in row):
            yield number, row


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start)
        where = f"line {line + 1}" if line else f"byte {error.start} of the line"
        raise _LineMistake(f"not UTF-8 text at {where}") from None


def _placeholders(value: Any) -> list[str]:
    if isinstance(value, str):
        return PLACEHOLDER.findall(value)
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for each in values for name in _placeholders(each)]


def _fill(value: Any, cells: Mapping[str, str]) -> Any:
    return mapped(value, lambda text: PLACEHOLDER.sub(lambda found: cells[found[1]], text))


def _no_column(column: str, columns: Sequence[str]) -> str:
    if not columns:
        return f"{{{{{column}}}}} needs lines of text or a table; use --format text, csv or tsv"
    near = did_you_mean(column[:100], columns, 1) or f"there are {', '.join(columns)}"
    return f"{{{{{column}}}}}: no such column; {near}"


def _once(mistakes: Mistakes) -> Mistakes:
    """An option's mistake is the same in every line."""
    return [dict(pair) for pair in dict.fromkeys(tuple(sorted(each.items(), reverse=True)) for each in mistakes)]
