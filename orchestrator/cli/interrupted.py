"""Imported before the modules of the command line: Ctrl-C while they are imported ends the command as it does later."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def _end(*_: object) -> None:
    os._exit(130)  # as ``Exit.INTERRUPTED``; nothing has been printed, and nothing has begun


def imported() -> None:
    """Lets Ctrl-C raise ``KeyboardInterrupt`` again, which commands handle."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # what the parent ignores stays ignored
    with suppress(ValueError):  # it is imported in another thread than the main one
        signal.signal(signal.SIGINT, _end)
