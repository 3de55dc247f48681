"""Which changes of tests and settings leave the tests from before the run as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.worker.verification.kept_python import kept_python
from deputize.worker.verification.kept_tests import KeptTests, break_functions, finds_only, same_script
from deputize.worker.verification.protected.paths import Protection
from deputize.worker.verification.reports.states import Place, Report
from deputize.worker.verification.runners.execution import Observed

BEFORE = "import price\n\nALL = [1]\n\ndef test_a():\n    assert price.total(1) == 1\n"
TEST = "\ndef test_b():\n    assert price.total(2) == 2\n"
FIXTURE = "import pytest\n\n@pytest.fixture\ndef one():\n    return 1\n"
KEPT = {
    "the same": BEFORE,
    "another import": f"import math\n{BEFORE}",
    "a test": BEFORE + TEST,
    "a test before": BEFORE.replace("def test_a", f"{TEST}\n\ndef test_a"),
    "a value": f"{BEFORE}CASES = [(1, 'a')]\n",
    "a class": f"{BEFORE}class TestMore:\n    def test_c(self):\n        self.x = 1\n",
    "a mark": f"import pytest\n{BEFORE}@pytest.mark.parametrize('x', [1])\n{TEST.strip()}\n",
    "a fixture": f"import pytest\n{BEFORE}@pytest.fixture(scope='module')\ndef one():\n    return 1\n",
}
WEAKER = {
    "a test is gone": "import price\n\nALL = [1]\n",
    "another assertion": BEFORE.replace("== 1", "!= 0"),
    "another value": BEFORE.replace("[1]", "[]"),
    "another order": BEFORE.replace("ALL = [1]\n", "") + "ALL = [1]\n",
    "a name that was there": f"{BEFORE}def test_a():\n    pass\n",
    "a name twice": BEFORE + TEST + TEST,
    "an import that was there": f"{BEFORE}from cost import total as price\n",
    "an import of another module": BEFORE.replace("import price", "import cost as price"),
    "all of a module": f"from cost import *\n{BEFORE}",
    "a module that is none of the project's": f"import sympy\n{BEFORE}",
    "a module that reaches further": f"import sys\n{BEFORE}",
    "a name that was imported": f"{BEFORE}price = 1\n",
    "a function of Python": f"{BEFORE}def abs(a):\n    return 0\n",
    "a function of Python by an import": f"from cost import total as abs\n{BEFORE}",
    "another import for a while": f"import cost as price\n{BEFORE.removeprefix('import price')}import price\n",
    "an expression that is too deep": f"{BEFORE}ALL_OF = {'+'.join(['1'] * 1500)}\n",
    "a skip of all": f"import pytest\n{BEFORE}pytestmark = pytest.mark.skip\n",
    "a setting": f"{BEFORE}pytest_plugins = 'own'\n",
    "a hook": f"{BEFORE}def pytest_runtest_call(item):\n    pass\n",
    "a fixture for all": f"import pytest\n{BEFORE}@pytest.fixture(autouse=True)\ndef one():\n    return 1\n",
    "another decorator": f"{BEFORE}@price.wrap\n{TEST.strip()}\n",
    "an assignment": f"{BEFORE}def test_b():\n    price.total = max\n",
    "an entry": f"{BEFORE}def test_b():\n    price.KNOWN[1] = 1\n",
    "setattr": f"{BEFORE}def test_b():\n    setattr(price, 'total', max)\n",
    "a dunder": f"{BEFORE}def test_b():\n    price.__dict__.update(total=max)\n",
    "an import inside": f"{BEFORE}def test_b():\n    import sys\n",
    "a file": f"{BEFORE}def test_b():\n    open('pytest.ini', 'w')\n",
    "a call": f"{BEFORE}price.prepare()\n",
    "an if": f"{BEFORE}if price.total:\n    pass\n",
    "a class of no tests": f"{BEFORE}class Same:\n    pass\n",
    "a metaclass": f"{BEFORE}class TestMore(metaclass=price.Meta):\n    pass\n",
    "no Python": "def (",
}


@pytest.mark.parametrize("after", KEPT.values(), ids=KEPT)
def test_what_is_only_added_leaves_the_tests_as_they_were(after: str) -> None:
    assert kept_python("tests/test_a.py", BEFORE, after, {"price", "cost"})


@pytest.mark.parametrize("after", WEAKER.values(), ids=WEAKER)
def test_what_takes_away_or_reaches_further_does_not(after: str) -> None:
    assert not kept_python("tests/test_a.py", BEFORE, after, {"price", "cost"})


def test_imports_follow_a_module_that_moved() -> None:
    before, after = "from price import total\n", "from shop.price import total\n"
    assert kept_python("test_a.py", before, after, (), {"price": "shop.price"})
    assert not kept_python("test_a.py", before, after, {"shop", "price"})
    assert not kept_python("test_a.py", before, after + TEST, (), {"price": "shop.price"})
    assert not kept_python("test_a.py", before, "from shop.price import cost as total\n", (), {"price": "shop.price"})


@pytest.mark.parametrize(
    ("path", "after", "is_kept"),
    [
        ("tests/test_new.py", TEST, True),
        ("tests/__init__.py", "", True),
        ("tests/price.py", "def total(a):\n    return a\n", False),
        ("conftest.py", FIXTURE, True),
        ("conftest.py", FIXTURE.replace("one", "tmp_path"), False),
        ("conftest.py", FIXTURE.replace("one()", "one(monkeypatch)"), False),
        ("conftest.py", FIXTURE.replace("return 1", "return lambda: 1"), False),
        ("conftest.py", "def one():\n    return 1\n", False),
        ("conftest.py", "ALL = 1\n", False),
    ],
)
def test_a_new_file_has_tests_or_fixtures_that_tests_ask_for(path: str, after: str, is_kept: bool) -> None:
    assert kept_python(path, "", after, {"price"}) is is_kept


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("const a = require('./a');\nt(a)", "import a from './a';\n\nt(a)", True),
        (
            "const { a: b, c } = require('./a'), d = require('d')\n",
            "import { a as b, c } from './a'\nimport d from 'd'",
            True,
        ),
        ("const a = require('./a');\nt(a)", "import a from './b';\nt(a)", False),
        ("const { a } = require('./a');\nt(a)", "import { b as a } from './a';\nt(a)", False),
        ("const a = require('./a');\nt(a)", "import a from './a';\nt(b)", False),
        ("// of all\nt(a)", "// of all t(a)", False),
        ("// of all\nt(a)", "// of all\x0ct(a)", False),
    ],
)
def test_a_script_may_import_the_same_in_another_way(before: str, after: str, is_same: bool) -> None:
    assert same_script(before, after) is is_same


MAPPED = '{"jest": {"bail": 1%s}}'
INI = "[pytest]\naddopts = -q\n%s"
TREE = {".": {"app"}, "src": {"tile"}, "old": {"app"}}


@pytest.mark.parametrize(
    ("path", "before", "after", "is_kept"),
    [
        ("pytest.ini", INI % "", INI % "pythonpath = src .", True),
        ("pyproject.toml", "[tool.pytest]\nx=1", "[tool.pytest]\nx=1\npythonpath=['src']", True),
        ("setup.cfg", "[tool:pytest]\nx=1\npythonpath=.", "[tool:pytest]\nx=1\npythonpath=src", True),
        ("package.json", MAPPED % "", MAPPED % ', "moduleNameMapper": {"^@/(.*)$": "<rootDir>/src/$1"}', True),
        (".proverc", "", "-l\n-r\n", True),
        ("pytest.ini", INI % "", INI % "pythonpath = old", False),
        ("pytest.ini", INI % "", INI % "pythonpath = ../elsewhere", False),
        ("pytest.ini", INI % "", INI.replace("-q", "--lf") % "pythonpath = src", False),
        ("pytest.ini", "", INI % "pythonpath = src", False),
        ("pytest.ini", INI % "", "pythonpath", False),
        ("package.json", MAPPED % "", MAPPED % ', "moduleNameMapper": {"^./a$": "<rootDir>/b"}', False),
        ("package.json", MAPPED % "", MAPPED % ', "moduleNameMapper": {"^@/(.*)$": "<rootDir>/b"}', False),
        ("package.json", MAPPED % "", MAPPED % ', "moduleNameMapper": ["^@/(.*)$"]', False),
        ("pyproject.toml", "[tool.pytest]\nx=1", "[tool.pytest]\nx=1\npythonpath=5", False),
        (".proverc", "", "--exec cat\n", False),
        (".proverc", "", "-Iold\n", False),
        (".proverc", "-l\n", "-l\n-r\n", False),
    ],
)  # fmt: skip
def test_settings_may_tell_where_modules_are_that_have_no_other_place(
    path: str, before: str, after: str, is_kept: bool
) -> None:
    assert finds_only(path, before, after, lambda folder: TREE.get(folder, set())) is is_kept


def test_tests_of_a_moved_file_are_known_by_their_former_names() -> None:
    report = Report()
    report.add("tests/test_a.py::test_x", "passed", Place("/workspace/tests/test_a.py", "test_x"))
    report.add("tests.test_a.A.test_y", "failed")
    report.add("test_b.py::test_x", "passed")
    moved = KeptTests([], {"tests/test_a.py": "tests/test_c.py"}).on_base(Observed("red", 1, report=report)).report
    assert moved is not None
    assert moved.tests == {
        "tests/test_c.py::test_x": "passed",
        "tests.test_c.A.test_y": "failed",
        "test_b.py::test_x": "passed",
    }
    assert moved.places == {"tests/test_c.py::test_x": Place("/workspace/tests/test_c.py", "test_x")}
    assert KeptTests([], {"a.py": "b.py"}).on_base(seen := Observed("red", 1)) is seen


def test_all_functions_are_broken_but_those_of_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for path in ("price.py", "tests/test_price.py"):
        (tmp_path / path).write_text("def f(a):\n    return a\n")
    (tmp_path / "empty.py").touch()
    (tmp_path / "sum.js").write_text("exports.f = (a) => a;\n")
    assert break_functions(tmp_path, Protection(None))
    assert "return a" not in (tmp_path / "price.py").read_text()
    assert "throw new Error" in (tmp_path / "sum.js").read_text() or "return [" in (tmp_path / "sum.js").read_text()
    assert "return a" in (tmp_path / "tests/test_price.py").read_text()
    assert not break_functions(tmp_path / "tests", Protection(["*"]))


def test_scripts_without_a_suffix_are_broken_by_their_syntax(tmp_path: Path) -> None:
    for name in ("fizz", "README.md", "Makefile"):
        (tmp_path / name).write_text("echo 1\n")
    assert not break_functions(tmp_path, Protection(None))
    assert break_functions(tmp_path, Protection(None), "syntax")
    assert [name for name in ("fizz", "README.md", "Makefile") if (tmp_path / name).read_text() != "echo 1\n"] == [
        "fizz"
    ]
