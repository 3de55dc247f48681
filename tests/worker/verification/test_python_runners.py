"""Programs that report tests in Python, in real runs of pytest with the plugins that projects use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deputize.worker.verification.reports import Place
from deputize.worker.verification.runners import Instrumented
from tests.worker.verification.reporting import reported

TESTS = """\
import pytest, unittest

def test_good(): assert 1
def test_bad(): assert 0
@pytest.mark.parametrize("value", [1, 2])
def test_each(value): assert value
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert 0
class TestClass:
    def test_method(self): pass
class Case(unittest.TestCase):
    def test_parts(self):
        for part in range(3):
            with self.subTest(part=part): self.assertEqual(part, part)
"""
STATES = {
    "test_good": "passed",
    "test_bad": "failed",
    "test_each[1]": "passed",
    "test_each[2]": "passed",
    "test_skipped": "skipped",
    "test_expected": "skipped",
    "TestClass::test_method": "passed",
    "Case::test_parts": "passed",
}
PLUGINS = (
    "",
    "--assert=plain",
    "--import-mode=importlib",
    "-p xdist -n 2",
    "-p xdist -n 2 --dist loadfile",
    "-p xdist -n 0",
    "-p xdist --tx 2*popen --dist each",
    "-p xdist -n 2 -p pytest_cov --cov=.",
    "-p pytest_randomly",
    "-p pytest_cov --cov=.",
    "-p pytest_timeout --timeout=60",
    "-p pytest_asyncio",
    "-p anyio.pytest_plugin",
    "-p _hypothesis_pytestplugin",
    "-p unittest.mock",
)


@pytest.mark.parametrize("options", PLUGINS)
async def test_every_test_is_reported_with_its_place_whatever_plugins_run(tmp_path: Path, options: str) -> None:
    file = tmp_path / "project/tests/test_a.py"
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    how = Instrumented("pytest")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.split()]
    variables = {**how.variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    report = await reported(how, command, tmp_path / "project", variables)
    assert report is not None
    assert report.tests == {f"{file}::{id}": state for id, state in STATES.items()}
    names = {id: id.partition("[")[0].replace("::", ".") for id in STATES}
    assert report.places == {f"{file}::{id}": Place(str(file), name) for id, name in names.items()}
    assert (report.finished, report.bent) == (True, set())


ORDERED = """\
import unittest

class T(unittest.TestCase):
    def test_a(self): self.note("a")
    def test_b(self): self.note("b")
    def test_c(self): self.note("c")
    def note(self, name):
        with open("seen", "a") as file: file.write(name)
"""


@pytest.mark.parametrize(
    "words", [["-m", "pytest", "-q", "-p", "no:randomly"], ["-m", "unittest", "-q"], ["-m", "CHECK"]]
)
@pytest.mark.parametrize(("only", "order"), [((), "cba"), (("a", "c"), "ca"), (("gone",), "cba")])
async def test_tests_are_executed_alone_and_in_reverse(
    tmp_path: Path, words: list[str], only: tuple[str, ...], order: str
) -> None:
    (tmp_path / "test_t.py").write_text(ORDERED)
    of_pytest = words[1] == "pytest"
    ids = [f"test_t.py::T::test_{name}" if of_pytest else f"test_t.T.test_{name}" for name in only]
    how = Instrumented("python -m unittest", only=frozenset(ids), is_reversed=True)
    command = [sys.executable, *(f"{how.name}_unittest" if word == "CHECK" else word for word in words)]
    report = await reported(how, command, tmp_path)
    assert report is not None
    assert (tmp_path / "seen").read_text() == order
    assert len(report.of("passed")) == len(order)


@pytest.mark.parametrize(("given", "ran"), [("", "ca"), ("-k 'not test_c' --verbose", "a")])
async def test_processes_of_xdist_get_the_order_and_the_options_of_the_environment(
    tmp_path: Path, given: str, ran: str
) -> None:
    (tmp_path / "test_t.py").write_text(ORDERED)
    ids = [f"test_t.py::T::test_{name}" for name in ("a", "c")]
    how = Instrumented("pytest", only=frozenset(ids), is_reversed=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-n", "1"]
    variables = {**how.variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    variables["PYTEST_ADDOPTS"] += f" {given}"
    report = await reported(how, command, tmp_path, variables)
    assert report is not None
    assert (tmp_path / "seen").read_text() == ran
    assert report.finished
