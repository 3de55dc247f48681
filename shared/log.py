"""Logs: one JSON line per record, with the delegation's id bound once."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from deputize.shared.masking import SecretMask
from deputize.shared.text import visible_json

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


def hide(secrets: Iterable[str]) -> None:
    """Masks these values from now on in every log line of the process."""
    _mask.add(secrets)


def set_up(level: str = "INFO", secrets: Iterable[str] = ()) -> None:
    """Sends every log line of the process to stderr as JSON, with the ``secrets`` masked.

    ``level`` is a name of the logging module.
    """
    hide(secrets)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    # At INFO it logs a line for every call of a model.
    logging.getLogger("httpx2").setLevel(logging.WARNING if level.upper() == "INFO" else logging.NOTSET)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
