"""What runners of tests report of each test, in a file outside of the checked tree: programs that are shown to them.

They run in the sandbox beside the code under test, in whatever Python the project has; so they import nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...shared.text import shortened

TestState = Literal["passed", "failed", "skipped"]
MAX_TESTS = 100_000
MAX_REPORT_BYTES = 64 << 20
_MAX_ID = 500
_WORST_FIRST: tuple[TestState, ...] = ("failed", "skipped", "passed")

PYTEST = """
import json, os, pytest
path = os.environ.pop("CHECK_REPORT", None)
os.environ.pop("PYTEST_ADDOPTS", None)

def put(**fields):
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(fields) + "\\n")

def pytest_sessionstart(session):
    put(begin=1)

def pytest_itemcollected(item):
    name = "::".join(item.nodeid.split("::")[1:]).partition("[")[0].replace("::", ".")
    put(item=item.nodeid, file=str(getattr(item, "path", None) or item.fspath), name=name)

def pytest_collectreport(report):
    if report.failed:
        put(test=report.nodeid or ".", state="failed", file=os.path.abspath(str(report.fspath or "")))

def pytest_runtest_logreport(report):
    state = "skipped" if hasattr(report, "wasxfail") else report.outcome
    if report.when == "call" or state != "passed":
        put(test=report.nodeid, state=state)

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    os.environ.pop("PYTEST_CURRENT_TEST", None)

def pytest_sessionfinish(session, exitstatus):
    put(end=int(exitstatus), stopped=bool(session.shouldfail or session.shouldstop))
"""
"""A plugin: what it keeps from the environment, nested runs of pytest and the code under test do not see."""

UNITTEST = """
import json, os, sys, unittest
path = os.environ.pop("CHECK_REPORT")

def put(**fields):
    with open(path, "a") as file:
        file.write(json.dumps(fields) + "\\n")

def place(test):
    made, method = type(test), getattr(test, "_testMethodName", "")
    if made.__module__.partition(".")[0] != "unittest":
        file = getattr(sys.modules.get(made.__module__), "__file__", None) or ""
        return dict(file=os.path.abspath(file), name=made.__qualname__ + "." + method)
    names = [each for each in sys.argv if each.endswith("." + method)] + [method]
    paths = [os.path.join(each, name.replace(".", "/") + ".py") for name in names for each in sys.path]
    return dict(file=os.path.abspath(next(filter(os.path.isfile, paths), "")), name="")

class Result(unittest.TextTestResult):
    def put(self, test, state):
        put(item=test.id(), **place(test))
        put(test=test.id(), state=state)
    def addSuccess(self, test): super().addSuccess(test); self.put(test, "passed")
    def addFailure(self, test, err): super().addFailure(test, err); self.put(test, "failed")
    def addError(self, test, err): super().addError(test, err); self.put(test, "failed")
    def addSkip(self, test, reason): super().addSkip(test, reason); self.put(test, "skipped")
    def addExpectedFailure(self, test, err): super().addExpectedFailure(test, err); self.put(test, "skipped")
    def addUnexpectedSuccess(self, test): super().addUnexpectedSuccess(test); self.put(test, "failed")
    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.put(test, "failed")

class Runner(unittest.TextTestRunner):
    resultclass = Result

put(begin=1)
ran = unittest.main(module=None, argv=["python -m unittest", *sys.argv[1:]], testRunner=Runner, exit=False)
good = ran.result.wasSuccessful()
empty = not ran.result.testsRun and not ran.result.skipped
put(end=0 if good else 1, stopped=ran.result.shouldStop)
sys.exit(5 if good and empty and sys.version_info >= (3, 12) else 0 if good else 1)
"""
"""Takes the place of ``python -m unittest``, with the same arguments and exit codes.

A module that cannot be imported and a class that cannot be set up are tests of unittest's own, which have no name.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test is defined: its file, as the sandbox sees it, and the name of its function in it, with classes."""

    file: str
    name: str


