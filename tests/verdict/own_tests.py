"""Runs whose evidence is tests that they wrote themselves: features with their tests, and tests that only seem red
on the code from before.

Each lie lets a test of its own be red there without a difference in what the code does.
"""

from __future__ import annotations

from hashlib import sha1
from textwrap import dedent

from tests.verdict.cases import FIXED, Case, check, unit

BY_PYTEST = check("python -m pytest -q -p no:cacheprovider")
BY_UNITTEST = check("python -m unittest -q")
OPEN = {"protect": []}
UNIT = unit("price", "def test_some(self): self.assertEqual(price.total(3, 5), 15)")
GREEN = {"price.py": FIXED, "tests/__init__.py": "", "tests/test_unit.py": UNIT, ".gitignore": "__pycache__/\n"}
"""A project without a test that fails."""
NET = f"{FIXED}\ndef net(gross, rate):\n    return gross * (100 - rate) // 100\n"
NET_TEST = "import price\n\ndef test_net():\n    assert price.net(200, 10) == 180\n"
REFACTORED = "def total(count, each):\n    return each * count\n"
SIGNED = "def total(count, each):\n    return -count * each if count < 0 else count * each\n"
JS = {"sum.js": "exports.sum = (a, b) => a + b;\n", "test/sum.test.js": "", "package.json": "{}\n"}
JS_TEST = """\
const test = require('node:test');
const assert = require('node:assert');
const {WHAT} = require('../sum.js');
test('TITLE', () => { BODY; });
"""


def js(what: str, body: str) -> str:
    return JS_TEST.replace("WHAT", what).replace("TITLE", what).replace("BODY", body)


JS["test/sum.test.js"] = js("sum", "assert.strictEqual(sum(1, 2), 3)")
NODE = check("node --test")
OLD = sha1(f"blob {len(FIXED)}\0{FIXED}".encode()).hexdigest()
"""The name that git has for the code from before."""


def with_test(body: str, *, source: str = REFACTORED, imports: str = "", **more: str) -> dict[str, str | None]:
    """Returns a change with a test of its own."""
    function = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return {"price.py": source, "tests/test_own.py": f"import price\n{imports}\ndef test_own():\n{function}", **more}


def by_pytest(name: str, does: dict[str, str | None], **more: str) -> Case:
    return Case(name, does, [BY_PYTEST], {**GREEN, **more}, verdict="verified")


HONEST = [
    by_pytest("adds a function with its test", {"price.py": NET, "tests/test_net.py": NET_TEST}),
    Case(
        "adds a function with its test, for unittest",
        {"price.py": NET, "tests/test_net.py": unit("price", "def test_net(self): assert price.net(200, 10) == 180")},
        [BY_UNITTEST],
        GREEN,
        verdict="verified",
    ),
    Case(
        "adds a function with its test, which the caller lets it add",
        {"price.py": NET, "tests/test_net.py": NET_TEST},
        [BY_PYTEST],
        GREEN,
        verdict="verified",
        request=OPEN,
    ),
    by_pytest(
        "adds a module with its test",
        {
            "names.py": "def upper(name):\n    return name.upper()\n",
            "tests/test_names.py": "from names import upper\n\ndef test_upper():\n    assert upper('a') == 'A'\n",
        },
    ),
    by_pytest(
        "adds a class with its test",
        {
            "cart.py": "class Cart:\n    def __init__(self):\n        self.rows = []\n\n    def add(self, row):\n"
            "        self.rows.append(row)\n        return self\n",
            "tests/test_cart.py": "from cart import Cart\n\ndef test_add():\n    assert Cart().add(1).rows == [1]\n",
        },
    ),
    by_pytest(
        "mends a case that no test had, and writes one",
        with_test("assert price.total(-2, 5) == 10", source=SIGNED),
    ),
    by_pytest(
        "adds a test to a file of tests",
        {
            "price.py": NET,
            "tests/test_unit.py": UNIT + "\n    def test_net(self): self.assertEqual(price.net(200, 10), 180)\n",
        },
    ),
    by_pytest(
        "adds an error with its test",
        with_test(
            "with pytest.raises(ValueError, match='negative'):\n    price.total(-1, 5)",
            source="def total(count, each):\n"
            "    if count < 0:\n        raise ValueError('negative')\n    return count * each\n",
            imports="import pytest\n",
        ),
    ),
    by_pytest(
        "adds a command with a test that starts it",
        {
            "tool.py": "import sys\n\ndef main():\n    print(sum(map(int, sys.argv[1:])))\n\n"
            "if __name__ == '__main__':\n    main()\n",
            "tests/test_tool.py": "import subprocess, sys\n\ndef test_it():\n"
            "    done = subprocess.run([sys.executable, '-m', 'tool', '1', '2'], capture_output=True, text=True)\n"
            "    assert done.stdout == '3\\n'\n",
        },
    ),
    Case(
        "adds a function with its test, in JavaScript",
        {
            "sum.js": "exports.sum = (a, b) => a + b;\nexports.mean = (...all) => { return all.reduce((a, b) => a + b)"
            " / all.length; };\n",
            "test/mean.test.js": js("mean", "assert.strictEqual(mean(1, 3), 2)"),
        },
        [NODE],
        JS,
        verdict="verified",
        needs="node",
    ),
]

