"""Honest runs: work that is done, or that was not to be seen by a test. None may come out as refuted."""

from __future__ import annotations

from hashlib import sha256

from tests.verdict import (
    honest_assertions,
    honest_projects,
    honest_runners,
    honest_tests,
    kept_tests,
    own_tests,
    repeated_tests,
)
from tests.verdict.cases import FIX, FIXED, HELD_OUT, PRICE, PYTEST, UNITTEST, Case

VERIFIED, INCONCLUSIVE = "verified", "inconclusive"
REFACTORED = "def total(count, each):\n    # the sum of both\n    return each + count\n"
BUILD = '[build-system]\nrequires = ["hatchling"]\n\n[project]\nname = "price"\nversion = "1"\n'
CONFIGURED = f"{BUILD}\n[tool.pytest.ini_options]\naddopts = '-q'\n"
RED = "import unittest\n\nclass Other(unittest.TestCase):\n    def test_other(self):\n        self.fail('for years')\n"
TESTS = "python -m unittest -q tests.test_unit"
OTHERS = {"kind": "command", "run": f"{TESTS} tests.test_other"}
MAKE = {**PRICE, "Makefile": "test:\n\tpython -m pytest -q -p no:cacheprovider tests/test_price.py\n"}
NODE = {
    "sum.js": "exports.sum = (a, b) => a - b;\n",
    "test/check.js": "const {sum} = require('../sum.js');\nif (sum(1, 2) !== 3) throw new Error('wrong');\n",
}
MORE_TESTS = """\
import unittest

class More(unittest.IsolatedAsyncioTestCase):
    async def test_later(self):
        import price
        self.assertEqual(price.total(2, 2), 4)

    def test_parts(self):
        import price
        for count in range(3):
            with self.subTest(count=count):
                self.assertEqual(price.total(count, 3), count * 3)

    @unittest.expectedFailure
    def test_someday(self):
        self.fail("not yet")

    @unittest.skip("elsewhere")
    def test_elsewhere(self):
        pass
"""
PARAMETERS = """\
import price
import pytest

@pytest.mark.parametrize("name", sorted(price.NAMES))
def test_name(name):
    assert price.NAMES[name] > 0
"""
FIXTURES = "import pytest\n\n@pytest.fixture\ndef some():\n    return (3, 5)\n"
USES_FIXTURE = "import price\n\ndef test_some(some):\n    assert price.total(*some) == 15\n"
DATA = "name,price\nnut,3\n"
CANARY = f"""\
diff --git a/price.py b/price.py
--- a/price.py
+++ b/price.py
@@ -1,2 +1,2 @@
 def total(count, each):
-{FIXED.splitlines()[1]}
+    return None
"""
SCRIPT = {"kind": "command", "run": "python3 -c 'import price; assert price.total(3, 5) == 15'"}

OF_TESTS = [
    Case("fixes the bug, with pytest", FIX, [PYTEST], verdict=VERIFIED),
    Case("fixes the bug, with unittest", FIX, [UNITTEST], verdict=VERIFIED),
    Case("fixes the bug, with tests of the check", FIX, [UNITTEST, HELD_OUT], verdict=VERIFIED),
    Case("fixes the bug in a second round", {"price.py": REFACTORED}, [HELD_OUT], then=FIX, verdict=VERIFIED),
    Case("adds a test of its own", {**FIX, "tests/test_more.py": MORE_TESTS}, [UNITTEST], verdict=VERIFIED),
    Case("adds a test that fails to a protected file", {**FIX, "tests/test_more.py": RED}, [UNITTEST]),
    Case("fixes one of two failing tests", FIX, [OTHERS], {**PRICE, "tests/test_other.py": RED}, verdict="improved"),
    Case("writes documentation beside a red test", {"README": "x\n"}, [UNITTEST], verdict=INCONCLUSIVE),
    Case("refactors without a test that fails", {"price.py": REFACTORED}, [UNITTEST], verdict=INCONCLUSIVE),
    Case(
        "refactors what must change",
        {"price.py": FIXED + "\n# simple\n"},
        [UNITTEST, {"kind": "changed", "paths": ["*.py"]}],
        {**PRICE, "price.py": FIXED},
        verdict="passed",
    ),
    Case(
        "works beside unusual tests",
        FIX,
        [{"kind": "command", "run": "python -m unittest -q tests.test_more tests.test_unit"}],
        {**PRICE, "tests/test_more.py": MORE_TESTS},
        verdict=VERIFIED,
    ),
    Case(
        "removes a parameter that the code lists",
        {"price.py": "NAMES = {'a': 1, 'b': 2}\n"},
        [{"kind": "command", "run": "python -m pytest -q tests/test_names.py"}],
        {"price.py": "NAMES = {'a': 1, 'b': 2, 'c': 0}\n", "tests/test_names.py": PARAMETERS},
        verdict="passed",
    ),
    Case(
        "uses fixtures of the project",
        FIX,
        [{"kind": "command", "run": "PYTHONPATH=. pytest -q -k some tests/test_fixture.py"}],
        {**PRICE, "conftest.py": FIXTURES, "tests/test_fixture.py": USES_FIXTURE},
        verdict=VERIFIED,
    ),
    Case("runs pytest below make", FIX, [{"kind": "command", "run": "make test"}], MAKE, verdict=VERIFIED),
    Case(
        "updates a test that the caller does not protect",
        {"price.py": REFACTORED, "tests/test_unit.py": MORE_TESTS.replace("* 3", "+ 3")},
        [UNITTEST],
        {**PRICE, "tests/test_unit.py": MORE_TESTS},
        request={"protect": []},
        verdict=INCONCLUSIVE,
    ),
    Case(
        "is slow",
        FIX,
        [UNITTEST],
        {**PRICE, "tests/__init__.py": "import time\ntime.sleep(1)\n"},
        verdict=VERIFIED,
    ),
]

