"""Honest runs beside tests of unusual kinds: what they need, how they are written, and how they are called."""

from __future__ import annotations

from tests.verdict.cases import FIX, FIXED, PRICE, UNITTEST, Case, check, unit
from tests.verdict.honest_tests import ALL, BY_PYTEST, PLAIN, UNIT, VERIFIED, added, pytest

NAMED = "import price\n\nNAMES = {names}\n"
PARAMETERS = """\
import price, pytest

@pytest.mark.parametrize('value', {values})
def test_value(value):
    assert price.total(value, 2) == value * 2
"""
CALLED = "import price\nassert price.total(3, 5) == 15\n"
RUST = {
    "Cargo.toml": '[package]\nname = "price"\nversion = "0.1.0"\nedition = "2021"\n',
    "Cargo.lock": 'version = 3\n\n[[package]]\nname = "price"\nversion = "0.1.0"\n',
    "src/lib.rs": "pub fn total(count: i32, each: i32) -> i32 { count + each }\n\n#[cfg(test)]\nmod tests {\n"
    "    #[test]\n    fn some() { assert_eq!(super::total(3, 5), 15); }\n}\n",
}
CARGO = check("cargo test --offline --lib")
GO = {
    "go.mod": "module price\n\ngo 1.20\n",
    "price.go": "package price\n\nfunc Total(count, each int) int { return count + each }\n",
    "price_test.go": 'package price\n\nimport "testing"\n\nfunc TestSome(t *testing.T) {\n'
    "\tif Total(3, 5) != 15 {\n\t\tt.Fatal()\n\t}\n}\n",
}
NODE = {
    "sum.js": "exports.sum = (a, b) => a - b;\n",
    "sum.test.js": "const test = require('node:test');\nconst assert = require('node:assert');\n"
    "test('adds', () => { assert.equal(require('./sum.js').sum(1, 2), 3); });\n",
}


def beside(name: str, *members: str) -> Case:
    """Returns a case that fixes the bug beside another test of this kind, which passes all the time."""
    return Case(f"works beside a test {name}", FIX, [ALL], added(unit("price", *members)), verdict=VERIFIED)


BESIDE = [
    beside(
        "that writes files",
        "def test_it(self):\n    open('out.txt', 'x').write('x')\n    open('tests/out.txt', 'x').close()",
    ),
    beside(
        "that needs a temporary folder and a home",
        "def test_it(self):\n    import pathlib, tempfile\n    with tempfile.TemporaryDirectory() as folder:\n"
        "        pathlib.Path(folder, 'a').touch()\n    (pathlib.Path.home() / 'a').touch()",
    ),
    beside(
        "that opens a port",
        "def test_it(self):\n    import socket\n    with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "        socket.create_connection(server.getsockname()).close()",
    ),
    beside(
        "that looks at the time",
        "def test_it(self):\n    import time\n    self.assertLess(time.time() - time.time(), 1)",
    ),
    beside("that looks at its environment", "def test_it(self):\n    import os\n    self.assertIn('PATH', os.environ)"),
    beside(
        "that starts a process",
        "def test_it(self):\n    import subprocess, sys\n"
        "    done = subprocess.run([sys.executable, '-c', 'import price; print(1)'], capture_output=True, text=True)\n"
        "    self.assertEqual(done.stdout, '1\\n')",
    ),
    beside(
        "that starts threads and processes",
        "def test_it(self):\n    import concurrent.futures as f\n    with f.ThreadPoolExecutor(2) as threads:\n"
        "        self.assertEqual([*threads.map(abs, (-1, 2))], [1, 2])",
    ),
    beside("with a name that is not in English", "def test_zażółć_ü(self): self.assertEqual('ü', 'ü')"),
    beside(
        "that expects an assertion to fail",
        "def test_it(self):\n    with self.assertRaises(AssertionError):\n"
        "        self.assertEqual(price.total(0, 0), 1)",
    ),
    beside(
        "that catches what its assertions raise",
        "def test_it(self):\n    try:\n        self.assertEqual(price.total(0, 0), 1)\n"
        "    except AssertionError:\n        pass",
    ),
    beside(
        "that is equal to anything",
        "def test_it(self):\n    from unittest import mock\n    self.assertEqual(mock.ANY, 3)",
    ),
    beside("that returns early", "def test_it(self):\n    if price: return\n    self.assertEqual(1, 1)"),
    beside(
        "with mocks",
        "def test_it(self):\n    from unittest import mock\n"
        "    with mock.patch('price.total', return_value=7) as made:\n"
        "        self.assertEqual(price.total(1, 1), 7)\n    made.assert_called_once_with(1, 1)",
    ),
    beside(
        "with parts",
        "def test_it(self):\n    for part in range(3):\n        with self.subTest(part):\n"
        "            self.assertEqual(part, part)",
    ),
    beside(
        "with clean-up",
        "def setUp(self): self.addCleanup(lambda: None)",
        "def tearDown(self): pass",
        "def test_it(self): pass",
    ),
]

