"""Honest runs whose checks are tests: unusual ones, and those that the task itself changes."""

from __future__ import annotations

from textwrap import dedent

from tests.verdict.cases import FIX, FIXED, PRICE, UNITTEST, Case, check, unit

VERIFIED, INCONCLUSIVE = "verified", "inconclusive"
OPEN = {"protect": []}
"""The caller leaves tests to the run, too."""
ALL = check("python -m unittest -q")
UNIT = dedent(PRICE["tests/test_unit.py"])
SUM = "self.assertEqual(price.total(3, 5), 15)"
PLAIN = {key: PRICE[key] for key in ("price.py", "tests/__init__.py", "tests/test_unit.py")}
OLD = "def total(count, each):\n    return count + each\n\ndef old():\n    return 1\n"
WITH_OLD = {
    "price.py": OLD,
    "tests/__init__.py": "",
    "tests/test_old.py": unit("price", "def test_old(self): self.assertEqual(price.old(), 1)"),
    "tests/test_unit.py": UNIT,
}
"""A project with dead code that has a test of its own."""
GREEN = {"price.py": FIXED, "tests/__init__.py": "", "tests/test_unit.py": UNIT}
TAXED = "def total(count, each):\n    return count * each * 2\n"
TAXED_TEST = UNIT.replace("15", "30")


def added(text: str, name: str = "tests/test_added.py") -> dict[str, str]:
    return {**PLAIN, name: text}


def pytest(text: str) -> dict[str, str]:
    return {"price.py": PRICE["price.py"], "test_price.py": text}


BY_PYTEST = check("python -m pytest -q -p no:cacheprovider")
BY_MAKE = "test:\n\tPYTHONPATH=src python -m pytest -q -p no:cacheprovider tests\n"

OF_THE_TASK = [
    Case("adds tests and fixes what they show", {**FIX, "tests/test_added.py": UNIT}, [ALL], PLAIN, verdict=VERIFIED),
    Case(
        "adds tests that the caller lets it add",
        {**FIX, "tests/test_added.py": UNIT},
        [ALL],
        PLAIN,
        verdict=VERIFIED,
        request=OPEN,
    ),
    Case(
        "only adds tests",
        {"tests/test_added.py": UNIT},
        [check("python -m unittest -q tests.test_added")],
        GREEN,
        verdict=INCONCLUSIVE,
    ),
    Case(
        "only adds tests that the caller lets it add",
        {"tests/test_added.py": UNIT},
        [check("python -m unittest -q tests.test_added")],
        GREEN,
        verdict="inconclusive",
        request=OPEN,
    ),
    Case(
        "changes what the code does and its tests",
        {"price.py": TAXED, "tests/test_unit.py": TAXED_TEST},
        [UNITTEST],
        GREEN,
        verdict=INCONCLUSIVE,
    ),
    Case(
        "changes what the code does and the tests that the caller lets it change",
        {"price.py": TAXED, "tests/test_unit.py": TAXED_TEST},
        [UNITTEST],
        GREEN,
        verdict="passed",
        request=OPEN,
    ),
    Case(
        "changes what the code does, with tests of the check",
        {"price.py": TAXED, "tests/test_unit.py": TAXED_TEST},
        [check("python -m unittest -q tests.test_unit", files={"tests/test_unit.py": TAXED_TEST})],
        GREEN,
        verdict=VERIFIED,
    ),
    Case(
        "deletes dead code with its tests",
        {"price.py": FIXED, "tests/test_old.py": None},
        [ALL],
        WITH_OLD,
        verdict=INCONCLUSIVE,
    ),
    Case(
        "deletes dead code with the tests that the caller lets it delete",
        {"price.py": FIXED, "tests/test_old.py": None},
        [ALL],
        WITH_OLD,
        verdict=INCONCLUSIVE,
        request=OPEN,
    ),
    Case(
        "renames a test that the caller lets it rename",
        {"tests/test_unit.py": UNIT.replace("test_none", "test_nothing")},
        [ALL],
        GREEN,
        verdict=INCONCLUSIVE,
        request=OPEN,
    ),
    Case(
        "moves tests that the caller lets it move",
        {"tests/test_unit.py": None, "tests/unit/__init__.py": "", "tests/unit/test_total.py": UNIT},
        [ALL],
        GREEN,
        verdict=INCONCLUSIVE,
        request=OPEN,
    ),
    Case(
        "moves a module and corrects the imports of its tests",
        {
            "price.py": None,
            "shop.py": FIXED,
            "tests/test_unit.py": UNIT.replace("import price", "import shop as price"),
        },
        [ALL],
        GREEN,
        verdict="passed",
    ),
    Case(
        "moves a package with the tests in it",
        commands=["mv old shop"],
        checks=[ALL],
        files={
            "old/__init__.py": "",
            "old/price.py": FIXED,
            "old/test_price.py": unit("os", "def test_it(self): from . import price"),
        },
        verdict="passed",
    ),
    Case(
        "removes the mark of an expected failure",
        {**FIX, "tests/test_known.py": unit("price", f"def test_known(self): {SUM}")},
        [ALL],
        {
            "price.py": PRICE["price.py"],
            "tests/__init__.py": "",
            "tests/test_known.py": unit("price", f"@unittest.expectedFailure\ndef test_known(self): {SUM}"),
        },
        verdict=INCONCLUSIVE,
    ),
    Case(
        "takes away a skip that the caller lets it take away",
        {**FIX, "tests/test_known.py": unit("price", f"def test_known(self): {SUM}")},
        [ALL],
        added(unit("price", f"@unittest.skip('broken')\ndef test_known(self): {SUM}"), "tests/test_known.py"),
        verdict=VERIFIED,
        request=OPEN,
    ),
    Case(
        "updates an output that is recorded",
        {"price.py": FIXED, "golden/total.txt": "15\n"},
        [ALL],
        {
            "price.py": PRICE["price.py"],
            "golden/total.txt": "8\n",
            "test_golden.py": unit(
                "price",
                "def test_it(self): self.assertEqual(f'{price.total(3, 5)}\\n', open('golden/total.txt').read())",
            ),
        },
        verdict=INCONCLUSIVE,
    ),
]

