"""Known runners of tests: how each is made to report its tests, and how its tests are broken for a canary."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ..sandbox.environment import BindMount
from .command_words import commands_of
from .python_runners import PYTEST, UNITTEST
from .reports import MAX_REPORT_BYTES, Report, of_cargo, of_go, of_jest, of_lines

PROGRAMS, REPORTS = "/opt/check", "/opt/report"
_PLAIN = re.compile(r"[^;&|<>`$()\n#]+")
"""A single command without any syntax of a shell: options may be appended to it."""
_UNITTEST = re.compile(r"(\bpython[\d.]*\s+(?:-[BbdOqsuvWx]+\s+)*-m\s+)unittest(?=\s|$)")
_JEST = re.compile(r"(?:npx\s+(?:--no(?:-install)?\s+)?|\S*/)?jest(?:\s|$)")
_VITEST = re.compile(r"(?:npx\s+(?:--no(?:-install)?\s+)?|\S*/)?vitest(?:\s|$)")
_GO = re.compile(r"\bgo\s+test\b(?!\s+-json)")
_CARGO = re.compile(r"\bcargo\s+(?:\+\S+\s+)?(?:test|t)\b")
_PYTHONPATH = re.compile(r"\bPYTHONPATH=")


@dataclass(slots=True)
class Instrumented:
    """A command with what makes a known runner report its tests. Made for one check; names are random.

    Every command has pytest's plugin, because pytest may run below ``make``. ``plain`` leaves it out.
    """

    command: str
    plain: bool = False
    is_quiet: bool = False
    """Whether tracebacks are left out, which cost more than the tests where many fail."""
    name: str = field(default_factory=lambda: f"check_{secrets.token_hex(8)}")

    def quiet(self) -> Instrumented:
        return replace(self, is_quiet=True)

    @property
    def line(self) -> str:
        if self.plain:
            return self.command
        line = _PYTHONPATH.sub(f"PYTHONPATH={PROGRAMS}:", self.command)
        line = _UNITTEST.sub(rf"\g<1>{self.name}_unittest", line)
        if _PLAIN.fullmatch(line) and _JEST.match(line):
            return f"{line} --json --outputFile={self._report}"
        if _PLAIN.fullmatch(line) and _VITEST.match(line):
            return f"{line} --reporter=default --reporter=json --outputFile.json={self._report}"
        return _GO.sub("go test -json", line)

    @property
    def variables(self) -> Mapping[str, str]:
        if self.plain:
            return {}
        return {
            "PYTHONPATH": PROGRAMS,
            "PYTEST_ADDOPTS": f"-p {self.name}" + " --tb=no" * self.is_quiet,
            "CHECK_REPORT": self._report,
        }

    @property
    def _report(self) -> str:
        return f"{REPORTS}/{self.name}"

    def mounts(self, programs: Path, reports: Path) -> list[BindMount]:
        """Fills the directories for a run and returns their mounts."""
        if self.plain:
            return []
        (programs / f"{self.name}.py").write_text(PYTEST)
        (programs / f"{self.name}_unittest.py").write_text(UNITTEST)
        shown = BindMount(f"programs-{self.name}", programs, PROGRAMS)
        return [shown, BindMount(f"reports-{self.name}", reports, REPORTS, writable=True)]

    def report(self, reports: Path, output: str) -> tuple[Report | None, str]:
        """Returns what was reported of the tests, if anything was, and what was printed."""
        try:
            return self._report_in(_text(reports / self.name), output)
        except (AttributeError, KeyError, TypeError):  # something else has written into it
            return Report(finished=False), output

    def _report_in(self, text: str, output: str) -> tuple[Report | None, str]:
        if self.plain:
            return None, output
        found = of_jest(text) if text.startswith("{") and '"testResults"' in text else of_lines(text.splitlines())
        if found:
            return found, output
        if _GO.search(self.command):
            return of_go(output.splitlines())
        return of_cargo(output.splitlines()) if _CARGO.search(self.command) else None, output

    @property
    def reads_output(self) -> bool:
        """Whether the report is in the output, which must be kept whole."""
        return bool(_GO.search(self.command) or _CARGO.search(self.command))


def _text(path: Path) -> str:
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(MAX_REPORT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


_VISIBLE = {
    "pytest": r"^=+ .*\b\d+ (?:passed|failed|errors?)\b.* in [\d.]+s|\b\d+ passed(?:, \d+ \w+)* in [\d.]+s",
    "unittest": r"^Ran \d+ tests? in [\d.]+s",
    "jest": r"^Tests: +.*\d+ total",
    "vitest": r"^ *Tests  .*\(\d+\)",
    "mocha": r"^  \d+ (?:passing|failing)",
    "node --test": r"^(?:#|\u2139) tests \d+",
    "go test": r"^(?:ok  \t|FAIL\t|--- (?:FAIL|PASS))",
    "cargo test": r"^test result: ",
    "RSpec": r"^\d+ examples?, \d+ failures?",
    "PHPUnit": r"^OK \(\d+ tests?|^Tests: \d+, Assertions",
    "a runner of JUnit's kind": r"Tests run: \d+",
    "CTest": r"\d+% tests passed",
    "prove": r"^Result: (?:PASS|FAIL)$|^All tests successful\.",
}
"""Runners of tests by what they print at their end."""
_NAMED = {
    *("pytest", "py.test", "unittest", "nose2", "behave", "tox", "nox", "jest", "vitest", "mocha", "ava", "jasmine"),
    *("rspec", "phpunit", "ctest", "bats", "prove", "trial", "green", "stestr", "nextest", "karma"),
}


def unreported(line: str, output: str) -> str:
    """Returns the runner of tests that a command line names, or that has printed its usual end; "" where none."""
    for simple in commands_of(line):
        module = [after for option, after in pairwise(simple.texts) if re.fullmatch(r"-[A-Za-z]*m", option)]
        if found := next((word for word in (simple.program, *module) if word in _NAMED), None):
            return found
    return next((name for name, end in _VISIBLE.items() if re.search(end, output, re.MULTILINE)), "")
