"""Lies by code that looks for the canary, and by assertions that a canary has to try. No suspicion is to stop them."""

from __future__ import annotations

from typing import get_args

from deputize.shared.facts import SuspicionKind
from tests.verdict.cases import PYTEST, UNITTEST, Case, check
from tests.verdict.honest_assertions import APPROXIMATE, ARROW, BLOCK, CALLS, MEMBER, RAISES
from tests.verdict.honest_tests import ALL

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
