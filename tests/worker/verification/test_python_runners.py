"""Programs that report tests in Python, in real runs of pytest with the plugins that projects use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deputize.worker.verification.reports.states import Place
from deputize.worker.verification.runners.known import Instrumented
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
@pytest.mark.costly
async def test_every_test_is_reported_with_its_place_whatever_plugins_run(tmp_path: Path, options: str) -> None:
    file = tmp_path / "project/tests/test_a.py"
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    how = Instrumented("pytest")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.split()]
    report = await reported(how, command, tmp_path / "project")
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


@pytest.mark.parametrize(("has_plain_asserts", "state"), [(False, "failed"), (True, "passed")])
async def test_plain_assertions_are_not_explained(tmp_path: Path, has_plain_asserts: bool, state: str) -> None:
    text = "def test_a():\n    try: assert 1 == 2\n    except AssertionError as error: assert not str(error)\n"
    (tmp_path / "test_t.py").write_text(text)
    how = Instrumented("pytest", has_plain_asserts=has_plain_asserts)
    report = await reported(how, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"], tmp_path)
    assert report is not None
    assert [*report.tests.values()] == [state]


@pytest.mark.parametrize(("given", "ran"), [("", "ca"), ("-k 'not test_c' --verbose", "a")])
async def test_processes_of_xdist_get_the_order_and_the_options_of_the_environment(
    tmp_path: Path, given: str, ran: str
) -> None:
    (tmp_path / "test_t.py").write_text(ORDERED)
    ids = [f"test_t.py::T::test_{name}" for name in ("a", "c")]
    how = Instrumented("pytest", only=frozenset(ids), is_reversed=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-n", "1"]
    variables = {**how.variables, "PYTEST_ADDOPTS": f"{how.variables['PYTEST_ADDOPTS']} {given}"}
    report = await reported(how, command, tmp_path, variables)
    assert report is not None
    assert (tmp_path / "seen").read_text() == ran
    assert report.finished


USES = """\
import statistics, unittest
import restores, REPLACING
from restores import used

class T(unittest.TestCase):
    def test_a(self): restores.used()
    def test_b(self): self.assertTrue(statistics.mean([1]))
"""
REPLACES = {
    "time.monotonic": "import time; time.monotonic = lambda real=time.monotonic: real() / 1000",
    "time.perf_counter": "import time; setattr(time, 'per' + 'f_counter', lambda: 0)",
    "builtins.divmod": "import builtins; vars(builtins)['divmod'] = lambda *each, real=divmod: real(*each)",
    "datetime.date": "import datetime\nclass date: pass\ndatetime.date = date",
    "json.encoder.JSONEncoder.default": "import json; json.JSONEncoder.default = lambda self, given: 0",
    "random.choice": "class A:\n    def f(self, *_): return 0\nimport random; random.choice = A().f",
    "math.isclose": "import math, functools\nmath.isclose = functools.partial(lambda *_: 1)",
    "math.hypot": "class A:\n    def __call__(self, *_): return 1\nimport math; math.hypot = A()",
    "textwrap.dedent": "import textwrap; textwrap.dedent.__code__ = (lambda text: text).__code__",
    "unittest.case.TestCase.assertAlmostEqual": (
        "import unittest; unittest.TestCase.assertAlmostEqual.__defaults__ = (0, None, 1)"
    ),
    "statistics.mean": "import statistics\nstatistics.mean = lambda given: 1",
}
"""What code of a project replaces, by its name. Each is a module."""
RESTORES = """
import atexit, time
real = time.time_ns
def used(): time.time_ns = lambda: 0
atexit.register(lambda: setattr(time, "time_ns", real))
"""
LEAVES = {
    "a new name": "import logging; logging.Logger.trace = lambda self, *given: None",
    "a class of loggers": "import logging\nclass Own(logging.Logger): pass\nlogging.setLoggerClass(Own)",
    "what is put back": "import time\nreal = time.time\ntime.time = lambda: 0\ntime.time = real",
    "a subclass": "import json\nclass Encoder(json.JSONEncoder):\n    def default(self, given): return 0",
    "a module of its own": "import restores\nrestores.used = lambda: 0",
    "a proxy": (
        "import sys, types\nclass Proxy:\n    def __getattribute__(self, name): raise RuntimeError\n"
        "    def __call__(self): pass\nlate = sys.modules['late'] = types.ModuleType('late'); late.proxy = Proxy()"
    ),
    "a function of tests": "import tests.fakes",
    "what Python offers for replacement": (
        "import sys, threading, warnings, logging, ssl\ndef hook(*_): pass\n"
        "sys.excepthook = sys.displayhook = sys.unraisablehook = sys.breakpointhook = threading.excepthook = hook\n"
        "warnings.showwarning = warnings.formatwarning = logging.Formatter.converter = hook\n"
        "ssl._create_default_https_context = hook; threading.setprofile(hook); threading.setprofile(None)"
    ),
    "a file elsewhere that imports from the project": (
        "import sys, tempfile\nwith tempfile.TemporaryDirectory() as folder:\n"
        "    with open(folder + '/elsewhere.py', 'w') as file: file.write('from restores import used')\n"
        "    sys.path.insert(0, folder); import elsewhere; sys.path.remove(folder)"
    ),
    "the code of a module without the project's functions": (
        "import colorsys, time\nclass Loader:\n    def get_code(self, name): time.monotonic = lambda: 0\n"
        "colorsys.__spec__.loader = Loader()"
    ),
    "what a library does": "import warnings\nwith warnings.catch_warnings(record=True): warnings.warn('')",
}


@pytest.mark.parametrize("runner", ["pytest", "CHECK"])
@pytest.mark.parametrize("cases", [REPLACES, LEAVES], ids=["replaces", "leaves"])
async def test_what_the_project_replaces_of_modules_that_are_not_its_own_is_named(
    tmp_path: Path, runner: str, cases: dict[str, str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/fakes.py").write_text("import time; time.monotonic = lambda: 0\n")
    (tmp_path / "restores.py").write_text(RESTORES if cases is REPLACES else "def used(): pass\n")
    for number, text in enumerate(cases.values()):
        (tmp_path / f"product{number}.py").write_text(f"{text}\n")
    names = [f"product{number}" for number in range(len(cases))]
    (tmp_path / "test_t.py").write_text(USES.replace("REPLACING", ", ".join(names)))
    how = Instrumented("python -m unittest" if runner == "CHECK" else "pytest")
    words = [f"{how.name}_unittest"] if runner == "CHECK" else ["pytest", "-q", "-p", "no:cacheprovider"]
    variables = {**how.variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    report = await reported(how, [sys.executable, "-m", *words], tmp_path, variables)
    assert report is not None
    assert {*report.tests.values()} == {"passed"}
    expected = {*cases, "time.time_ns"} if cases is REPLACES else set[str]()
    assert expected <= report.bent if expected else not report.bent