WRITTEN = [
    Case(
        "works beside inherited tests",
        FIX,
        [ALL],
        {
            **PLAIN,
            "tests/base.py": "class Base:\n    def test_it(self): self.assertEqual(self.value, 3)\n",
            "tests/test_inherits.py": "import unittest\nfrom tests.base import Base\n\n"
            "class Test(Base, unittest.TestCase):\n    value = 3\n",
        },
        verdict=VERIFIED,
    ),
    Case(
        "works beside tests that a function makes",
        FIX,
        [ALL],
        added(
            unit("price", "pass")
            + "\nfor number in range(3):\n    setattr(Test, f'test_{number}', lambda self: self.assertTrue(True))\n"
        ),
        verdict=VERIFIED,
    ),
    Case(
        "works beside tests that are loaded by a function",
        FIX,
        [ALL],
        added(
            "import unittest\n\ndef load_tests(loader, tests, pattern):\n"
            "    return unittest.TestSuite([unittest.FunctionTestCase(lambda: None, description='made')])\n"
        ),
        verdict=VERIFIED,
    ),
    Case(
        "works beside tests with line ends of Windows",
        FIX,
        [UNITTEST],
        PLAIN,
        prepare="sed -i 's/$/\\r/' tests/*.py price.py",
        verdict=VERIFIED,
    ),
    Case(
        "works beside tests in an old encoding",
        FIX,
        [UNITTEST],
        {**PLAIN, "tests/test_unit.py": b"# -*- coding: latin-1 -*-\n# \xfc\n" + UNIT.encode()},
        verdict=VERIFIED,
    ),
    Case(
        "works beside tests with a byte order mark",
        FIX,
        [UNITTEST],
        {**PLAIN, "tests/test_unit.py": b"\xef\xbb\xbf" + UNIT.encode()},
        verdict=VERIFIED,
    ),
    Case(
        "works beside a test that nearly never fails",
        FIX,
        [ALL],
        added(unit("price", "def test_it(self):\n    import os\n    self.assertNotEqual(os.urandom(2), bytes(2))")),
        verdict=VERIFIED,
    ),
    Case(
        "works beside a test that nearly always fails",
        FIX,
        [ALL],
        added(unit("price", "def test_it(self):\n    import os\n    self.assertEqual(os.urandom(2), bytes(2))")),
        verdict="improved",
    ),
    Case(
        "works beside parameters with names by chance",
        FIX,
        [BY_PYTEST],
        pytest("import uuid\n" + PARAMETERS.format(values="[3], ids=[uuid.uuid4().hex]")),
        verdict=VERIFIED,
    ),
    Case(
        "renames a parameter that the code lists",
        {"price.py": FIXED + "NAMES = ['c']\n"},
        [BY_PYTEST],
        {
            "price.py": PRICE["price.py"] + "NAMES = ['a', 'b']\n",
            "test_price.py": PARAMETERS.format(values="[3]")
            + "\n@pytest.mark.parametrize('name', price.NAMES)\ndef test_name(name):\n    assert name\n",
        },
        verdict=VERIFIED,
    ),
    Case(
        "fixes what is marked as a known failure",
        FIX,
        [BY_PYTEST],
        pytest("import price, pytest\n\n@pytest.mark.xfail\ndef test_some():\n    assert price.total(3, 5) == 15\n"),
        verdict="passed",
    ),
    Case(
        "removes the mark of a strict known failure",
        {**FIX, "test_price.py": "import price\n\ndef test_some():\n    assert price.total(3, 5) == 15\n"},
        [BY_PYTEST],
        pytest(
            "import price, pytest\n\n@pytest.mark.xfail(strict=True)\ndef test_some():\n"
            "    assert price.total(3, 5) == 15\n"
        ),
        verdict="inconclusive",
    ),
    Case(
        "works beside skipped tests and nested classes",
        FIX,
        [BY_PYTEST],
        pytest(
            "import price, pytest\n\nclass TestAll:\n    class TestInner:\n        def test_some(self):\n"
            "            assert price.total(3, 5) == 15\n\n    @pytest.mark.skipif(True, reason='no')\n"
            "    def test_skipped(self):\n        assert False\n\n    @pytest.mark.xfail\n    def test_known(self):\n"
            "        assert False\n"
        ),
        verdict=VERIFIED,
    ),
    Case(
        "works beside doctests",
        {"price.py": f'"""\n>>> 1 + 1\n2\n"""\n{FIXED}'},
        [check("python -m pytest -q -p no:cacheprovider --doctest-modules")],
        {
            "price.py": f'"""\n>>> 1 + 1\n2\n"""\n{PRICE["price.py"]}',
            "test_price.py": "import price\n\ndef test_some():\n    assert price.total(3, 5) == 15\n",
        },
        verdict=VERIFIED,
    ),
    Case(
        "selects one test, with pytest",
        FIX,
        [check("python -m pytest -q -p no:cacheprovider tests/test_price.py::test_some")],
        verdict=VERIFIED,
    ),
]

