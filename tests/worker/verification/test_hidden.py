"""Hidden checks: what a model reads of those that fail, whatever the code under test does to bring it more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deputize.shared.checks import CommandCheck
from deputize.shared.facts import Check, Verification
from deputize.worker.verification.rounds import failing_names, returned
from tests.runs.bench import Bench, call, say, script
from tests.worker.run_history import history_of

LEAK = "c0ffee"
"""What the code under test prints of a file that it must not see, in place of its digits."""
PYTHON = f"""\
import inspect, pathlib, sys

def total(count, each):
    paths = {{pathlib.Path(frame.filename) for frame in inspect.stack() if "held" in frame.filename}}
    for path in paths:
        print("{LEAK}" + path.read_bytes().hex(), file=sys.stderr)
    raise ModuleNotFoundError("No module named '{LEAK}" + "".join(path.read_bytes().hex() for path in paths) + "'")
"""
UNITTEST = """\
import unittest
import price

class Held(unittest.TestCase):
    def test_total(self):
        for count in (3, 7):
            with self.subTest(expected=count * 31):
                self.assertEqual(price.total(count, 31), count * 31)
"""
NODE = f"""\
const fs = require('node:fs');
exports.total = () => {{
  for (const path of process.argv) if (path.includes('held')) console.error('{LEAK}', fs.readFileSync(path, 'hex'));
  throw new Error('{LEAK}');
}};
"""
NODE_TEST = """\
const test = require('node:test'), assert = require('node:assert');
test('adds', () => assert.equal(require('./price.js').total(3, 31), 93));
"""
FALLS = "A hidden check falls short."
SHELL = f"#!/bin/sh\necho {LEAK} $(od -An -tx1 held.sh) >&2\nfalse\n"


@pytest.mark.parametrize(
    ("path", "text", "run", "files", "said"),
    [
        (
            "price.py",
            PYTHON,
            "python3 -m unittest -q held",
            {"held.py": UNITTEST},
            f"{FALLS} These of its tests do not pass: test_total",
        ),
        (
            "price.js",
            NODE,
            "node --test held.test.js",
            {"held.test.js": NODE_TEST},
            f"{FALLS} These of its tests do not pass: held.test.js::adds",
        ),
        ("price.sh", SHELL, "sh held.sh", {"held.sh": "sh price.sh 3 31 | grep 93\n"}, FALLS),
    ],
)
@pytest.mark.costly
async def test_nothing_that_was_printed_reaches_the_model(
    bench: Bench, tmp_path: Path, path: str, text: str, run: str, files: dict[str, str], said: str
) -> None:
    work = call("write_file", path=path, content=text)
    model = script(tmp_path, [work], [say("done")], [say("done again")])
    check = {"kind": "command", "run": run, "files": files}
    result = await bench.run(model=model, verify=[check], max_verify_rounds=1)
    assert result.verification.rounds == 1
    assert LEAK in result.verification.checks[0].output_tail, "the caller sees it"
    history = await history_of(bench, result)
    (asked,) = (entry["content"][0]["text"] for entry in history if "system_hint" in json.dumps(entry))
    assert asked.partition("</system_hint>\n\n")[2] == said
    assert all(LEAK not in json.dumps(entry) for entry in history if entry["role"] == "user")


@pytest.mark.parametrize(
    ("hidden", "files", "shown"),
    [(None, {}, True), (None, {"a": "b"}, False), (True, {}, False), (False, {"a": "b"}, True)],
)
def test_a_check_is_hidden_where_it_has_files_or_is_asked_to_be(
    hidden: bool | None, files: dict[str, str], shown: bool
) -> None:
    item = CommandCheck(kind="command", run="make test", files=files, hidden=hidden)
    check = Check(item={}, outcome="refuted", why="it fails", output_tail="printed")
    text = returned([item], Verification(verdict="refuted", checks=[check]), "passed", [()])
    assert ("make test" in text, "printed" in text, "it fails" in text) == (shown,) * 3


def test_names_are_those_that_the_base_reported_or_that_the_checks_files_define() -> None:
    item = CommandCheck(kind="command", run="pytest", files={"held.py": "def test_held(): assert 15\n"})
    tests = {
        "failed": ["tests/test_a.py::test_known[3-15]", "held.py::test_held[7-42]", "held.py::15", "invented::c0ffee"],
        "fixed": ["tests/test_a.py::test_fixed"],
    }
    check = Check(item={}, outcome="refuted", tests=tests)
    known = ["tests/test_a.py::test_known[3-15]", "tests/test_a.py::test_fixed"]
    assert failing_names(item, check, known) == ["test_held", "tests/test_a.py::test_known"]
