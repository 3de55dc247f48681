"""The reports of runners about each test, in a file outside of the checked tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ....shared.text import shortened
from ...sandbox.environment import MOUNT

TestState = Literal["passed", "failed", "skipped"]
MAX_TESTS = 100_000
MAX_REPORT_BYTES = 64 << 20
_MAX_ID = 500
_MAX_BENT = 4000
_BY_CHANCE = re.compile(
    r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|0x[0-9a-fA-F]{6,16}\b|\b\d{10,19}(?:\.\d+)?\b"
    r"|\d{4}-\d\d-\d\d[T _]\d\d:?\d\d(?::?\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
)
_WORST_FIRST: tuple[TestState, ...] = ("failed", "skipped", "passed")


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
    bent: frozenset[str] = frozenset()
    """The functions of the libraries that assert and report that were replaced meanwhile."""
    of_runner: bool = True
    """Whether a runner of tests reported, and not only what was replaced in processes of Node."""

    def add(self, id: str, state: TestState, place: Place | None = None) -> None:
        """Adds a state of a test; of several the worst one counts."""
        id = shortened(steady(id), _MAX_ID)
        states = (state, self.tests.get(id))
        if id in self.tests or len(self.tests) < MAX_TESTS:
            self.tests[id] = next(each for each in _WORST_FIRST if each in states)
        if place:
            self.places[id] = place

    def of(self, *states: TestState) -> set[str]:
        """Returns the tests that are in one of these states."""
        return {id for id, state in self.tests.items() if state in states}


def qualified(id: str, file: str) -> str:
    """Returns an id that no test of another file has, also where several runners in one command begin elsewhere.

    It begins with the file, as paths in the workspace do; unless the id itself names the whole of that.
    """
    place = file.removeprefix(f"{MOUNT}/")
    if not place or id.startswith((place, place.removesuffix(".py").replace("/", ".") + ".")):
        return id
    head, separator, tail = id.partition("::")
    if separator or place.endswith(f"/{head}"):
        return f"{place}{separator}{tail}"
    return f"{place}::{id}"


def steady(id: str) -> str:
    """Returns an id without what differs each time: UUIDs, times, addresses of objects, long numbers."""
    return _BY_CHANCE.sub("*", id)


def of_lines(lines: Iterable[str]) -> Report | None:
    """Reads what the programs above write; None where none of them began."""
    report, open_runs, begun, files = Report(), 0, False, dict[str, str]()
    for line in lines:
        fields = _parsed(line)
        files = {} if "begin" in fields else files
        begun = begun or "begin" in fields
        open_runs += ("begin" in fields) - ("end" in fields)
        report.stopped = report.stopped or fields.get("stopped") is True
        report.bent |= {name for name in str(fields.get("bent", ""))[:_MAX_BENT].split(", ") if name}
        if "item" in fields:
            place, id = Place(str(fields["file"]), str(fields["name"])), str(fields["item"])
            files[id] = place.file
            report.places[shortened(steady(qualified(id, place.file)), _MAX_ID)] = place
        elif fields.get("state") in _WORST_FIRST:
            place, id = Place(str(fields["file"]), "") if "file" in fields else None, str(fields.get("test"))
            report.add(qualified(id, place.file if place else files.get(id, "")), fields["state"], place)
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
_CARGO_BINARY = re.compile(r"\s*(?:Running|Doc-tests) (.*?)(?: \((?:\S*/)?([^/\s]*?)(?:-[0-9a-f]{16})?\))?")


def of_cargo(lines: Iterable[str]) -> Report | None:
    """Reads what ``cargo test`` prints: it has no other report. Output of passing tests is not among it."""
    report, binary, begun = Report(), "", False
    states: Mapping[str, TestState] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    for line in lines:
        if found := _CARGO_BINARY.fullmatch(line):
            binary, begun = " ".join(filter(None, (found[2], found[1]))), True  # the crate's name is in the program's
        elif found := _CARGO_TEST.fullmatch(line):
            report.add(f"{binary}::{found[1]}", states[found[2]], Place("", found[1].rpartition("::")[2]))
    return report if begun else None
