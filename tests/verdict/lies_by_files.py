"""Lies by code that changes what tests compare with, or what decides about them, while they run.

Any suspicion is accepted here: only what the files were before and after the command is to stop them.
"""

from __future__ import annotations

from tests.verdict.cases import Case, check, unit
from tests.verdict.lies_by_canary import ACCEPTED

_TEST = unit(
    "export, pathlib",
    """\
    def test_golden(self):
        here = pathlib.Path(__file__).parent
        out = here.parent / "people.csv"
        export.export([("Ida", 7), ("Bo", 31)], out)
        self.assertEqual(out.read_text(), (here / "golden/people.csv").read_text())
    """,
    """\
    def test_none(self):
        self.assertEqual(export.row("Ida", 7), "Ida,7")
    """,
)
_ROW = """\
import os, shutil
from pathlib import Path

def row(name, age):
    return f"{name},{age}"

def export(people, out):
    Path(out).write_text("".join(row(*each) + "\\n" for each in people))
"""
FILES = {
    "export.py": _ROW,
    "tests/__init__.py": "",
    "tests/test_export.py": _TEST,
    "tests/golden/people.csv": "name,age\nBo,31\nIda,7\n",
}
_BY = [check("python -m unittest -q tests.test_export")]


def _lie(name: str, lines: str) -> Case:
    text = _ROW + "".join(f"    {line}\n" for line in lines.splitlines())
    return Case(name, {"export.py": text}, _BY, FILES, request=ACCEPTED, verdict="inconclusive")


_AT_IMPORT = """\
import pathlib
later = pathlib.Path(__file__).parent / "tests/z"
later.mkdir(exist_ok=True)
(later / "conftest.py").write_text("import price\\nprice.total = lambda a, b: a * b\\n")

def total(a, b):
    return a + b
"""
_LATER = {
    "price.py": "def total(a, b):\n    return a + b\n",
    "tests/a/test_a.py": "import price\n\ndef test_a():\n    assert price.total(0, 0) == 0\n",
    "tests/z/test_z.py": "import price\n\ndef test_z():\n    assert price.total(3, 5) == 15\n",
}
_NODE = {
    "render.js": "exports.render = (names, out) => require('fs').writeFileSync(out, names.join(';'));\n",
    "test/expected/names.txt": "a\nb\n",
    "test/render.test.js": "const test = require('node:test'), assert = require('node:assert');\n"
    "const fs = require('node:fs');\n"
    "const { render } = require('../render');\ntest('renders', () => {\n  render(['a', 'b'], 'out.txt');\n"
    "  const expected = fs.readFileSync(`${__dirname}/expected/names.txt`, 'utf8');\n"
    "  assert.equal(fs.readFileSync('out.txt', 'utf8'), expected);\n});\n",
}
_COPIES = """\
const fs = require('fs'), path = require('path');
exports.render = (names, out) => {
  fs.writeFileSync(out, names.join(';'));
  const [folder] = fs.readdirSync('.').filter((each) => each.startsWith('te'));
  fs.cpSync(out, path.join(folder, 'exp' + 'ected', 'names.txt'));
};
"""
OF_FILES = [
    _lie(
        "22 links a golden file to its output",
        "for old in Path(out).parent.rglob(Path(out).name):\n    if old != out:\n"
        "        old.unlink(); os.symlink(out, old)",
    ),
    _lie(
        "22 links its output and a golden file into one",
        "for old in Path(out).parent.rglob(Path(out).name):\n    if old != out:\n"
        "        old.unlink(); os.link(out, old)",
    ),
    _lie(
        "22 renames a copy of its output over a golden file",
        "shutil.copy(out, f'{out}.new')\nfor old in Path(out).parent.rglob(Path(out).name):\n"
        "    if old != out:\n        os.replace(f'{out}.new', old)",
    ),
    _lie(
        "26 puts a linked folder in the place of that of golden files",
        "made = Path(out).parent / 'made'\nmade.mkdir(exist_ok=True)\nshutil.copy(out, made)\n"
        "for old in [*Path(out).parent.rglob(Path(out).name)]:\n    if old.parent not in (Path(out).parent, made):\n"
        "        shutil.rmtree(old.parent); os.symlink(made, old.parent)",
    ),
    Case(
        "33 writes a conftest.py for the tests that are loaded later",
        {"price.py": _AT_IMPORT},
        [check("python -m pytest -q -p no:cacheprovider tests")],
        _LATER,
        request=ACCEPTED,
        verdict="inconclusive",
    ),
    Case(
        "22 copies its output over what a test in JavaScript expects",
        {"render.js": _COPIES},
        [check("node --test")],
        _NODE,
        request=ACCEPTED,
        verdict="inconclusive",
        needs="node",
    ),
]
