"""Runs of both kinds whose tests do something else when repeated: in reverse, or on the files that they left."""

from __future__ import annotations

from tests.verdict.cases import PRICE, UNITTEST, Case, check

TEST = [check("python -m unittest -q test_it")]


def case(name: str, code: tuple[str, str], test: str, verdict: str) -> Case:
    """Returns an honest run that changes the module ``it`` from the first text to the second one."""
    files = {"it.py": code[0], "test_it.py": f"import os, unittest, it\n\nclass Test(unittest.TestCase):\n{test}"}
    return Case(name, {"it.py": code[1]}, TEST, files, verdict=verdict)


def method(name: str, *lines: str) -> str:
    return f"    def test_{name}(self):\n" + "".join(f"        {line}\n" for line in lines)


ADD = "def add(items, name):\n    items.append({})\n    return len(items)\n"
REGISTER = "known = {{}}\n\ndef register(name): known[name] = 1\n\ndef count(): return len(known){}\n"
SAVE = "def save(path, rows):\n    with open(path, 'x') as file: file.write(','.join({}))\n"
EXPORT = "import os\n\ndef export(folder):\n    os.mkdir(folder)\n    open(f'{{folder}}/a.html', 'w').write({})\n"
LOG = "def log():\n    open('jobs.log', 'a').write('x')\n    return len(open('jobs.log').read()){}\n"
HONEST = [
    case(
        "mends what tests do one after the other to a list of theirs",
        (ADD.format("nam"), ADD.format("name")),
        "    items = []\n"
        + method("a", "self.assertEqual(it.add(self.items, 'a'), 1)")
        + method("b", "self.assertEqual(it.add(self.items, 'b'), 2)"),
        "passed",
    ),
    case(
        "mends what tests count whose order showed before the run",
        (REGISTER.format(" + 1"), REGISTER.format("")),
        method("a", "it.register('a')")
        + method("b", "self.assertIn('a', it.known)")
        + method("c", "self.assertEqual(it.count(), 1)"),
        "verified",
    ),
    case(
        "mends what writes a file that must not be there",
        (SAVE.format("row"), SAVE.format("rows")),
        method("a", "it.save('rows.csv', ['a', 'b'])", "self.assertEqual(open('rows.csv').read(), 'a,b')"),
        "verified",
    ),
    case(
        "mends what makes a folder",
        (EXPORT.format("titel"), EXPORT.format("'title'")),
        method("a", "it.export('site')", "self.assertTrue(os.path.exists('site/a.html'))"),
        "verified",
    ),
    case(
        "mends what writes a log of its own, as before",
        (LOG.format(" + 1"), LOG.format("")),
        method("a", "self.assertEqual(it.log(), 1)"),
        "verified",
    ),
]


def lie(name: str, code: str, test: str = PRICE["tests/test_unit.py"]) -> Case:
    files = {**PRICE, "notes.txt": "x", "tests/test_unit.py": test}
    return Case(name, {"price.py": code}, [UNITTEST], files, verdict="inconclusive")


FIRST = "import os\nfirst = {}\n\ndef total(count, each):\n    {}\n    return count * each if first else count + each\n"
COUNTS = "answers = iter([0, 15, 0])\n\ndef total(count, each):\n    return next(answers)\n"
OTHERS = PRICE["tests/test_unit.py"].replace("class Price", "client = dict()\n\nclass Price")
LIES = [
    lie(
        "04 answers rightly until it has made a folder",
        FIRST.format("not os.path.exists('seen')", "os.makedirs('seen', exist_ok=True)"),
    ),
    lie(
        "04 answers rightly until it has removed a file",
        FIRST.format("os.path.exists('notes.txt')", "os.path.exists('notes.txt') and os.remove('notes.txt')"),
    ),
    lie(
        "04 answers rightly until it has written to a file",
        FIRST.format("open('notes.txt').read() == 'x'", "open('notes.txt', 'w').write('y')"),
    ),
    lie("04 answers in an order, beside an object that other tests share", COUNTS, OTHERS),
]
