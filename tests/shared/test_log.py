"""Log lines: JSON that does nothing to a terminal that shows it."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
from celery.app.trace import LOG_RECEIVED

from deputize.shared.ids import new_id
from deputize.shared.log import Format, _Lines, bind, log_uncaught, set_up
from tests.hostile.texts import HOSTILE, assert_harmless


def test_what_others_say_does_not_act_on_a_terminal_that_shows_the_log() -> None:
    record = logging.LogRecord("server", logging.WARNING, __file__, 1, "it said %s", (HOSTILE,), None)
    record.__dict__["cause"] = HOSTILE
    line = _Lines().format(record)
    assert_harmless(line)
    assert json.loads(line)["message"] == f"it said {HOSTILE}"
    assert json.loads(line)["cause"] == HOSTILE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("logging_as_before")
def test_on_a_terminal_a_line_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    set_up("info", secrets=["token-of-the-operator"])
    about = {"queue": "q1", "color_message": "\x1b[1m", "token": "token-of-the-operator"}
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("deputize").warning("it is away: %s", HOSTILE, extra=about, exc_info=True)
    assert_harmless(shown.getvalue().replace("\n", ""))
    first, *traceback = shown.getvalue().splitlines()
    assert re.match(r"\d\d:\d\d:\d\d warning it is away: ", first)
    assert first.endswith(" queue=q1 token=***")
    assert traceback[0] == "Traceback (most recent call last):"


@pytest.mark.usefixtures("logging_as_before")
def test_an_error_that_ends_a_process_or_a_thread_is_logged_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # to be as before
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    set_up("info", secrets=["token-of-the-operator"])
    log_uncaught()

    def fail() -> None:
        raise ValueError("it quoted token-of-the-operator")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    logged = capsys.readouterr().err
    of_thread, of_process = map(json.loads, logged.splitlines())
    assert (of_thread["message"], of_process["message"]) == ("an error ends a thread", "an error ends this process")
    assert "it quoted ***" in of_thread["traceback"]
    assert "token-of" not in logged
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "KeyboardInterrupt\n"


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


def test_a_line_names_the_delegation_the_attempt_and_the_trace_that_it_is_about() -> None:
    def about(id: str = "", **facts: Any) -> dict[str, Any]:
        bind(id, **facts)
        line = json.loads(_Lines().format(logging.makeLogRecord({"msg": "done"})))
        return {name: line[name] for name in ("delegation", "attempt", "trace_id") if name in line}

    facts: dict[str, Any] = {"attempt": 2, "trace_id": "0af7"}
    assert copy_context().run(about, "dlg_1", **facts) == {"delegation": "dlg_1", **facts}
    assert copy_context().run(about, "dlg_1") == {"delegation": "dlg_1"}
    assert copy_context().run(about) == {}


def test_a_line_of_another_task_names_its_delegation_and_never_the_text_of_the_task() -> None:
    id = new_id()
    context = {"id": id, "name": "deputize.run", "args": "('fix calc',)", "kwargs": "{}", "eta": None}
    received = logging.LogRecord("celery.worker.strategy", logging.INFO, __file__, 1, LOG_RECEIVED, (context,), None)
    received.__dict__["data"] = context
    line = _Lines().format(received)
    assert (json.loads(line)["message"], json.loads(line)["delegation"]) == (f"Task deputize.run[{id}] received", id)
    assert "fix calc" not in line

    def of(message: str, bound: str = "") -> str | None:
        bind(bound)
        return json.loads(_Lines().format(logging.makeLogRecord({"msg": message}))).get("delegation")

    assert copy_context().run(of, f"{id} is unclaimed after 2 attempts: another ticket") == id
    assert copy_context().run(of, f"{id} is its child", "dlg_parent") == "dlg_parent"
    assert copy_context().run(of, "ready") is None


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_the_form_of_lines_may_be_set(form: Format, stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", shown := stream())
    set_up("info", form=form)
    logging.getLogger("deputize").warning("done")
    (line,) = shown.getvalue().splitlines()
    assert line.startswith("{") is (form == "json")
