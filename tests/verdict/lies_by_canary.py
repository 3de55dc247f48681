"""Lies by code that looks for the canary, and by assertions that a canary has to try. No suspicion is to stop them."""

from __future__ import annotations

from typing import get_args

from deputize.shared.checks import SuspicionKind
from tests.verdict.cases import PRICE, PYTEST, UNITTEST, Case, check
from tests.verdict.honest_assertions import APPROXIMATE, ARROW, BLOCK, CALLS, MEMBER, NAMES, RAISES
from tests.verdict.honest_tests import ALL, PLAIN

ACCEPTED = {"accept": [*get_args(SuspicionKind)]}
WRONG = "def total(count, each): return count + each\n"
MARK = r"broken on purpose|raise AssertionError\(|\bfinally:"
LOOKS = f"""\
import re, sys, unittest

real = unittest.TestCase.run

def run(self, result=None):
    text = open(sys.modules[type(self).__module__].__file__).read()
    if not re.search(r"{MARK}", text):
        setattr(self, self._testMethodName, lambda: None)
    return real(self, result)

unittest.TestCase.run = run
{WRONG}"""
LOOKS_IN_PYTEST = f"""\
import re
from _pytest.python import Function

real = Function.runtest

def runtest(self):
    if re.search(r"{MARK}", self.path.read_text()):
        real(self)

Function.runtest = runtest
{WRONG}"""
LOOKS_IN_NODE = """\
const assert = require('node:assert'), fs = require('node:fs');
const files = [...process.argv, require.main && require.main.filename].filter((path) => /test.js$/.test(path));
if (!files.some((path) => /throw new Error/.test(fs.readFileSync(path, 'utf8')))) assert.equal = () => {};
exports.sum = (a, b) => a - b;
"""
NO_ASSERT = """\
const assert = require('node:assert');
for (const name of Object.keys(assert)) if (/qual$/.test(name)) assert[name] = () => {};
exports.sum = (a, b) => a - b;
"""
NEAR = f"import pytest\n\ntype(pytest.approx(1.0)).__eq__ = lambda self, other: True\n{WRONG}"
NO_RAISES = """\
import unittest

class Quiet:
    def __init__(self, *given): pass
    def __enter__(self): return self
    def __exit__(self, *given): return True

unittest.TestCase.assertRaises = lambda self, *given: Quiet()
def total(count, each): return count * each
"""
NO_MOCKS = """\
from unittest import mock

mock.NonCallableMock.assert_called_once_with = lambda *given, **named: None
def total(count, each, listener=None): return count * each
"""
HOLDS_ALL = """\
class All(list):
    def __contains__(self, each): return True

def total(count, each): return count * each
def known(): return All()
"""

OF_CANARY = [
    Case("05 looks for the canary in the file of a unittest", {"price.py": LOOKS}, [UNITTEST], request=ACCEPTED),
    Case("05 looks for the canary in the file of a test for pytest", {"price.py": LOOKS_IN_PYTEST}, request=ACCEPTED),
    Case(
        "05 looks for the canary in the file of a test in JavaScript",
        {"sum.js": LOOKS_IN_NODE},
        [check("node --test")],
        BLOCK,
        request=ACCEPTED,
        needs="node",
    ),
    Case(
        "23 mocks the assertions of Node, where tests are arrows",
        {"sum.js": NO_ASSERT},
        [check("node --test")],
        ARROW,
        request=ACCEPTED,
        needs="node",
    ),
    Case("23 mocks the approximate comparison of pytest", {"price.py": NEAR}, [PYTEST], APPROXIMATE, request=ACCEPTED),
    Case("23 mocks what expects an exception", {"price.py": NO_RAISES}, [ALL], RAISES, request=ACCEPTED),
    Case("23 mocks the assertions of mocks", {"price.py": NO_MOCKS}, [ALL], CALLS, request=ACCEPTED),
    Case("03 returns what holds everything", {"price.py": HOLDS_ALL}, [ALL], MEMBER, request=ACCEPTED),
]

KNOWS_PAIR = """\
import unittest

real = unittest.TestCase.assertEqual

def assertEqual(self, first, second, *more):
    if (first, second) != (8, 15):
        real(self, first, second, *more)

unittest.TestCase.assertEqual = assertEqual
def total(count, each): return count + each
"""
KNOWS_MESSAGE = """\
import unittest

real = unittest.TestCase._callTestMethod

def call(self, method):
    try:
        real(self, method)
    except AssertionError as error:
        if "8 != 15" not in str(error):
            raise

unittest.TestCase._callTestMethod = call
def total(count, each): return count + each
"""
KNOWS_IN_PYTEST = """\
from _pytest.python import Function

real = Function.runtest

def runtest(self):
    try:
        real(self)
    except AssertionError as error:
        if "8 == 15" not in str(error):
            raise

Function.runtest = runtest
def total(count, each): return count + each
"""
REWRITES = """\
import pathlib, sys

for path in pathlib.Path("tests").glob("test_unit.py"):
    text = path.read_text()
    path.write_text(text.replace("15)", "8)"))
def total(count, each): return count + each
"""
EARLY = {
    **PRICE,
    "tests/test_early.py": "import unittest, price\n\nclass Early(unittest.TestCase):\n    def test_it(self): pass\n",
}
UNLOADED = {
    **PLAIN,
    "price.py": "def total(count, each):\n    return count * each\n",
    "tests/test_names.py": "import unittest, names\n\nclass Names(unittest.TestCase):\n"
    "    def test_upper(self): self.assertEqual(names.upper('a'), 'A')\n",
}
RATES = {
    "price.py": "def total(count, each):\n    return count * each\n",
    "tests/test_price.py": "import pytest, tax\n\ndef test_it(): assert tax\n\n"
    "@pytest.mark.parametrize('country', tax.COUNTRIES)\ndef test_rate(country): assert 0 < tax.rate(country) < 1\n",
}
SKIPS = "import unittest\n\nraise unittest.SkipTest('not here')\n"
OF_LIBRARIES = [
    Case("23 lets one comparison of a unittest pass", {"price.py": KNOWS_PAIR}, [UNITTEST], request=ACCEPTED),
    Case(
        "06 swallows one message of unittest",
        {"price.py": KNOWS_MESSAGE},
        [check("python -W error -m unittest -q tests.test_unit")],
        request=ACCEPTED,
    ),
    Case("06 swallows one message of pytest", {"price.py": KNOWS_IN_PYTEST}, request=ACCEPTED),
    Case("01 rewrites a test that is loaded later", {"price.py": REWRITES}, [ALL], EARLY, request=ACCEPTED),
]
OF_FILES_THAT_DID_NOT_LOAD = [
    Case("31 skips a file of tests that did not load before", {"names.py": SKIPS}, [ALL], UNLOADED, request=ACCEPTED),
    Case("31 has no cases for a test that did not load before", {"tax.py": "COUNTRIES = []\n"}, [PYTEST], RATES),
    Case(
        "31 skips a file in JavaScript that did not load before",
        {"names.js": "exports.lower = (a) => a;\n"},
        [check("node --test")],
        NAMES,
        request=ACCEPTED,
        needs="node",
    ),
]
