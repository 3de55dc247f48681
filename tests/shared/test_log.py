"""Log lines: JSON that does nothing to a terminal that shows it."""

from __future__ import annotations

import json
import logging

from shared.log import _Lines  # pyright: ignore[reportPrivateUsage]
from tests.hostile import HOSTILE, assert_harmless


def test_what_others_say_does_not_act_on_a_terminal_that_shows_the_log() -> None:
    record = logging.LogRecord("server", logging.WARNING, __file__, 1, "it said %s", (HOSTILE,), None)
    record.__dict__["cause"] = HOSTILE
    line = _Lines().format(record)
    assert_harmless(line)
    assert json.loads(line)["message"] == f"it said {HOSTILE}"
    assert json.loads(line)["cause"] == HOSTILE
