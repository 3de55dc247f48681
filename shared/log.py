"""Logs: one JSON line per record, on a terminal a line for people, with what the task is about bound once."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any, Literal

from .ids import ID
from .masking import SecretMask
from .text import visible, visible_block, visible_json

log = logging.getLogger("deputize")

Format = Literal["auto", "json", "text"]
"""``auto``: text on a terminal, else JSON."""

delegation: ContextVar[str] = ContextVar("delegation", default="")
"""The delegation this task works for; every log line of it carries the id."""
_more: ContextVar[Mapping[str, object]] = ContextVar("more", default=MappingProxyType({}))

_mask = SecretMask()

# Celery's `data` repeats the message, and has the arguments of the task, which quote what a caller wrote.
_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message", "data"}


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if id := delegation.get() or ((named := ID.search(line["message"])) and named[0]):
            line["delegation"] = id
        line |= _more.get()
        line |= {key: value for key, value in record.__dict__.items() if key not in _OWN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible_json(_mask.json(json.dumps(line, ensure_ascii=False, default=str)))


class _TerminalLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        return line_for_people(json.loads(super().format(record)))


def line_for_people(line: Mapping[str, Any]) -> str:
    """Returns a JSON line of a log as ``12:00:00 warning message key=value``, a traceback below.

    The time is that of the reader's clock.
    """
    at, traceback = datetime.fromisoformat(line["at"]).astimezone(), line.get("traceback", "")
    known = ("at", "level", "logger", "message", "traceback")
    facts = [f"{key}={value}" for key, value in line.items() if key not in known]
    text = visible(" ".join([f"{at:%H:%M:%S}", f"{line['level']:7}", line["message"], *facts]))
    return f"{text}\n{visible_block(traceback)}" if traceback else text


def bind(id: str, *, attempt: int = 0, trace_id: str = "") -> None:
    """Adds a delegation and what else there is to every log line of this task, and of the tasks that it starts."""
    delegation.set(id)
    _more.set({name: value for name, value in (("attempt", attempt), ("trace_id", trace_id)) if value})


def hide(secrets: Iterable[str]) -> None:
    """Masks these values from now on in every log line of the process."""
    _mask.add(secrets)


def masked(text: str) -> str:
    """Returns the text as a log line of this process would show it: without secrets."""
    return _mask.text(text)


def log_uncaught() -> None:
    """Logs errors that end a thread or the process; Python itself would print them with whatever they quote."""

    def uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, traceback)
        else:
            log.critical("an error ends this process", exc_info=(kind, error, traceback))

    def uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value or args.exc_type()
        log.critical("an error ends a thread", exc_info=(args.exc_type, error, args.exc_traceback))

    sys.excepthook = uncaught
    threading.excepthook = uncaught_in_thread


def set_up(level: str = "INFO", secrets: Iterable[str] = (), form: Format = "auto") -> None:
    """Sends every log line of the process to stderr, with the ``secrets`` masked.

    ``level`` is a name of the logging module.
    """
    hide(secrets)
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(_TerminalLines() if as_text else _Lines())
    # At INFO it logs a line for every call of a model.
    logging.getLogger("httpx2").setLevel(logging.WARNING if level.upper() == "INFO" else logging.NOTSET)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