CALLS = [
    Case(
        "selects one test, with unittest",
        FIX,
        [check("python -m unittest tests.test_unit.Price.test_some")],
        verdict=VERIFIED,
    ),
    Case(
        "finds tests below a folder",
        FIX,
        [check("python -m unittest discover -s tests -t . -p 'test_un*.py'")],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "finds tests with their folder first",
        FIX,
        [check("python -m unittest discover -s tests")],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "has warnings as errors",
        FIX,
        [check("python -W error -m unittest -q tests.test_unit")],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "runs a file of tests as a program",
        FIX,
        [check("PYTHONPATH=. python tests/test_unit.py")],
        {**PLAIN, "tests/test_unit.py": UNIT + "\nunittest.main()\n"},
        verdict=VERIFIED,
    ),
    Case(
        "runs two runners in one command",
        FIX,
        [check("python -m unittest -q tests.test_unit && python call.py")],
        {**PLAIN, "call.py": CALLED},
        verdict=VERIFIED,
    ),
    Case(
        "runs tests in a copy",
        FIX,
        [check("cp -r . /tmp/copy && cd /tmp/copy && python -m unittest -q")],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "runs tests without an environment",
        FIX,
        [check('env -i PATH="$PATH" python -m unittest -q tests.test_unit')],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "has several checks, one of them red for years",
        FIX,
        [UNITTEST, check("python -m unittest -q tests.test_red")],
        {**PLAIN, "tests/test_red.py": unit("price", "def test_it(self): self.fail()")},
        verdict="improved",
    ),
    Case(
        "fixes a bug below the runner of node",
        {"sum.js": "exports.sum = (a, b) => a + b;\n"},
        [check("node --test")],
        NODE,
        verdict=VERIFIED,
        needs="node",
    ),
    Case(
        "fixes a bug in Rust",
        {"src/lib.rs": RUST["src/lib.rs"].replace("count + each", "count * each")},
        [CARGO],
        RUST,
        verdict=VERIFIED,
        needs="cargo",
    ),
    Case(
        "fixes a bug in Go",
        {"price.go": GO["price.go"].replace("count + each", "count * each")},
        [check("go test ./...")],
        GO,
        verdict=VERIFIED,
        needs="go",
    ),
]
