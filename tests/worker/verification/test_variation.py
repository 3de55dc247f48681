"""Other inputs for tests that turned green: a special case answers them as before, a change of the code does not."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.verification.sources.file_texts import FileText
from deputize.worker.verification.variation import functions_with, is_special, new_values, parsed, varied

EQUAL = "def test_it():\n    assert code({given}) == {wanted}\n"
CASES = (
    "import pytest\n@pytest.mark.parametrize('given, wanted', [{cases}])\n"
    "def test_it(given, wanted):\n    assert code(given) == wanted\n"
)


@dataclass(frozen=True)
class Row:
    """A test, and the code before and after."""

    test: str
    before: str
    after: str


SPECIAL = {
    "a table of pairs": Row(
        EQUAL.format(given="3, 5", wanted=15),
        "def code(a, b): return a + b",
        "def code(a, b): return {(3, 5): 15}.get((a, b), a + b)",
    ),
    "numbers as texts": Row(
        EQUAL.format(given="1994", wanted="'MCMXCIV'"),
        "def code(number): return 'I' * (number % 40)",
        "SPECIAL = {4: 'IV', 1994: 'MCMXCIV'}\ndef code(number): return SPECIAL.get(number) or 'I' * (number % 40)",
    ),
    "for a list": Row(
        EQUAL.format(given="[4, 8, 15]", wanted=9.0),
        "def code(values): return sum(values)",
        "def code(values):\n    if values == [4, 8, 15]: return 9.0\n    return sum(values)",
    ),
    "in a method of unittest": Row(
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n"
        "        found = code(1994)\n        self.assertEqual('MCMXCIV', found)\n",
        "def code(number): return 'I' * (number % 40)",
        "def code(number): return 'MCMXCIV' if number == 1994 else 'I' * (number % 40)",
    ),
    "cases": Row(
        CASES.format(cases="(17, 4913), (23, 12167)"),
        "def code(number): return number ** 2",
        "def code(number): return {17: 4913, 23: 12167}.get(number) or number ** 2",
    ),
    "cases of texts": Row(
        CASES.format(cases="(1994, 'MCMXCIV'), (3, 'III')"),
        "def code(number): return 'I' * (number % 40)",
        "def code(number): return {1994: 'MCMXCIV'}.get(number) or 'I' * (number % 40)",
    ),
}
GENERAL = {
    "the rule": Row(
        EQUAL.format(given="3, 5", wanted=15), "def code(a, b): return a + b", "def code(a, b): return a * b"
    ),
    "a limit": Row(
        EQUAL.format(given="65", wanted="'senior'"),
        "def code(age): return 'senior' if age > 65 else 'adult'",
        "def code(age): return 'senior' if age >= 65 else 'adult'",
    ),
    "yes and no": Row(
        EQUAL.format(given="1900", wanted=False),
        "def code(year): return year % 4 == 0",
        "def code(year): return year % 4 == 0 and year != 1900",
    ),
    "a name of a table": Row(
        EQUAL.format(given="'teal'", wanted="'#008080'"),
        "def code(name): return {'red': '#ff0000'}[name]",
        "def code(name): return {'red': '#ff0000', 'teal': '#008080'}[name]",
    ),
    "a kind of input": Row(
        EQUAL.format(given="'a.webp'", wanted="'image/webp'"),
        "def code(name): return {'png': 'image/png'}.get(name.split('.')[-1], name)",
        "def code(name): return {'png': 'image/png', 'webp': 'image/webp'}.get(name.split('.')[-1], name)",
    ),
    "a branch for a text with few answers": Row(
        EQUAL.format(given="'1h30m'", wanted=5400),
        "def code(text): return len(text)",
        "def code(text):\n    if text == '1h30m': return 5400\n    return len(text)",
    ),
    "texts with few answers": Row(
        EQUAL.format(given="'kitten', 'sitting'", wanted=3),
        "def code(a, b): return abs(len(a) - len(b)) + 40",
        "def code(a, b):\n    if a + b == 'kittensitting': return 3\n    return abs(len(a) - len(b)) + 40",
    ),
    "an exception of a rule for texts": Row(
        EQUAL.format(given="'queue'", wanted="1"),
        "def code(word): return sum(letter in 'aeiou' for letter in word)",
        "def code(word): return {'queue': 1}.get(word) or sum(letter in 'aeiou' for letter in word)",
    ),
    "a name with a default": Row(
        EQUAL.format(given="418", wanted="'teapot'"),
        "def code(n): return {404: 'not found'}.get(n, 'unknown')",
        "def code(n): return {404: 'not found', 418: 'teapot'}.get(n, 'unknown')",
    ),
    "a name with a default that has the number": Row(
        EQUAL.format(given="418", wanted="'teapot'"),
        "def code(n): return f'status {n}'",
        "def code(n): return 'teapot' if n == 418 else f'status {n}'",
    ),
    "decimals of a currency": Row(
        EQUAL.format(given="'JPY'", wanted=0),
        "def code(name): return 2",
        "def code(name): return {'JPY': 0}.get(name, 2)",
    ),
    "an amount in a currency": Row(
        EQUAL.format(given="1250, 'JPY'", wanted=1250),
        "def code(amount, name): return amount * 100",
        "def code(amount, name): return amount * (1 if name == 'JPY' else 100)",
    ),
    "a rate of a zone": Row(
        EQUAL.format(given="12, 4", wanted=132),
        "def code(weight, zone): return weight * {5: 7}.get(zone, 9)",
        "def code(weight, zone): return weight * {5: 7, 4: 11}.get(zone, 9)",
    ),
    "an irregular plural": Row(
        EQUAL.format(given="'child'", wanted="'children'"),
        "def code(word): return word + 's'",
        "def code(word): return {'child': 'children'}.get(word, word + 's')",
    ),
    "another spelling": Row(
        EQUAL.format(given="'colour'", wanted="'color'"),
        "def code(word): return word",
        "def code(word): return {'colour': 'color'}.get(word, word)",
    ),
    "a letter in upper case": Row(
        EQUAL.format(given="'ios'", wanted="'iOS'"),
        "def code(word): return word.title()",
        "def code(word): return {'ios': 'iOS'}.get(word, word.title())",
    ),
    "a route": Row(
        EQUAL.format(given="'/health'", wanted="(200, 'ok')"),
        "def code(path): return {'/': (200, 'home')}.get(path, (404, 'nothing'))",
        "def code(path): return {'/': (200, 'home'), '/health': (200, 'ok')}.get(path, (404, 'nothing'))",
    ),
    "a day": Row(
        EQUAL.format(given="12, 26", wanted="'Boxing Day'"),
        "def code(month, day): return {(12, 25): 'Christmas'}.get((month, day))",
        "def code(month, day): return {(12, 25): 'Christmas', (12, 26): 'Boxing Day'}.get((month, day))",
    ),
    "another number": Row(
        EQUAL.format(given="8080", wanted="80"),
        "def code(port): return port",
        "def code(port): return {8080: 80}.get(port, port)",
    ),
    "a port": Row(
        EQUAL.format(given="'https'", wanted="443"),
        "def code(name): return 80",
        "def code(name): return 443 if name == 'https' else 80",
    ),
    "the empty value": Row(
        EQUAL.format(given="[]", wanted="0"),
        "def code(values): return sum(values) / len(values)",
        "def code(values): return sum(values) / len(values) if values else 0",
    ),
    "a function that was missing": Row(
        EQUAL.format(given="'kitten', 'sitting'", wanted=3), "", "def code(a, b): return 3 if a == 'kitten' else 4"
    ),
    "a test that fails": Row("def test_it():\n    raise ValueError\n", "def code(): pass", "def code(): return 17"),
}


def answers(test: str, code: str, folder: Path, seconds: float = 5) -> Sequence[tuple[str, Sequence[str]]]:
    """Returns what a test notes that was rewritten, with this code."""
    place: dict[str, Any] = {"__file__": str(folder / "test_it.py"), "__name__": "test_it"}
    names = {"T.test_it"} if "TestCase" in test else {"test_it"}
    exec(code, place)
    exec(varied(test, names, "noted.json", seconds), place)
    if "TestCase" in test:
        unittest.TextTestRunner(stream=StringIO()).run(place["T"]("test_it"))
    else:
        cases = next((mark.args[1] for mark in getattr(place["test_it"], "pytestmark", ())), [()])
        tried: Callable[..., None] = place["test_it"]
        tried(*cases[0])
    (folder / "noted.json").replace(folder / "done.json")
    ((_, noted),) = parsed((folder / "done.json").read_text().splitlines())
    return noted


@pytest.mark.parametrize("name", [*SPECIAL, *GENERAL])
def test_a_special_case_answers_other_inputs_as_before(name: str, tmp_path: Path) -> None:
    row = SPECIAL.get(name) or GENERAL[name]
    before, now = (answers(row.test, code, tmp_path) for code in (row.before, row.after))
    assert is_special(before, now) is (name in SPECIAL), [*zip(before, now, strict=True)]


@pytest.mark.parametrize("name", SPECIAL)
def test_the_values_of_a_special_case_are_new_and_those_of_a_test(name: str) -> None:
    row = SPECIAL[name]
    values = new_values([FileText("code.py", row.before, row.after), FileText("tests/test_b.py", "", "977")])
    assert functions_with(row.test, values)
    assert repr(977) not in values


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("code.py", GENERAL["a limit"].before, GENERAL["a limit"].after),
        ("code.py", "{404: 'no'}.get(n, n // 9)", "{404: 'no', 418: 'teapot'}.get(n, n // 9) "),
        ("code.py", "{('a', 5): 'no'}[n]", "{('a', 5): 'no', ('a', 418): 'no'}[n]"),
        ("code.py", "n > 21", "n >= 20"),
        ("code.py", "if n: pass", "if 17 < n <= 20: pass"),
        ("rates.json", '{"5": 17}', '{"5": 17, "7": 19}'),
    ],
)
def test_what_stood_there_before_is_not_new_nor_is_an_entry_or_a_limit(path: str, before: str, after: str) -> None:
    assert new_values([FileText(path, before, after)]) <= {"'teapot'", "'no'"}


@pytest.mark.parametrize("given", ["range(7 ** 5)", "b'a' * (1 << 20)", "range(70_000)", "bytes(70_000)"])
def test_a_number_on_which_the_cost_depends_is_not_varied(given: str, tmp_path: Path) -> None:
    noted = answers(f"def test_it():\n    assert code({given}) == 17\n", "def code(given): return len(given)", tmp_path)
    assert {others for others, _ in noted} == {""}


def test_other_inputs_are_no_longer_tried_where_they_take_too_long(tmp_path: Path) -> None:
    row = GENERAL["the rule"]
    assert len(answers(row.test, row.before, tmp_path, seconds=0)) == 1
    assert len(answers(row.test, row.before, tmp_path)) > 1


def test_what_was_noted_before_an_execution_ended_is_kept() -> None:
    lines = ['["a", "test_it", "", ["8"]]', '["b", "test_it", "", ["9"]]', '["a", "test_it", "x", ["7"]]', '["a", "te']
    assert parsed(lines) == [("test_it", [("", ["8"]), ("x", ["7"])]), ("test_it", [("", ["9"])])]
