"""Logs: one JSON line per record, on a terminal a line for people, with the delegation's id bound once."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from deputize.shared.masking import SecretMask
from deputize.shared.text import visible, visible_block, visible_json

log = logging.getLogger("deputize")

delegation: ContextVar[str] = ContextVar("delegation", default="")
"""The delegation this task works for; every log line of it carries the id."""

_mask = SecretMask()

_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if delegation.get():
            line["delegation"] = delegation.get()
        line |= {key: value for key, value in record.__dict__.items() if key not in _OWN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible_json(_mask.json(json.dumps(line, ensure_ascii=False, default=str)))


class _TerminalLines(_Lines):
    """Lines for people: ``12:00:00 warning message key=value``, a traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = json.loads(super().format(record))
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006 - as the clock of the reader
        traceback = line.pop("traceback", "")
        facts = [f"{key}={value}" for key, value in line.items() if key not in ("at", "level", "logger", "message")]
        text = visible(" ".join([at, f"{line['level']:7}", line["message"], *facts]))
        return f"{text}\n{visible_block(traceback)}" if traceback else text


def hide(secrets: Iterable[str]) -> None:
    """Masks these values from now on in every log line of the process."""
    _mask.add(secrets)


def set_up(level: str = "INFO", secrets: Iterable[str] = ()) -> None:
    """Sends every log line of the process to stderr, with the ``secrets`` masked: as JSON, on a terminal as text.

    ``level`` is a name of the logging module.
    """
    hide(secrets)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TerminalLines() if sys.stderr.isatty() else _Lines())
    # At INFO it logs a line for every call of a model.
    logging.getLogger("httpx2").setLevel(logging.WARNING if level.upper() == "INFO" else logging.NOTSET)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
