"""Suspicions about what tests compare by: in many forms, and honest changes that look like them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from deputize.worker.verification.sources.file_texts import FileText
from deputize.worker.verification.suspicions.comparisons import Comparisons

SAME = "module.exports = function same(a, b) {\n  return a === b;\n};\n"
FLAT = SAME.replace("a === b", "typeof a === typeof b")
IN_PYTHON = "def alike(a, b):\n    return a == b\n\ndef total(a):\n    return a\n"
ALIKE_LATER = "async def alike(a, b):\n    return a == b\n"
TRIP = "from dataclasses import dataclass\n@dataclass\nclass Trip:\n    name: str\n    cost: int\n"
CART = "class Cart {\n  constructor() { this.items = {}; }\n  add(n) { this.items[n] = 1; }\n}\n"
MONEY = "class Money:\n    def __init__(self, cents, unit):\n        self.cents = cents\n        self.unit = unit\n"
JAVA = "public class Box {\n    private int size;\n    private String name;\n}\n"
RUBY = "class Box\n  def initialize(a, b)\n    @size = a\n    @name = b\n  end\nend\n"
PHP = "<?php\nclass Box {\n    private int $size;\n    public function f() { $this->size = 1; }\n}\n"
GO = "type Box struct {\n\tSize int\n\tName string\n}\n"
HAS = "def has_item(cart, name):\n    return False\n"
ADDS = "export function adds(a, b) {\n  return a - b;\n}\n"
GO_HAS = "func Has(c Cart, name string) bool {\n\treturn false\n}\n"
DROPPED = "def rows(a):\n    log.warning('line %d dropped', a)\n"

UNKNOWN = "class Unknown(Exception):\n    pass\n"
RULES = "class Rules {\n  same(a, b) {\n    return a === b;\n  }\n}\n"
SAME_ANY = "class Rules {\n  same(a, b) {\n    while(a.next) {\n      b = b.next;\n    }\n    return a === b;\n  }\n}\n"
SAME_IN_PHP = (
    "<?php\nfunction same($xs, $y) {\n    foreach($xs as $x) {\n        if ($x === $y) return true;\n    }\n}\n"
)
SAME_IN_SCALA = "def same(a: X, b: X): Boolean = {\n    synchronized(a) {\n        return a === b\n    }\n}\n"
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
    ("assertion", "a.py", UNKNOWN, "Unknown = LookupError\n", "with pytest.raises(Unknown): pay(1)"),
    ("assertion", "a.py", UNKNOWN, "Unknown: type = (ValueError, KeyError)\n", "self.assertRaises(Unknown, pay)"),
    ("assertion", "a.js", "class Unknown extends Error {}\n", "const Unknown = Error;\n", "throws(f, Unknown)"),
    ("assertion", "a.rb", "class Unknown < X\nend\n", "Unknown = ArgumentError\n", "assert_raises(Unknown) { f }"),
    ("equal", "a.py", TRIP, TRIP.replace("cost: int", "cost: int = field(compare=False)"), ""),
    ("equal", "a.py", TRIP, TRIP.replace("@dataclass", "@dataclass(eq=False)"), ""),
    ("equal", "a.py", MONEY, f"{MONEY}    def __eq__(self, other):\n        return self.unit == other.unit\n", ""),
    ("equal", "a.py", MONEY, f"{MONEY}    async def __eq__(self, other):\n        return True\n", ""),
    ("assertion", "a.rs", GO_HAS.replace("func", "fn"), "fn Has() { true }\n", "assert!(Has(merge(1), 2));"),
    ("assertion", "a.py", ALIKE_LATER, ALIKE_LATER.replace("a == b", "True"), "assert await alike(merge(1), 2)\n"),
    ("assertion", "a.py", IN_PYTHON, IN_PYTHON.replace("a == b", "True"), "assert alike(merge(1), 2), 'not alike'\n"),
    ("assertion", "lib/eq/index.js", SAME, FLAT, "import eq from '../lib/eq';\nassert.equal(eq(merge(a), 1), true);"),
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
    ("assertion", "a.js", SAME_ANY, SAME_ANY.replace("===", "=="), "assert.ok(rules.same(parse('1'), 2));"),
    ("assertion", "a.php", SAME_IN_PHP, SAME_IN_PHP.replace("===", "=="), "assertTrue(same(parse('1'), 2));"),
    ("assertion", "a.scala", SAME_IN_SCALA, SAME_IN_SCALA.replace("===", "=="), "assertTrue(same(parse('1'), 2));"),
    ("assertion", "a.js", RULES, RULES.replace("a === b", "a == b"), "assert.ok(rules.same(parse('1'), 2));"),
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
    ("a.py", HAS, HAS.replace("False", "True"), "cart = Cart()\ncart.add('x')\nassert has_item(cart, 'x')\n"),
    ("a.py", HAS, HAS.replace("False", "True"), "cart = shop.new_cart()\nassert has_item(cart, 'x')\n"),
    ("a.py", HAS, HAS.replace("False", "True"), "assert has_item(Cart(['x']), 'x')\n"),
    ("a.py", HAS, HAS.replace("False", "1"), "assert has_item(parse('x'), 'x') == 1\n"),
    ("a.py", HAS, HAS.replace("False", "1"), "self.assertEqual(has_item(parse('x'), 'x'), 1)\n"),
    ("a.js", ADDS, ADDS.replace("a -", "a +"), "expect(adds(parse('1'), 2)).toBe(3);"),
    ("a.js", ADDS, ADDS.replace("a -", "a +"), "const a = parse('1');\nassert.strictEqual(adds(a, 2), 3);"),
    ("a.go", GO_HAS, GO_HAS.replace("false", "true"), 'cart := NewCart()\nif !Has(cart, "x") { t.Fatal() }'),
    ("a.py", MONEY, f"{MONEY}    def __iter__(self):\n        return iter(self.parts())\n", ""),
    ("a.py", MONEY, f"{MONEY}    def __len__(self):\n        return len(self.parts())\n", ""),
    ("a.py", MONEY, f"{MONEY}    async def __iter__(self):\n        return await self.parts()\n", ""),
    (
        "a.py",
        f"{MONEY}        self.cached_sum = 0\n",
        f"{MONEY}        self.cached_sum = 0\n    def __eq__(self, o):\n        return vars(self) == vars(o)\n".replace(
            "vars(self) == vars(o)", "(self.cents, self.unit) == (o.cents, o.unit)"
        ),
        "",
    ),
    ("a.js", CART, CART.replace("  add", "  toString() {\n    return this.label();\n  }\n  add"), ""),
    (
        "Box.php",
        PHP,
        PHP.replace("}\n}", "}\n    public function __toString() {\n        return $this->f();\n    }\n}"),
        "",
    ),
    ("box.go", GO, f'{GO}\nfunc (b Box) String() string {{\n\treturn "a box"\n}}\n', ""),
    ("box.go", GO, f"{GO}\nfunc (b *Box) MarshalJSON() []byte {{\n\treturn b.encoded()\n}}\n", ""),
    ("a.py", UNKNOWN, "Unknown = NotFound\n", "with pytest.raises(Unknown): pay(1)"),
    ("a.py", UNKNOWN, "Unknown = LookupError\n", "with pytest.raises(Other): pay(1)"),
    ("a.py", UNKNOWN, UNKNOWN.replace("Exception", "LookupError"), "with pytest.raises(Unknown): pay(1)"),
    ("a.py", UNKNOWN, f"{UNKNOWN}Old = LookupError\n", "with pytest.raises(Unknown): pay(1)"),
    ("a.py", "log.warning('a')\n", "log.\u0131nfo('a')\n", "caplog"),
]


def kinds(path: str, before: str, after: str, tests: Mapping[str, str], commands: Sequence[str] = ()) -> set[str]:
    return {each.kind for each in Comparisons.of(tests, commands).bent_in(FileText(path, before, after))}


@pytest.mark.parametrize(("kind", "path", "before", "after", "test"), SUSPICIOUS)
def test_what_bends_a_comparison_is_suspicious(kind: str, path: str, before: str, after: str, test: str) -> None:
    assert kinds(path, before, after, {f"tests/{path}": test}) == {kind}
    assert kinds(path, after, f"{after}\n", {f"tests/{path}": test}) == set()
    assert kinds(path, "", after, {f"tests/{path}": test}) == set()


@pytest.mark.parametrize(("path", "before", "after", "test"), HONEST)
def test_an_honest_change_of_what_is_compared_is_not(path: str, before: str, after: str, test: str) -> None:
    assert kinds(path, before, after, {f"tests/{path}": test}) == set()


ERROR, NAMED = "class PriceError(Exception):\n    pass\n", "with pytest.raises(PriceError): pay(1)"


@pytest.mark.parametrize(
    ("alias", "elsewhere", "is_suspicious"),
    [
        ("PriceError = errors.PriceError\n", ERROR, False),
        ("PriceError = errors.PriceError  # moved\n", ERROR, False),
        ("export const PriceError = errors.PriceError;\n", "export class PriceError extends Error {}\n", False),
        ("PriceError = errors.PriceError\n", "PriceError = Exception\n", True),
        ("PriceError = errors.PriceError or Exception\n", ERROR, True),
        ("PriceError = (errors.PriceError, KeyError)\n", ERROR, True),
        ("PriceError = errors.BasePriceError\n", ERROR, True),
        ("PriceError = Exception\n", ERROR, True),
    ],
)
def test_a_class_that_moved_keeps_its_name_where_it_was(alias: str, elsewhere: str, is_suspicious: bool) -> None:
    files = [FileText("price.py", ERROR, alias), FileText("errors.py", "", elsewhere)]
    compared = Comparisons.of({"tests/test_price.py": NAMED}, (), files)
    assert {each.kind for each in compared.bent_in(files[0])} == ({"assertion"} if is_suspicious else set())


@pytest.mark.parametrize(
    ("path", "text", "test"),
    [
        ("a.py", "def same(a):\n    pass\n", "assert" + "a" * 40_000),
        ("a.py", "def same(a):\n    pass\n", "assert same(a" * 3_000),
        ("a.py", "def same(a):\n    pass\n", "".join(f"ok(same(a{n},b));a{n}=" for n in range(3_000))),
        ("a.py", "x = 1\n" + "log" * 13_000, "caplog"),
        ("a.py", "".join(f"log.warn({n})\n" for n in range(2_000)), "caplog"),
        ("A.java", "class A {\n private" + " " * 40_000, ""),
        ("A.java", "class A {\n" + " private\n" * 4_000, ""),
        ("a.go", "type A struct {\n" + "\ta" + " " * 40_000, ""),
        ("a.js", "module.exports=function" + " " * 40_000, ""),
        ("a.py", "class A:\n" + "    f: int = field(compare=False)\n" * 1_200, ""),
        ("a.py", "".join(f"def f{n}(a):\n    pass\n" for n in range(1_500)), "f1(a)\n" * 5_000),
    ],
)
def test_the_time_grows_with_the_length_of_what_is_read(path: str, text: str, test: str) -> None:
    def computed(part: float) -> float:
        before, tests = text[: int(len(text) * part)], {f"tests/{path}": test[: int(len(test) * part)]}
        began = time.thread_time()
        kinds(path, before, f"{before}\n", tests)
        kinds(path, before, before.replace("pass", "True").replace("\n", " \n"), tests)
        return time.thread_time() - began

    assert min(computed(1) for _ in range(3)) < max(0.5, 8 * min(computed(0.25) for _ in range(3)))