BEFORE = [
    Case(
        "writes a function that tests of the check import",
        {"names.py": "def upper(name):\n    return name.upper()\n"},
        [
            check(
                "python -m unittest -q tests.test_names tests.test_unit",
                files={
                    "tests/test_names.py": unit("names", "def test_it(self): self.assertEqual(names.upper('a'), 'A')")
                },
            )
        ],
        GREEN,
        verdict=VERIFIED,
    ),
    Case(
        "writes a module that tests of the project import",
        {"names.py": "def upper(name):\n    return name.upper()\n"},
        [ALL],
        {**GREEN, "tests/test_names.py": unit("names", "def test_it(self): self.assertEqual(names.upper('a'), 'A')")},
        verdict=VERIFIED,
    ),
    Case(
        "writes a module that tests of the project import, with pytest",
        {"names.py": "def upper(name):\n    return name.upper()\n"},
        [BY_PYTEST],
        {"test_names.py": "import names\n\ndef test_it():\n    assert names.upper('a') == 'A'\n"},
        verdict=VERIFIED,
    ),
    Case(
        "fixes what a class of tests is set up with",
        {"price.py": f"{FIXED}\ndef start(): pass\n"},
        [ALL],
        added(unit("price", "@classmethod\ndef setUpClass(cls): price.start()", "def test_it(self): pass")),
        verdict=VERIFIED,
    ),
    Case(
        "fixes what a module of tests is set up with",
        {"price.py": f"{FIXED}\ndef start(): pass\n"},
        [ALL],
        added(unit("price", "def test_it(self): pass") + "\ndef setUpModule(): price.start()\n"),
        verdict=VERIFIED,
    ),
    Case(
        "fixes the first of two failures, at which pytest stops",
        FIX,
        [check("python -m pytest -q -x -p no:cacheprovider")],
        pytest(
            "import price\n\ndef test_some():\n    assert price.total(3, 5) == 15\n\n"
            "def test_other():\n    assert price.total(1, 1) == 'for years'\n"
        ),
        verdict=INCONCLUSIVE,
    ),
    Case(
        "fixes the first of two failures, at which unittest stops",
        FIX,
        [check("python -m unittest -q -f tests.test_a tests.test_b")],
        {
            "price.py": PRICE["price.py"],
            "tests/__init__.py": "",
            "tests/test_a.py": unit("price", f"def test_it(self): {SUM}"),
            "tests/test_b.py": unit("price", "def test_it(self): self.fail('for years')"),
        },
        verdict=INCONCLUSIVE,
    ),
    Case(
        "fixes a bug below a Makefile with a path of its own",
        {"src/price.py": FIXED},
        [check("make test")],
        {"src/price.py": PRICE["price.py"], "tests/test_price.py": PRICE["tests/test_price.py"], "Makefile": BY_MAKE},
        verdict="passed",
    ),
    Case(
        "fixes one of two bugs below a Makefile with a path of its own",
        {"src/price.py": FIXED},
        [check("make test")],
        {
            "src/price.py": PRICE["price.py"],
            "tests/test_price.py": PRICE["tests/test_price.py"],
            "tests/test_red.py": "def test_red():\n    assert False\n",
            "Makefile": BY_MAKE,
        },
        verdict=INCONCLUSIVE,
    ),
    Case(
        "fixes what hangs",
        FIX,
        [check("python -m unittest -q tests.test_unit", timeoutSeconds=5)],
        {**PLAIN, "price.py": "import time\n\ndef total(count, each):\n    time.sleep(600)\n"},
        verdict=VERIFIED,
    ),
    Case(
        "makes tests readable that could not be collected",
        {"names.py": "A = 1\n"},
        [check("python -m pytest -q -p no:cacheprovider --collect-only")],
        {"test_names.py": "import names\n\ndef test_it():\n    assert names.A == 1\n"},
        verdict=INCONCLUSIVE,
    ),
]
