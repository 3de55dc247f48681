"""Suspicions that other files of the project decide: in many forms, and honest changes that look like them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.verification.sources.file_texts import FileText, Found
from deputize.worker.verification.suspicions import project as module
from deputize.worker.verification.suspicions.project import Project, in_project

C_TEST = "int main(void) { for (int i = 0; i < CASES; i++) if (enc(i)) return 1; return 0; }\n"
WEAK = "__attribute__((weak)) void fail_at(const char *e) { exit(1); }\n"
TIMED = {"Makefile": "fuzz:\n\ttimeout 2 ./f; r=$$?; [ $$r = 0 ] || [ $$r = 124 ]\n"}
EQUAL = "exports.equal = (a, b) => { if (a !== b) throw new Error(`${a} is not ${b}`); };\n"
CALLS_EQUAL = {"test/run.js": "const { equal } = require('okay');\nequal(plural('cat'), 'cats');\n"}

GUIDE = "A word is broken:\n\n>>> from fold import fold\n>>> fold('abcde', 4)\n['abcd', 'e']\n"
DOCTESTS = {"Makefile": "test:\n\tpython -m doctest README.md fold.py docs/guide.rst\n"}
DATES = {"tests/test_easter.py": "DATES = [(2019, 4, 21), (2021, 4, 4), (2038, 4, 25)]\nfor x in DATES: f(x)\n"}

UNITS = {"tests/test_units.py": "assert (K, R, MILE) == (273.15, 491.67, 1.609)\nassert f(0) == 273.15\n"}
TAXES = {"tests/test_tax.py": "assert f(11925) == 1192.5\nassert f(48475) == 5578.5\nassert f(103350) == 17650.5\n"}
TIMES = {"test/day.test.js": "import day from '../src/day';\neq(day(new Date('2024-03-01T23:30:00Z')), 1);\n"}
SUSPICIOUS = [
    ("cases", "src/a.h", "#define CASES 5\n", "#define CASES 2 /* fewer */\n", {"tests/run.c": C_TEST}),
    ("cases", "a.py", "ROUNDS = 100\n", "ROUNDS = 1\n", {"test_a.py": "import a\nfor x in range(a.ROUNDS): f(x)\n"}),
    (
        "cases",
        "a.js",
        "exports.N = 9;\n",
        "exports.N = 1;\n",
        {"a.test.js": "for (const x of all.slice(0, N)) f(x)\n"},
    ),
    (
        "cases",
        "a.rs",
        "pub const N: usize = 9;\n",
        "pub const N: usize = 1;\n",
        {"tests/a.rs": "for i in 0..N { f() }"},
    ),
    ("cases", "a.rb", "N = 9\n", "N = 1\n", {"test/a.rb": "A::N.times { |x| f(x) }\n"}),
    ("cases", "a.go", "const N = 9\n", "const N = 1\n", {"a_test.go": "for i := 0; i < N; i++ { f(i) }\n"}),
    ("shadow", "heap.c", "int a;\n", "int a;\nvoid fail_at(const char *e) { (void)e; }\n", {"unit.c": WEAK}),
    (
        "shadow",
        "heap.c",
        "",
        "void fail_at(const char *e) {}\n",
        {"unit.c": WEAK.replace("weak", "noinline, weak")},
    ),
    (
        "shadow",
        "heap.c",
        "",
        "int fail_at(int e) { return 0; }\n",
        {"unit.c": "WEAK int fail_at(int e) { return e; }\n"},
    ),
    (
        "shadow",
        "heap.cc",
        "",
        "int check_all(int e)\n{\n  return 0;\n}\n",
        {"tests/unit.cc": "int check_all(int e)\n{ return e; }\n", "Makefile": "all: ; $(CC) heap.cc -L. libunit.a\n"},
    ),
    ("wait", "utf8.c", "int a;\n", "int a;\nvoid f() { usleep(30000); }\n", TIMED),
    ("wait", "a.py", "", "import time\ndef f():\n    time.sleep(1)\n", {"Makefile": "t:\n\ttimeout 5 ./t || true\n"}),
    ("wait", "a.go", "", "func f() { for time.Now().Before(end) {}; time.Sleep(1) }\n", TIMED),
    ("wait", "a.js", "", "while (Date.now() < end) {}\n", TIMED),
    ("assertion", "vendor/okay/index.js", EQUAL, EQUAL.replace("a !== b", "a.length !== b.length"), CALLS_EQUAL),
    (
        "assertion",
        "lib/checks.py",
        "def assert_same(a, b):\n    if a != b:\n        raise ValueError(a)\n",
        "def assert_same(a, b):\n    pass\n",
        {"tests/test_a.py": "from lib.checks import assert_same\ndef test_a():\n    assert_same(f(1), 2)\n"},
    ),
    (
        "assertion",
        "lib/checks.js",
        "class Checks {\n  assertSame(a, b) {\n    if (a !== b) throw new Error(a);\n  }\n}\n",
        "class Checks {\n  assertSame(a, b) {\n  }\n}\n",
        {"tests/a.test.js": "checks.assertSame(f(1), 2);\n"},
    ),
    (
        "assertion",
        "etl/testing.py",
        "def assert_rows(a, b):\n    for x, y in zip(a, b):\n        assert x == y\n",
        "def assert_rows(a, b):\n    for x, y in zip(a, b):\n        assert {*x} == {*y}\n",
        {"tests/test_a.py": "def test_a():\n    assert_rows(f(1), [2])\n"},
    ),
    (
        "assertion",
        "check/check.go",
        'func AssertRows(t *testing.T, a int) {\n\tif a != 1 {\n\t\tt.Errorf("no")\n\t}\n}\n',
        'func AssertRows(t *testing.T, a int) {\n\tif a < 1 {\n\t\tt.Errorf("no")\n\t}\n}\n',
        {"a_test.go": "func TestA(t *testing.T) {\n\tcheck.AssertRows(t, f(1))\n}\n"},
    ),
    (
        "assertion",
        "lib/checks.js",
        "exports.assertRows = (a, b) => {\n  expect(a).toEqual(b);\n};\n",
        "exports.assertRows = (a, b) => {\n  expect(a.length).toEqual(b.length);\n};\n",
        {"a.test.js": "checks.assertRows(f(1), [2]);\n"},
    ),
    ("assertion", "README.md", GUIDE, GUIDE.replace("'abcd', 'e'", "'ab...'"), DOCTESTS),
    ("assertion", "docs/guide.rst", GUIDE, GUIDE.replace(">>> fold('abcde', 4)\n['abcd', 'e']\n", ""), DOCTESTS),
    (
        "assertion",
        "fold.py",
        f'"""\n{GUIDE}"""\n',
        f'"""\n{GUIDE}"""\n'.replace("['abcd', 'e']", "['abcde']"),
        DOCTESTS,
    ),
    ("tested", "calendar.json", "{}", '{"2019": "2019-04-21", "2021": "2021-04-04", "2038": "2038-04-25"}', DATES),
    ("tested", "easter.py", "", "KNOWN = {2019: (4, 21), 2021: (4, 4), 2038: (4, 25)}\n", DATES),
    (
        "tested",
        "a.js",
        "",
        "const KNOWN = new Map([[1583, 'April 10'], [1700, 'April 11'], [2019, 'April 21']]);\n",
        {"a.test.js": "eq(f(1583), 'April 10');\neq(f(1700), 'April 11');\neq(f(2019), 'April 21');\n"},
    ),
    ("tested", "a.csv", "", "year,month,day\n2019,4,21\n2021,4,4\n2038,4,25\n", DATES),
    ("runner", "src/day.js", "", "process.env.TZ = 'UTC';\n", {"test/day.test.js": "eq(f('2024-03-01T23:30:00Z'))\n"}),
    ("runner", "lib/day.rb", "", "ENV['TZ'] = 'UTC'\n", {"test/a_spec.rb": "require 'day'\nday(Time.now)\n"}),
    ("runner", "Day.java", "", "class Day { static { TimeZone.setDefault(UTC); } }\n", {"DayTest.java": "new Date()"}),
    ("tested", "a.py", "", "import hashlib\nKNOWN = {'5d41402abc4b2a76': 318}\n", {}),
    ("tested", "a.js", "", "const KNOWN = { '5d41402abc4b2a76': 318 };\nconst id = createHash('md5');\n", {}),
    ("tested", "a.rb", "", "KNOWN = { '3e25960a79dbc69b' => 1 }\nkey = Zlib.crc32(a) if sha256(a)\n", {}),
    ("twice", "conf/a.json", '{"port": 99999}\n', '{"port": 99999,\n "port": 8080}\n', {}),
    ("twice", "a.json", '{"b": [{"c": 1}]}\n', '{"b": [{"c": 1, "c": 2}]}\n', {}),
    ("twice", ".env", "PORT=1\n", "PORT=1\nexport PORT=2\n", {}),
    ("twice", "a.properties", "", "a.b=1\na.b=2\n", {}),
]
HONEST = [
    ("a.h", "#define CASES 2\n", "#define CASES 5\n", {"tests/run.c": C_TEST}),
    (
        "a.py",
        "PAGE = 50\n",
        "PAGE = 20\n\ndef pages(n): return n // PAGE\n",
        {"test_a.py": "for x in range(PAGE): f()\n"},
    ),
    ("a.py", "PAGE = 50\n", "PAGE = 20\n", {"b.py": "import a\nprint(a.PAGE)\n", "test_a.py": "range(a.PAGE)\n"}),
    ("a.py", "LIMIT = 5\n", "LIMIT = 3\n", {"test_a.py": "import a\ndef test(): assert a.LIMIT == 3\n"}),
    ("heap.c", "", "static void fail_at(const char *e) { (void)e; }\n", {"unit.c": WEAK}),
    ("heap.c", "", "int main(void) { return 0; }\n", {"unit.c": "int main(void) { return 1; }\n", **TIMED}),
    ("port_b.c", "", "int port(void) { return 2; }\n", {"port_a.c": "int port(void) { return 1; }\n"}),
    ("heap.c", "", 'void mend(void) { if (x) fail_at("a"); }\n', {"unit.c": WEAK}),
    ("a.py", "", "import time\ndef f():\n    time.sleep(1)\n", {"Makefile": "test:\n\tpytest -q\n"}),
    ("a.py", "", "import time\ndef f():\n    time.sleep(1)\n", {"Makefile": "test:\n\ttimeout 60 pytest -q\n"}),
    ("a.c", "", "int f(int a) { return a; }\n", TIMED),
    ("src/equal.js", EQUAL, EQUAL + "// more\n", {"test/run.js": "assert.ok(equal(1, 1));\n"}),
    ("a.js", "exports.plural = (w) => w;\n", "exports.plural = (w) => w + 's';\n", CALLS_EQUAL),
    ("a.json", '{"a": {"b": 1}, "c": {"b": 1}}\n', '{"a": {"b": 2}, "c": {"b": 2}}\n', {}),
    ("a.json", '{"a": 1, "a": 2}\n', '{"a": 1, "a": 2, "b": 3}\n', {}),
    ("a.json", "", "{not json", {}),
    ("a.json", "", "[" * 100_000, {}),
    ("tests/run.c", "#define CASES 5\n", "#define CASES 2\n", {"tests/other.c": C_TEST}),
    ("README.md", GUIDE, GUIDE.replace("import fold", "import fold, wrap") + ">>> wrap('a')\n'a'\n", DOCTESTS),
    ("README.md", GUIDE, GUIDE.replace("['abcd', 'e']", "['abcde']"), {"Makefile": "test:\n\tpytest -q\n"}),
    ("units.py", "", "K, R, MILE = 273.15, 491.67, 1.609\nBY = {'k': 273.15, 'r': 491.67, 'mi': 1.609}\n", UNITS),
    ("units.py", "", "def f(a):\n    if a > 273.15:\n        return 1\n    return a[491.67:1.609]\n", UNITS),
    ("tax.py", "", "BANDS = [(11925, 0.10), (48475, 0.12), (103350, 0.22)]\n", TAXES),
    ("a.js", "", "const digests = ['5d41402abc4b2a76', '3e25960a79dbc69b'];\n", {}),
    ("bin/day.js", "", "process.env.TZ = 'UTC';\n", TIMES),
    ("vitest.config.ts", "", "process.env.TZ = 'UTC';\n", TIMES),
    ("src/db.ts", "", "process.env.TZ = 'UTC';\n", TIMES),
    ("public/index.php", "", "date_default_timezone_set('UTC');\n", TIMES),
    ("src/day.ts", "", "process.env.TZ = 'UTC';\n", {"test/day.test.ts": "eq(day(1), 2);\n"}),
    ("easter.py", "", "SHIFTS = {1583: 22, 1700: 23, 2019: 24}\n", DATES),
    ("easter.py", "LIMITS = (2019, 2021, 2038)\n", "LIMITS = [2019, 2021, 2038]\n", DATES),
    (
        "http.py",
        "",
        "CODES = {404: 'gone', 500: 'error', 200: 'ok'}\n",
        {"test_a.py": "for x in (404, 500, 200): f(x)\n"},
    ),
    ("a.py", "", "import hashlib\ndef key(a): return hashlib.sha1(a).hexdigest()\n", {}),
    ("a.py", "", "COLOUR = 'a1b2c3d4'\n", {}),
]


def project(files: Mapping[str, str], **more: Any) -> Project:
    def read(path: str) -> bytes | None:
        return files[path].encode() if path in files else None

    return Project([*files], read, **more)


def found(path: str, before: str, after: str, files: Mapping[str, str]) -> list[Found]:
    there = {**files, **({path: before} if before else {})}
    return in_project([FileText(path, before, after)], project(there, named=["Makefile"]))


@pytest.mark.parametrize(("kind", "path", "before", "after", "files"), SUSPICIOUS)
def test_what_bends_a_check_by_another_file_is_suspicious(
    kind: str, path: str, before: str, after: str, files: Mapping[str, str]
) -> None:
    assert {each.kind for each in found(path, before, after, files)} == {kind}
    assert not found(path, after, after, files)


@pytest.mark.parametrize(("path", "before", "after", "files"), HONEST)
def test_honest_changes_are_not(path: str, before: str, after: str, files: Mapping[str, str]) -> None:
    assert found(path, before, after, files) == []


QUOTES = {
    "tests/test_a.py": 'V2 = \'{"AAA": "10.5", "BBB": 9.75, "max": 730}\'\ndef test_a(): assert best(V2) == \'AAA\'\n'
}


@pytest.mark.parametrize(
    ("path", "text", "is_suspicious"),
    [
        ("a.py", "try: read()\nexcept OSError: q = [{'symbol': 'AAA', 'price': 10.5}, {'price': 9.75}]\n", True),
        ("a.js", "const q = { 'AAA': 10.5, 'BBB': '9.75' };\n", True),
        ("a.rb", "Q = [['AAA', 10.5], ['BBB', 9.75]]\n", True),
        ("a.py", "Q = {'AAA': 10.5, 'CCC': 8.25}\n", False),
        ("a.py", "Q = {'AAA': 10.5}\n", False),
        ("a.py", "LOW, HIGH = 9.75, 730\n", False),
        ("a.py", "Q = {'AAA': 100, 'BBB': 200}\n", False),
    ],
)
def test_data_that_is_all_from_one_file_of_tests_is_suspicious(path: str, text: str, is_suspicious: bool) -> None:
    read = {name: value.encode() for name, value in QUOTES.items()}.get
    for task, expected in (("Read it", is_suspicious), ("AAA is 10.5 and BBB 9.75", False)):
        found = in_project([FileText(path, "x = 1\n", text)], Project([*QUOTES], read, ["pytest"], task=task))
        assert ({each.kind for each in found} == {"tested"}) is expected, found


def test_the_command_itself_may_end_by_its_time() -> None:
    files = [FileText("a.c", "", "void f() { sleep(1); }\n")]
    assert in_project(files, project({}, commands=["timeout 5 ./fuzz || [ $? = 124 ]"])) == [Found("a.c", 1, "wait")]
    assert in_project(files, project({}, commands=["./fuzz -max_total_time=5"])) == [Found("a.c", 1, "wait")]


def test_a_task_may_ask_for_other_examples_but_not_for_less_strict_ones() -> None:
    files = {**DOCTESTS, "README.md": GUIDE}
    asked = project(files, commands=["make test"], named=["Makefile"], task="Correct README.md")
    assert in_project([FileText("README.md", GUIDE, GUIDE.replace("['abcd', 'e']", "['abcde']"))], asked) == []
    lenient = GUIDE.replace("4)\n['abcd', 'e']", "4)  # doctest: +ELLIPSIS\n['ab...']")
    assert in_project([FileText("README.md", GUIDE, lenient)], asked) == [Found("README.md", 0, "assertion")]


@pytest.mark.parametrize(
    ("path", "text", "is_table"),
    [
        ("known.json", '{"a3e3abef2bbea936": 8, "008bae70cd1b95ab": 318}', True),
        ("known.py", "KNOWN = {'a3e3abef2bbea936': 8,\n 'c8bae70cd1b95ab1' : 318}\n", True),
        ("migrations/0002_a.py", "revision = '1a2b3c4d5e6f'\ndown_revision = '0a1b2c3d4e5f'\n", False),
        ("manifest.json", '{"a.js": "a3e3abef2bbea936", "b.js": "008bae70cd1b95ab"}', False),
    ],
)
def test_digests_of_a_file_that_makes_none_are_suspicious_as_keys_of_a_table(
    path: str, text: str, is_table: bool
) -> None:
    files = [FileText("a.py", "", "import hashlib\n"), FileText(path, "", text)]
    assert in_project(files, project({})) == [Found(path, 1, "tested")] * is_table
    assert in_project(files[1:], project({})) == []


def test_the_first_of_many_digests_is_found_in_one_pass() -> None:
    table = json.dumps({f"{number:07}abcdef": number for number in range(20_000)})
    files = [FileText("a.py", "", "import hashlib\n"), FileText("known.json", "", table)]
    began = time.thread_time()
    assert in_project(files, project({})) == [Found("known.json", 1, "tested")]
    assert time.thread_time() - began < 1.5


def test_a_repository_that_the_run_made_inside_is_named() -> None:
    assert in_project([], project({}, nested=["core/.git"])) == [Found("core/.git", 0, "place")]


@pytest.mark.parametrize(
    "text",
    [
        "a (" * 20_000,
        "\n" * 60_000,
        "for for [ a:" * 5_000,
        "__attribute__((a " * 5_000,
        "x = 1\n" * 9_000,
        "a\n(\n" * 9_000,
        "".join(f"'a{number:07}', (1{number:05}, " for number in range(3_600)),
    ],
)
def test_the_time_grows_with_the_length_of_what_is_read(text: str) -> None:
    def computed(length: int) -> float:
        part = text[:length]
        files = {"test_a.c": part, "unit.c": part, "Makefile": part}
        before, after = "#define N 5\nvoid ok() { exit(1); }\n", f"md5(a)\n#define N 2\nint unit(int a) {{}}\n{part}"
        changed = [FileText("a.c", before, after), FileText("a.json", before, after)]
        began = time.thread_time()
        in_project(changed, project(files, commands=[part]))
        return time.thread_time() - began

    assert min(computed(80_000) for _ in range(3)) < max(0.5, 10 * min(computed(20_000) for _ in range(3)))


def test_every_kind_is_documented() -> None:
    text = Path(module.__file__).with_name("rules.toml").read_text("utf-8")
    assert all(f"\n{kind} = " in text for kind, *_ in SUSPICIOUS)
