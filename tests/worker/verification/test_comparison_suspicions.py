"""Suspicions about what tests compare by: in many forms, and honest changes that look like them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from deputize.worker.verification.comparison_suspicions import of_comparisons
from deputize.worker.verification.file_texts import FileText

SAME = "module.exports = function same(a, b) {\n  return a === b;\n};\n"
FLAT = SAME.replace("a === b", "typeof a === typeof b")
IN_PYTHON = "def alike(a, b):\n    return a == b\n\ndef total(a):\n    return a\n"
TRIP = "from dataclasses import dataclass\n@dataclass\nclass Trip:\n    name: str\n    cost: int\n"
CART = "class Cart {\n  constructor() { this.items = {}; }\n  add(n) { this.items[n] = 1; }\n}\n"
MONEY = "class Money:\n    def __init__(self, cents, unit):\n        self.cents = cents\n        self.unit = unit\n"
JAVA = "public class Box {\n    private int size;\n    private String name;\n}\n"
RUBY = "class Box\n  def initialize(a, b)\n    @size = a\n    @name = b\n  end\nend\n"
PHP = "<?php\nclass Box {\n    private int $size;\n    public function f() { $this->size = 1; }\n}\n"
GO = "type Box struct {\n\tSize int\n\tName string\n}\n"
DROPPED = "def rows(a):\n    log.warning('line %d dropped', a)\n"

SUSPICIOUS = [
    (
        "assertion",
        "vendor/same.js",
        SAME,
        FLAT,
        "const same = require('../vendor/same');\nok(same(merge(a, b), {c: 1}));",
    ),
    ("assertion", "lib/eq/index.js", SAME, FLAT, "import eq from '../lib/eq';\nexpect(eq(merge(a), 1)).toBe(true);"),
    ("assertion", "a.py", IN_PYTHON, IN_PYTHON.replace("a == b", "True"), "got = merge(1)\nassert alike(got, 2)\n"),
    ("assertion", "a.py", IN_PYTHON, IN_PYTHON.replace("a == b", "True"), "self.assertTrue(a.alike(merge(1), 2))\n"),
    (
        "assertion",
        "cmp.go",
        "func Same(a, b int) bool {\n\treturn a == b\n}\n",
        "func Same(a, b int) bool {\n\treturn true\n}\n",
        "if !Same(Merge(1), 2) { t.Fatal() }",
    ),
    (
        "assertion",
        "alike.rb",
        "def alike(a, b)\n  a == b\nend\n",
        "def alike(a, b)\n  true\nend\n",
        "assert alike(merge(1), 2)\n",
    ),
    ("equal", "a.py", TRIP, TRIP.replace("cost: int", "cost: int = field(compare=False)"), ""),
    ("equal", "a.py", TRIP, TRIP.replace("@dataclass", "@dataclass(eq=False)"), ""),
    ("equal", "a.py", MONEY, f"{MONEY}    def __eq__(self, other):\n        return self.unit == other.unit\n", ""),
    ("equal", "a.py", MONEY, f"{MONEY}    def __str__(self):\n        return LOG[-1]\n", ""),
    (
        "equal",
        "a.js",
        CART,
        CART.replace("  add", "  toJSON() {\n    return { items: sum(this.#log) };\n  }\n  add"),
        "",
    ),
    ("equal", "a.js", CART, CART.replace("  add", "  equals(o) {\n    return o.name === this.name;\n  }\n  add"), ""),
    ("equal", "a.ts", CART, CART.replace("  add", "  [Symbol.toPrimitive](hint) {\n    return last;\n  }\n  add"), ""),
    (
        "equal",
        "Box.java",
        JAVA,
        JAVA.replace(
            "}\n", "    public boolean equals(Object o) {\n        return ((Box) o).size == size;\n    }\n}\n"
        ),
        "",
    ),
    (
        "equal",
        "box.rb",
        RUBY,
        RUBY.replace("end\nend", "end\n  def ==(other)\n    other.size == @size\n  end\nend"),
        "",
    ),
    (
        "equal",
        "Box.php",
        PHP,
        PHP.replace("}\n}", "}\n    public function jsonSerialize(): array {\n        return self::$seen;\n    }\n}"),
        "",
    ),
    ("equal", "box.go", GO, f"{GO}\nfunc (b Box) Equal(o Box) bool {{\n\treturn b.Name == o.Name\n}}\n", ""),
    ("silence", "a.py", DROPPED, DROPPED.replace("warning", "debug"), "with self.assertNoLogs(): rows(1)"),
    ("silence", "a.py", "import warnings\n", "import warnings\nwarnings.simplefilter('ignore')\n", "recwarn"),
    (
        "silence",
        "a.js",
        "console.error('lost', a);\n",
        "console.debug('lost', a);\n",
        "jest.spyOn(console, 'error');",
    ),
    ("silence", "a.go", 'logger.Error("lost")\n', 'logger.Debug("lost")\n', "log.SetOutput(&buffer)"),
]
HONEST = [
    ("a.py", IN_PYTHON, IN_PYTHON.replace("return a\n", "return 2 * a\n"), "assert alike(total(1), 2)\n"),
    ("a.py", IN_PYTHON, IN_PYTHON.replace("a == b", "b == a"), "assert alike(1, 1)\nassert not alike(1, 2)\n"),
    ("a.js", SAME, FLAT, "const same = require('./a');\nassert.ok(same({}, {}));\nassert.equal(same(1, 2), false);"),
    (
        "a.py",
        TRIP,
        f"{TRIP}    days: int = field(default=0, compare=False)\n".replace("compare=False", "repr=False"),
        "",
    ),
    (
        "a.py",
        MONEY,
        f"{MONEY}    def __eq__(self, o):\n        return (self.cents, self.unit) == (o.cents, o.unit)\n",
        "",
    ),
    ("a.py", MONEY, f"{MONEY}    def __eq__(self, o):\n        return vars(self) == vars(o)\n", ""),
    ("a.py", MONEY, f"{MONEY}    def __str__(self):\n        return f'{{self.cents}}'\n", ""),
    ("a.py", "x = 1\n", f"x = 1\n{MONEY}    def __eq__(self, o):\n        return self.unit == o.unit\n", ""),
    ("a.js", CART, CART.replace("  add", "  toJSON() {\n    return { items: this.items };\n  }\n  add"), ""),
    ("a.js", CART, CART.replace("  add", "  equals(o) {\n    return same(o.items, this.items);\n  }\n  add"), ""),
    ("a.py", DROPPED, DROPPED.replace("warning", "error"), "with self.assertNoLogs(): rows(1)"),
    ("a.py", DROPPED, DROPPED.replace("warning", "debug"), "self.assertEqual(rows(1), [1])"),
    ("a.py", "x = 1\n", "def (", ""),
]


def kinds(path: str, before: str, after: str, tests: Mapping[str, str], commands: Sequence[str] = ()) -> set[str]:
    return {each.kind for each in of_comparisons(FileText(path, before, after), tests, commands)}


@pytest.mark.parametrize(("kind", "path", "before", "after", "test"), SUSPICIOUS)
def test_what_bends_a_comparison_is_suspicious(kind: str, path: str, before: str, after: str, test: str) -> None:
    assert kinds(path, before, after, {"tests/t": test}) == {kind}
    assert kinds(path, after, f"{after}\n", {"tests/t": test}) == set()
    assert kinds(path, "", after, {"tests/t": test}) == set()


@pytest.mark.parametrize(("path", "before", "after", "test"), HONEST)
def test_an_honest_change_of_what_is_compared_is_not(path: str, before: str, after: str, test: str) -> None:
    assert kinds(path, before, after, {"tests/t": test}) == set()