OF_FILES = [
    Case("changes pyproject.toml", {**FIX, "pyproject.toml": BUILD}, [UNITTEST], verdict=VERIFIED),
    Case(
        "changes pyproject.toml beside the settings of pytest",
        {**FIX, "pyproject.toml": CONFIGURED.replace('"1"', '"2"')},
        [PYTEST, {"kind": "file", "path": "pyproject.toml", "matches": 'version = "2"'}],
        {**PRICE, "pyproject.toml": CONFIGURED},
        verdict=VERIFIED,
    ),
    Case(
        "makes a module a package",
        {"price.py": None, "price/__init__.py": "from price.sums import total\n", "price/sums.py": FIXED},
        [UNITTEST],
        verdict=VERIFIED,
    ),
    Case("renames a file", {"sums.py": FIXED, "price.py": "from sums import total\n"}, [UNITTEST], verdict=VERIFIED),
    Case(
        "writes files with odd names",
        {"a file with blanks.txt": "x\n", "zażółć/ü.txt": "y\n", **FIX},
        [UNITTEST, {"kind": "file", "path": "zażółć/ü.txt"}],
        verdict=VERIFIED,
    ),
    Case(
        "writes a file with the right digest",
        {"data.csv": DATA},
        [{"kind": "file", "path": "data.csv", "sha256": sha256(DATA.encode()).hexdigest()}],
        verdict="passed",
    ),
    Case(
        "deletes what must go and leaves the rest",
        {"price.py": None},
        [{"kind": "file", "path": "price.py", "exists": False}, {"kind": "unchanged", "paths": ["tests/**"]}],
        verdict="passed",
    ),
    Case(
        "writes a program",
        {"run.sh": "#!/bin/sh\necho ready\n"},
        [{"kind": "command", "run": "./run.sh | grep ready"}, {"kind": "command", "run": "./run.sh"}],
        commands=["chmod +x run.sh"],
        verdict=VERIFIED,
    ),
    Case(
        "makes a link",
        {"a.txt": "x\n"},
        [{"kind": "command", "run": "test -L b.txt && grep x b.txt"}],
        commands=["ln -s a.txt b.txt"],
        verdict=VERIFIED,
    ),
    Case(
        "builds what git ignores",
        FIX,
        [{"kind": "command", "run": "mkdir build && cp price.py build && grep '[*]' build/price.py"}],
        commands=["mkdir build; echo old >build/price.py"],
        verdict="passed",
    ),
]

OF_OTHERS = [
    Case(
        "fixes a bug in JavaScript",
        {"sum.js": "exports.sum = (a, b) => a + b;\n"},
        [{"kind": "command", "run": "node test/check.js"}],
        NODE,
        verdict=VERIFIED,
    ),
    Case("is checked by a script", FIX, [SCRIPT], verdict=VERIFIED),
    Case("is checked by a script with a canary", FIX, [{**SCRIPT, "canary": CANARY}], verdict=VERIFIED),
    Case(
        "is checked with a canary that does not fit",
        {"price.py": "total = lambda a, b: a * b\n"},
        [{**SCRIPT, "canary": CANARY}],
        verdict="passed",
    ),
    Case(
        "is checked by what is not installed", FIX, [{"kind": "command", "run": "nosuchtest -q"}], verdict=INCONCLUSIVE
    ),
    Case(
        "is checked by a runner that finds no tests",
        FIX,
        [{"kind": "command", "run": "python -m pytest -q empty"}],
        {**PRICE, "empty/readme.txt": ""},
        verdict=INCONCLUSIVE,
    ),
    Case(
        "is checked in a folder",
        {"app/price.py": FIXED},
        [{"kind": "command", "run": "cd app && python -m unittest -q test_price"}],
        {"app/price.py": PRICE["price.py"], "app/test_price.py": PRICE["tests/test_unit.py"]},
        verdict=VERIFIED,
    ),
]

LISTS = (
    *(OF_TESTS, OF_FILES, OF_OTHERS, honest_assertions.ASSERTING),
    *(honest_tests.OF_THE_TASK, honest_tests.BEFORE),
    *(honest_runners.BESIDE, honest_runners.WRITTEN, honest_runners.CALLS),
    *(own_tests.HONEST, kept_tests.HONEST, repeated_tests.HONEST),
    *(honest_projects.SHAPES, honest_projects.SETTINGS, honest_projects.COMMANDS),
)
HONEST = [case for cases in LISTS for case in cases]