@dataclass(slots=True)
class Report:
    """The tests of one run, by id. ``finished``: every runner that began also reported its end.

    ``stopped``: one left out tests because another had failed.
    """

    tests: dict[str, TestState] = field(default_factory=dict[str, TestState])
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    finished: bool = True
    stopped: bool = False

    def add(self, id: str, state: TestState, place: Place | None = None) -> None:
        """Adds a state of a test; of several the worst one counts."""
        id = shortened(id, _MAX_ID)
        states = (state, self.tests.get(id))
        if id in self.tests or len(self.tests) < MAX_TESTS:
            self.tests[id] = next(each for each in _WORST_FIRST if each in states)
        if place:
            self.places[id] = place

    def of(self, *states: TestState) -> set[str]:
        """Returns the tests that are in one of these states."""
        return {id for id, state in self.tests.items() if state in states}


def of_lines(lines: Iterable[str]) -> Report | None:
    """Reads what the programs above write; None where none of them began."""
    report, open_runs, begun = Report(), 0, False
    for line in lines:
        fields = _parsed(line)
        begun = begun or "begin" in fields
        open_runs += ("begin" in fields) - ("end" in fields)
        report.stopped = report.stopped or fields.get("stopped") is True
        if "item" in fields:
            report.places[shortened(str(fields["item"]), _MAX_ID)] = Place(str(fields["file"]), str(fields["name"]))
        elif fields.get("state") in _WORST_FIRST:
            place = Place(str(fields["file"]), "") if "file" in fields else None
            report.add(str(fields.get("test")), fields["state"], place)
    report.finished = open_runs == 0 and report.of("passed") <= report.places.keys()
    return report if begun else None


def of_jest(text: str) -> Report | None:
    """Reads what jest and vitest write as JSON, once they have ended."""
    results = _parsed(text).get("testResults")
    if not isinstance(results, list):
        return None
    report = Report()
    known: Mapping[Any, TestState] = {"passed": "passed", "failed": "failed"}
    for of_file in results:
        file = str(of_file.get("name", ""))
        if of_file.get("status") == "failed" and not of_file.get("assertionResults"):
            report.add(file, "failed", Place(file, ""))
        for each in of_file.get("assertionResults", ()):
            state: TestState = known.get(each.get("status"), "skipped")
            report.add(f"{file}::{each.get('fullName', '')}", state, Place(file, str(each.get("title", ""))))
    return report


def of_go(lines: Iterable[str]) -> tuple[Report | None, str]:
    """Reads the events of ``go test -json``; returns also what was printed."""
    report, printed, begun = Report(), list[str](), False
    states: Mapping[Any, TestState] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    for line in lines:
        event = _parsed(line)
        if "Action" not in event:
            printed.append(line + "\n")
            continue
        begun = True
        printed.append(str(event.get("Output", "")))
        if (state := states.get(event["Action"])) and ("Test" in event or state == "failed"):
            test = str(event.get("Test", ""))
            report.add(f"{event.get('Package', '')}::{test}".removesuffix("::"), state, Place("", test.split("/")[0]))
    return report if begun else None, "".join(printed)


def _parsed(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_CARGO_TEST = re.compile(r"test (\S.*?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, .*)?")
_CARGO_BINARY = re.compile(r"\s*(?:Running|Doc-tests) (.*?)(?: \(.*\))?")


def of_cargo(lines: Iterable[str]) -> Report | None:
    """Reads what ``cargo test`` prints: it has no other report. Output of passing tests is not among it."""
    report, binary, begun = Report(), "", False
    states: Mapping[str, TestState] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    for line in lines:
        if found := _CARGO_BINARY.fullmatch(line):
            binary, begun = found[1], True
        elif found := _CARGO_TEST.fullmatch(line):
            report.add(f"{binary}::{found[1]}", states[found[2]], Place("", found[1].rpartition("::")[2]))
    return report if begun else None
