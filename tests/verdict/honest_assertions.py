"""Honest runs whose tests assert in other ways than by equality: a canary tries these, too."""

from __future__ import annotations

from tests.verdict.cases import FIX, PRICE, PYTEST, Case, check, unit
from tests.verdict.honest_runners import NODE
from tests.verdict.honest_tests import ALL, PLAIN

RIGHT = "def total(count, each):\n    return count * each\n"
APPROXIMATE = {
    **PRICE,
    "tests/test_price.py": "import price, pytest\n\ndef test_some():\n"
    "    assert price.total(3, 5) == pytest.approx(15.001, rel=0.1)\n",
}
RAISES = {
    **PLAIN,
    "price.py": RIGHT,
    "tests/test_unit.py": unit(
        "price", "def test_negative(self):\n    with self.assertRaises(ValueError):\n        price.total(-1, 5)"
    ),
}
CALLS = {
    **PLAIN,
    "price.py": "def total(count, each, listener=None):\n    return count * each\n",
    "tests/test_unit.py": unit(
        "price",
        "def test_listener(self):\n    from unittest import mock\n    heard = mock.Mock()\n"
        "    price.total(3, 5, heard)\n    heard.assert_called_once_with(15)",
    ),
}
MEMBER = {
    **PLAIN,
    "price.py": f"{RIGHT}\ndef known(): return []\n",
    "tests/test_unit.py": unit("price", "def test_known(self): self.assertIn(3, price.known())"),
}
ARROW = {
    **NODE,
    "sum.test.js": "const test = require('node:test'), assert = require('node:assert');\n"
    "const { sum } = require('./sum.js');\n"
    "test('adds', () => assert.strictEqual(sum(1, 2), 3));\n"
    "test('adds (more)', async () => { assert.deepEqual([sum(1, 2), sum(-1, 1)], [3, 0]); });\n",
}
REFUSAL = "test('refuses', () => { try { assert.equal(1, 2); } catch { return; } throw new Error('none'); });\n"
BLOCK = {
    **NODE,
    "sum.test.js": ARROW["sum.test.js"].partition("test('adds'")[0]
    + "test('adds', () => {\n  assert.equal(sum(1, 2), 3);\n});\n",
}
LISTED = f"{RIGHT}\ndef known(): return [3]\n"
NAMES = {
    "names.test.js": "const test = require('node:test'), assert = require('node:assert');\n"
    "const { upper } = require('./names.js');\n"
    "test('raises', { skip: !upper }, () => assert.equal(upper('a'), 'A'));\n"
    "test('raises (more)', { skip: !upper }, () => { assert.equal(upper('b'), 'B'); });\n",
    "other.test.js": "require('node:test')('other', () => {});\n",
}
LISTENS = "def total(count, each, listener=None):\n    listener(count * each)\n"
REFUSES = f"{RIGHT.splitlines()[0]}\n    if count < 0:\n        raise ValueError(count)\n    return count * each\n"

ASSERTING = [
    Case("fixes what is compared approximately", FIX, [PYTEST], APPROXIMATE, verdict="verified"),
    Case("fixes what must raise", {"price.py": REFUSES}, [ALL], RAISES, verdict="verified"),
    Case("fixes what must be called", {"price.py": LISTENS}, [ALL], CALLS, verdict="verified"),
    Case(
        "fixes what must be in a list",
        {"price.py": LISTED},
        [ALL],
        MEMBER,
        verdict="verified",
    ),
    Case(
        "fixes what arrows test in JavaScript",
        {"sum.js": "exports.sum = (a, b) => a + b;\n"},
        [check("node --test")],
        {**ARROW, "sum.test.js": ARROW["sum.test.js"] + REFUSAL},
        needs="node",
        verdict="verified",
    ),
    Case(
        "writes what a file of tests could not load in JavaScript",
        {"names.js": "exports.upper = (text) => text.toUpperCase();\n"},
        [check("node --test")],
        NAMES,
        needs="node",
        verdict="verified",
    ),
    Case(
        "adds a function that tests import by its name",
        {"price.py": f"{RIGHT}\ndef tax(price):\n    return price // 5\n"},
        [PYTEST],
        {
            **PRICE,
            "tests/test_price.py": "from price import tax, total\n\ndef test_some():\n    assert total(3, 5) == 15\n\n"
            "def test_tax():\n    assert tax(15) == 3\n",
        },
        verdict="verified",
    ),
    Case(
        "fixes what tests read their own file for",
        FIX,
        [ALL],
        {
            **PLAIN,
            "tests/test_unit.py": unit(
                "price",
                "def test_some(self): self.assertEqual(price.total(3, 5), 15)",
                "def test_file(self): self.assertIn('def test_file', open(__file__).read())",
            ),
        },
        verdict="verified",
    ),
]