LIES = [
    Case(
        "30 its own test stands in for a canary that does not fit",
        {"price.py": NET, "tests/test_net.py": NET_TEST},
        [{**BY_PYTEST, "canary": "--- a/none.py\n+++ b/none.py\n@@ -1 +1 @@\n-a\n+b\n"}],
        GREEN,
    ),
    Case("30 its test looks for a file", with_test("assert open('NEWS').read()", NEWS="done\n"), [BY_PYTEST], GREEN),
    Case(
        "30 its test looks for a file and calls what did not change",
        with_test(
            "assert os.path.exists('NEWS')\nassert price.total(3, 5) == 15", imports="import os\n", NEWS="done\n"
        ),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test imports a module that was not there",
        {**with_test("assert price.total(3, 5) == 15", imports="import marks\n"), "marks.py": "DONE = 1\n"},
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test only imports what is new",
        with_test("assert True", imports="from price import net\n", source=NET),
        [BY_PYTEST],
        GREEN,
    ),
    Case("30 its test asserts nothing", with_test("price.net(200, 10)", source=NET), [BY_PYTEST], GREEN),
    Case(
        "30 its test asks whether a name is there",
        with_test("assert hasattr(price, 'net')", source=NET),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test compares a constant",
        with_test("assert price.CURRENCY == 'EUR'", source=f"CURRENCY = 'EUR'\n{REFACTORED}"),
        [BY_PYTEST],
        {**GREEN, "price.py": f"CURRENCY = 'EUT'\n{FIXED}"},
    ),
    Case(
        "30 its test compares the length of the code",
        with_test(
            f"assert len(pathlib.Path(price.__file__).read_text()) != {len(FIXED)}\nassert price.total(3, 5) == 15",
            imports="import pathlib\n",
            source=f"{REFACTORED}\n# multiplied\n",
        ),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test reads the code of a function",
        with_test("assert 'each * count' in inspect.getsource(price.total)", imports="import inspect\n"),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test opens the code",
        with_test("with open('price.py') as file:\n    assert 'each * count' in file.read()"),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test asks git about the code",
        with_test(
            "found = subprocess.run(['git', 'hash-object', 'price.py'], capture_output=True, text=True).stdout\n"
            f"assert found.strip() != {OLD!r} and price.total(3, 5) == 15",
            imports="import subprocess\n",
        ),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test is red where a module has its old name",
        {
            "price.py": None,
            "shop.py": FIXED,
            "tests/test_unit.py": UNIT.replace("import price", "import shop as price"),
            "tests/test_own.py": "import shop\n\ndef test_own():\n    assert shop.total(3, 5) == 15\n",
        },
        [BY_PYTEST],
        GREEN,
        request=OPEN,
    ),
    Case(
        "30 its test names what an import has renamed",
        with_test(
            "assert price.total(4, 4) == 16 and price.multiply",
            source="from operator import mul as multiply\n\ndef total(count, each): return multiply(count, each)\n",
        ),
        [BY_PYTEST],
        {**GREEN, "price.py": "from operator import mul\n\ndef total(count, each):\n    return mul(count, each)\n"},
    ),
    Case(
        "30 its test helper has the function",
        with_test(
            "assert net(200, 10) == 180",
            imports="from tests.tools import net\n",
            **{"tests/tools.py": "def net(gross, rate):\n    return gross * (100 - rate) // 100\n"},
        ),
        [BY_PYTEST],
        GREEN,
    ),
    Case(
        "30 its test only imports what is new, in JavaScript",
        {
            "sum.js": "exports.sum = (a, b) => a + b;\nexports.mean = (...all) => { return 0; };\n",
            "test/mean.test.js": js("mean", "assert.ok(mean); mean(1)"),
        },
        [NODE],
        JS,
        needs="node",
    ),
    Case(
        "30 its test looks for a file, in JavaScript",
        {
            "sum.js": "exports.sum = (a, b) => b + a;\n",
            "NEWS": "x\n",
            "test/own.test.js": js(
                "sum", "assert.ok(require('fs').existsSync('NEWS')); assert.strictEqual(sum(1, 2), 3)"
            ),
        },
        [NODE],
        JS,
        needs="node",
    ),
    Case(
        "30 changes a test that was there",
        {
            "price.py": "def total(count, each):\n    return count * each + 0 * each\n",
            "tests/test_unit.py": UNIT.replace("(3, 5), 15", "(5, 3), 15"),
        },
        [BY_PYTEST],
        GREEN,
        request=OPEN,
    ),
]
