"""Log lines: JSON that does nothing to a terminal that shows it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from deputize.shared.log import _Lines, delegation, set_up
from tests.hostile import HOSTILE, assert_harmless


def test_what_others_say_does_not_act_on_a_terminal_that_shows_the_log() -> None:
    record = logging.LogRecord("server", logging.WARNING, __file__, 1, "it said %s", (HOSTILE,), None)
    record.__dict__["cause"] = HOSTILE
    line = _Lines().format(record)
    assert_harmless(line)
    assert json.loads(line)["message"] == f"it said {HOSTILE}"
    assert json.loads(line)["cause"] == HOSTILE


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root, client = logging.getLogger(), logging.getLogger("httpx2")
    handlers, levels = root.handlers[:], (root.level, client.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    client.setLevel(levels[1])


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(("level", "shown"), [("info", False), ("debug", True)])
def test_calls_of_a_model_are_shown_on_a_closer_look_only(
    capsys: pytest.CaptureFixture[str], level: str, shown: bool
) -> None:
    set_up(level, secrets=["token-of-the-operator"])
    logging.getLogger("httpx2").info("POST https://model.example")
    logging.getLogger("deputize").info("with token-of-the-operator")
    lines = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert lines == (["POST https://model.example"] if shown else []) + ["with ***"]


def test_a_line_names_the_delegation_it_is_about() -> None:
    record = logging.makeLogRecord({"msg": "done"})
    assert "delegation" not in json.loads(_Lines().format(record))
    token = delegation.set("dlg_1")
    try:
        assert json.loads(_Lines().format(record))["delegation"] == "dlg_1"
    finally:
        delegation.reset(token)
