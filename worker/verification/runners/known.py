"""Known runners of tests: how each is made to report its tests, and how its tests are broken for a canary."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ...sandbox.environment import BindMount
from ..protected.command_words import Simple, commands_of, path_in
from ..protected.named_files import TEST_RUNNERS, Read, package_scripts
from ..reports.report_files import merged, of_builds, of_tap_folder, of_text, read_inside
from ..reports.states import Report, of_cargo, of_go
from .python_runners import CHANNEL, PYTEST, PYTEST_ORDER, UNITTEST
from .reporters import ASSERTIONS, MOCHA, NODE, RESULTS, SITE

PROGRAMS, REPORTS = "/opt/check", "/opt/report"
_UNITTEST = re.compile(r"(\bpython[\d.]*\s+(?:-[BbdOqsuvx]+\s+)*-m\s+)unittest(?=\s|$)")
_GO = re.compile(r"\bgo\s+test\b(?!\s+-json)")
_CARGO = re.compile(r"\bcargo\s+(?:\+\S+\s+)?(?:(?:-q|--quiet)\s+)?(?:test|t)\b[^;&|\n'\"]*")
_QUIET = re.compile(r"\s(?:-q|--quiet)(?=\s|$)")
_PYTHONPATH = re.compile(r"\bPYTHONPATH=")
_ADDOPTS = re.compile(r"\bPYTEST_ADDOPTS=")
_NODE_OPTIONS = re.compile(r"\bNODE_OPTIONS=")
_PERMISSION = re.compile(r"(?<![\w-])--(?:experimental-)?permission(?![\w-])")
_BUILDS = re.compile(r"\b(?:mvnw?|gradlew?)\b")
_EMPTY = re.compile(r"\benv\s+(?:-[a-z]\s+)*?(?:-i|-|--ignore-environment)(?=\s)")
_OWN_REPORTER = {"mocha": ("--reporter", "-R"), "vitest": (), "jest": ("--json",), "ctest": ("--output-junit",)}
_SCRIPTS = {"npm": " --", "pnpm": "", "yarn": "", "bun": ""}
"""Programs that run scripts of package.json, and what they want before options of the script."""


@dataclass(slots=True)
class Instrumented:
    """A command with what makes a known runner report its tests. Made for one check; names are random.

    Every command has pytest's plugin, because pytest may run below ``make``. ``plain`` leaves it out.
    """

    command: str
    plain: bool = False
    read: Read | None = None
    """Reads a file of the base: scripts of package.json are followed one level."""
    named: str | None = None
    """The path of a report that the command itself writes."""
    is_quiet: bool = False
    """Whether tracebacks are left out, which cost more than the tests where many fail."""
    only: frozenset[str] = frozenset()
    """Tests of pytest and unittest that are executed alone, where there are any."""
    has_plain_asserts: bool = False
    """Whether pytest leaves assertions as they are: rewriting them to explain failures may cost more than the tests."""
    is_reversed: bool = False
    """Whether tests are executed in reverse: by Go and CTest in another order, by cargo, Maven and Gradle as before."""
    name: str = field(default_factory=lambda: f"check_{secrets.token_hex(8)}")

    def quiet(self) -> Instrumented:
        return replace(self, is_quiet=True)

    @property
    def line(self) -> str:
        if self.plain:
            return self.command
        line = self.command
        for end, options in sorted(self._options(), reverse=True):
            line = f"{line[:end]}{options}{line[end:]}"
        line = _PYTHONPATH.sub(f"PYTHONPATH={PROGRAMS}:", line)
        line = _ADDOPTS.sub(f'PYTEST_ADDOPTS="{self.variables["PYTEST_ADDOPTS"]} "', line)
        line = _NODE_OPTIONS.sub(f'NODE_OPTIONS="{self._inherited} "', line)
        line = _UNITTEST.sub(rf"\g<1>{self.name}_unittest", line)
        line = _EMPTY.sub(lambda found: f"{found[0]} {self._set_variables}", line)
        line = _CARGO.sub(lambda found: _QUIET.sub("", found[0]), line)  # else it prints no names
        return _GO.sub("go test -json" + " -shuffle=on -count=1" * self.is_reversed, line)

    def _options(self) -> Iterator[tuple[int, str]]:
        """Yields options of runners with the places in the line where they are put."""
        for number, simple in enumerate(commands_of(self.command)):
            if simple.words[-1].text.endswith("$"):
                continue
            if simple.program in _SCRIPTS:
                script = self._script(simple)
                if script and (options := self._of_runner(script, number)):
                    yield simple.end, f"{_SCRIPTS[simple.program]}{options}"
            elif at := self._test_of_node(simple):
                yield at, f" {self._node_options}"
            elif options := self._of_runner(simple, number):
                yield simple.end, options
            elif self.is_reversed and simple.program == "prove":  # behind "::" are words for the tests
                yield next((word.end for word in simple.words if word.text.endswith("prove")), simple.end), " --reverse"

    def _test_of_node(self, simple: Simple) -> int:
        """Returns where the option ``--test`` of node ends; 0 where there is none.

        What the tests start must not inherit a reporter by the environment: it may have one of its own.
        """
        words = simple.words[1:] if simple.program == "node" and "reporter" not in self._inherited else ()
        return next((word.end for word in words if word.text == "--test"), 0) if self._node_options else 0

    def _script(self, simple: Simple) -> Simple | None:
        """Returns the last command of the script of package.json that is run, unless it has arguments already."""
        words = [word for word in simple.texts[1:] if not word.startswith("-")]
        name = {"t": "test"}.get(words[-1], words[-1]) if words and words[0] in ("run", "test", "t") else ""
        folder = path_in(simple.folder, "package.json")
        text = package_scripts(self.read(folder)).get(name) if self.read and folder and len(words) < 3 else None
        commands = commands_of(text) if isinstance(text, str) else []
        return commands[-1] if commands and commands[-1].end == len(str(text).rstrip()) else None

    def _of_runner(self, simple: Simple, number: int) -> str:
        path, pipe, words = f"{self._report}.{number}", f"{PROGRAMS}/{self.name}.{number}", simple.texts
        if any(word.partition("=")[0] in _OWN_REPORTER.get(simple.program, ()) for word in words):
            return ""
        match simple.program:
            case "jest":
                return f" --json --outputFile={pipe}"
            case "vitest":
                return f" --reporter=default --reporter=json --outputFile.json={pipe}"
            case "mocha":
                return f" --reporter {PROGRAMS}/{self.name}_mocha.cjs"
            case "ctest":
                return f" --output-junit {path}" + " --schedule-random" * self.is_reversed
            case "phpunit":
                return f" --log-junit {pipe}" + " --order-by=reverse" * self.is_reversed
            case _:
                return ""

    @property
    def variables(self) -> Mapping[str, str]:
        if self.plain:
            return {}
        variables = {
            "PYTHONPATH": PROGRAMS,
            "PYTEST_ADDOPTS": f"-p {self.name}"
            + f" -p {self.name}_order" * bool(self.only or self.is_reversed)
            + " --tb=no" * self.is_quiet
            + " --assert=plain" * self.has_plain_asserts,
            "PERL_TEST_HARNESS_DUMP_TAP": f"{self._report}.tap",
        }
        return variables | {"NODE_OPTIONS": self._inherited}

    @property
    def _inherited(self) -> str:
        """Options of Node in the environment; a reporter is among them unless the command itself starts all tests."""
        if self._is_restricted:
            return ""
        of_node = [each.texts for each in commands_of(self.command) if each.program == "node"]
        reporter = "" if of_node and all("--test" in words for words in of_node) else self._node_options
        return f"--require={PROGRAMS}/{self.name}_assertions.cjs {reporter}".rstrip()

    @property
    def _node_options(self) -> str:
        """A second reporter of Node's runner; none where the project has chosen one, as their numbers must match."""
        if self._is_restricted or "--test-reporter" in self._written:
            return ""
        return (
            "--test-reporter=spec --test-reporter-destination=stdout "
            f"--test-reporter={PROGRAMS}/{self.name}_node.mjs --test-reporter-destination=/dev/null"
        )

    @property
    def _is_restricted(self) -> bool:
        """Whether Node may read only what the project names, so that it could not load programs from elsewhere."""
        return _PERMISSION.search(self._written) is not None

    @property
    def _written(self) -> str:
        """What is known of the commands: the check's own and the scripts of package.json."""
        manifest = (self.read("package.json") if self.read else None) or b""
        return f"{self.command}\n{manifest.decode('utf-8', 'replace')}"

    @property
    def _set_variables(self) -> str:
        return " ".join(f"{name}='{value}'" for name, value in self.variables.items())

    @property
    def _report(self) -> str:
        return f"{REPORTS}/{self.name}"

    def mounts(self, programs: Path, reports: Path) -> list[BindMount]:
        """Fills the directories for a run and returns their mounts."""
        if self.plain:
            return []
        texts = {
            f"{self.name}.py": PYTEST,
            f"{self.name}_channel.py": CHANNEL,
            f"{self.name}_order.py": PYTEST_ORDER,
            f"{self.name}_unittest.py": UNITTEST,
            f"{self.name}_results.py": RESULTS,
            f"{self.name}_assertions.cjs": ASSERTIONS,
            f"{self.name}_node.mjs": NODE,
            f"{self.name}_mocha.cjs": MOCHA,
            "sitecustomize.py": SITE,
        }
        for name, text in texts.items():
            text = text.replace("ALONE", repr(sorted(self.only))).replace("BACKWARDS", str(self.is_reversed))
            (programs / name).write_text(text.replace("NAME", self.name))
        shown = BindMount(f"programs-{self.name}", programs, PROGRAMS)
        return [shown, BindMount(f"reports-{self.name}", reports, REPORTS, writable=True)]

    @property
    def socket(self) -> str:
        """The name of the socket beside the programs by which these report."""
        return f"{self.name}_socket"

    @property
    def pipes(self) -> list[str]:
        """The names of the pipes beside the programs into which runners, and what Node loads, write their reports."""
        return sorted({f"{self.name}_bent", *re.findall(rf"{PROGRAMS}/({self.name}\.\d+)\b", self.line)})

    def report(
        self, reports: Path, output: str, ground: Path | None = None, sent: Report | None = None
    ) -> tuple[Report | None, str]:
        """Returns what was reported of the tests, if anything was, and what was printed.

        ``sent``: what came by the channel.
        """
        try:
            return self._report_in(reports, output, ground, sent)
        except (AttributeError, KeyError, TypeError):  # something else has written into it
            return Report(finished=False), output

    def _report_in(
        self, reports: Path, output: str, ground: Path | None, sent: Report | None
    ) -> tuple[Report | None, str]:
        found = list[Report | None]()
        if ground and self.named:
            found.append(of_text(read_inside(ground, self.named)) or Report(finished=False))
        elif not self.plain:
            found.append(sent)
            found += [of_text(read_inside(reports, path.name)) for path in sorted(reports.glob(f"{self.name}.*"))]
            found += of_tap_folder(reports / f"{self.name}.tap")
            found += of_builds(ground) if ground and _BUILDS.search(self.command) else []
        if not self.plain and _GO.search(self.command):
            of_tests, output = of_go(output.splitlines())
            found.append(of_tests)
        elif not self.plain and _CARGO.search(self.command):
            found.append(of_cargo(output.splitlines()))
        return merged([each for each in found if each]), output

    @property
    def reads_output(self) -> bool:
        """Whether the report is in the output, which must be kept whole."""
        return bool(_GO.search(self.command) or _CARGO.search(self.command))


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
_NAMED = TEST_RUNNERS | {"tox", "nox", "nextest"}


def unreported(line: str, output: str) -> str:
    """Returns the runner of tests that a command line names, or that has printed its usual end; "" where none."""
    for simple in commands_of(line):
        module = [after for option, after in pairwise(simple.texts) if re.fullmatch(r"-[A-Za-z]*m", option)]
        if found := next((word for word in (simple.program, *module) if word in _NAMED), None):
            return found
    return next((name for name, end in _VISIBLE.items() if re.search(end, output, re.MULTILINE)), "")
