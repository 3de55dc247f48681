"""What tests may hand on to each other, and what they leave: a failure in reverse may be no evidence against a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deputize.shared.checks import CommandCheck
from deputize.worker.verification.grounds.left_files import is_named, left, put_back
from deputize.worker.verification.reports.states import Place, Report, TestState
from deputize.worker.verification.runners.execution import Observed
from deputize.worker.verification.runners.known import Instrumented
from deputize.worker.verification.second_execution import Repetition, keeps_state
from deputize.worker.verification.verdict import Judgement, Observations

USED = {
    "a list of the module": "items = []\ndef test_it(): items.append(1)\n",
    "an object of the module": "shop = Shop()\ndef test_it(): assert shop.empty\n",
    "an attribute of the class": "class T:\n    seen: list = []\n    def test_it(self): assert not self.seen\n",
    "a global name": "count = 0\ndef test_it():\n    global count\n    count += 1\n",
    "set by another test": "class T:\n    def test_a(self): type(self).id = 3\n    def test_it(self): assert self.id\n",
    "set up once": "class T:\n    def setUpClass(cls): cls.db = make()\n    def test_it(self): self.db.close()\n",
    "a fixture of the module": "@pytest.fixture(scope='module')\ndef db(): yield 1\ndef test_it(db): assert db\n",
}
UNUSED = {
    "nothing": "def test_it(): assert total(3, 5) == 15\n",
    "a list of another test": "items = []\ndef test_a(): items.append(1)\ndef test_it(): assert total(3, 5) == 15\n",
    "a constant": "COUNT = 3\ndef test_it(): assert COUNT == 3\n",
    "a fixture of each test": "@pytest.fixture\ndef db(): yield 1\ndef test_it(db): assert db\n",
    "an attribute of its own": "class T:\n    def setUp(self): self.db = 1\n    def test_it(self): self.db.close()\n",
    "no Python": "def test_it(:\n",
}


@pytest.mark.parametrize("name", USED)
def test_what_another_test_may_have_changed_is_seen(name: str) -> None:
    assert keeps_state("test_a.py", USED[name], "T.test_it")


@pytest.mark.parametrize("name", UNUSED)
def test_what_no_other_test_changes_does_not_count(name: str) -> None:
    assert not keeps_state("test_a.py", UNUSED[name], "T.test_it")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("const items = [];\ntest('it', () => items.push(1));\n", True),
        ("describe('x', () => {\n  let db;\n  test('it', () => db.close());\n});\n", True),
        ("const items = [];\ntest('it', () => total(3));\ntest('b', () => items.push(1));\n", False),
        ("const { total } = require('./price');\ntest('it', () => total(3));\n", False),
        ("const LIMIT = 3;\ntest('it', () => total(LIMIT));\n", False),
    ],
)
def test_the_same_holds_in_javascript(text: str, kept: bool) -> None:
    assert keeps_state("a.test.js", text, "it") == kept


def test_nothing_is_known_of_other_languages() -> None:
    assert not keeps_state("a_test.go", "var items []int\nfunc TestIt(t *testing.T) { items = nil }\n", "TestIt")


@pytest.fixture
def grounds(tmp_path: Path) -> tuple[Path, Path]:
    """Two equal grounds: one for a command, and one that stays as it is."""
    made = tmp_path / "used", tmp_path / "fresh"
    for ground in made:
        (ground / "data").mkdir(parents=True)
        (ground / "empty").mkdir()
        (ground / "data/a.bin").write_bytes(b"\xff\xfe")
        (ground / "run.sh").write_text("#!/bin/sh\n")
        (ground / "run.sh").chmod(0o755)
        (ground / "data/out.txt").symlink_to(tmp_path / "secret")
        (ground / "inner").symlink_to("data")
    (tmp_path / "secret").write_text("of the worker")
    return made


def replaced(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def folder_for_file(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").touch()


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda used: (used / "data/a.bin").write_bytes(b"\xfd\xfc"),
    "a mode": lambda used: (used / "run.sh").chmod(0o644),
    "a program removed": lambda used: (used / "run.sh").unlink(),
    "a file for a link": lambda used: replaced(used / "data/out.txt", "made up"),
    "a file for a link to a directory": lambda used: replaced(used / "inner", "made up"),
    "a directory for a file": lambda used: folder_for_file(used / "run.sh"),
    "a directory for a link": lambda used: folder_for_file(used / "inner"),
    "a link for a directory": lambda used: (used / "data").rename(used / "gone") and (used / "data").symlink_to("gone"),
    "a link that leads out": lambda used: (used / "data").rename(used / "x") and (used / "data").symlink_to("../fresh"),
    "a file in an empty directory": lambda used: (used / "empty/x").touch(),
    "an empty directory removed": lambda used: (used / "empty").rmdir(),
    "all removed": lambda used: shutil.rmtree(used / "data"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_left_is_seen_and_undone_and_no_link_is_followed(grounds: tuple[Path, Path], name: str) -> None:
    used, fresh = grounds
    assert left(used, fresh) == set()
    CHANGES[name](used)
    paths = left(used, fresh)
    assert paths
    put_back(paths, used, fresh)
    assert left(used, fresh) == set()
    assert (used / "data/out.txt").is_symlink()
    assert (fresh.parent / "secret").read_text() == "of the worker"
    assert os.access(fresh / "run.sh", os.X_OK)


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("out.txt", "open('out.txt')", True),
        ("data/out.txt", 'open(f"{folder}/out.txt")', True),
        ("cache/ab12", "Cache('cache')", True),
        ("shop/.state", "from shop import x\npatch('shop.x')", False),
        ("shop/.state", "open('shop/price.py')", False),
        ("shop/price", "from shop import price", False),
        ("total", "assert shop.total(3) == 15", False),
        ("assertEqual/state", "self.assertEqual(1, 1)", False),
    ],
)
def test_a_test_names_what_it_leaves_and_not_by_words_of_the_code(path: str, text: str, named: bool) -> None:
    assert is_named(path, text, {"shop", "shop/price.py", "data"}) == named


def of(**tests: TestState) -> Observed:
    return Observed("green", 0, report=Report({**tests}))


@pytest.mark.parametrize(
    ("again", "fresh", "outcome"),
    [
        (of(a="passed"), of(a="passed"), "evidence"),
        (of(a="failed"), of(a="passed"), "inconclusive"),
        (Observed("trouble"), of(a="passed"), "inconclusive"),
        (Observed("trouble"), Observed("trouble"), "inconclusive"),
        (of(), of(a="passed"), "inconclusive"),
        (of(b="passed"), of(a="passed"), "inconclusive"),
        (of(a="skipped"), of(a="passed"), "inconclusive"),
    ],
    ids=["passed", "failed", "no report", "never a report", "empty", "another test", "skipped"],
)
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_test_that_is_not_reported_as_passed_has_failed(
    tmp_path: Path, again: Observed, fresh: Observed, outcome: str, leaves: bool
) -> None:
    (used := tmp_path / "used").mkdir()
    if leaves:
        (used / "out.txt").touch()

    def make(name: str, *_: Any) -> Path:
        path = tmp_path / f"{name}{len([*tmp_path.iterdir()])}"
        path.mkdir()
        return path

    async def run(ground: Path, *_: Any) -> Observed:
        return again if ground == used else fresh if ground.name.startswith("candidate") else of(a="failed")

    check: Any = SimpleNamespace(
        used=used,
        roots=(),
        grounds=SimpleNamespace(make=make),
        runner=SimpleNamespace(run=run),
        candidate=SimpleNamespace(changed=SimpleNamespace(base=0)),
    )
    item = CommandCheck(kind="command", run="pytest", files={"test_a.py": "open('out.txt')"})
    places = {"a": Place("test_a.py", "a")}
    observed = Observations(of(a="failed"), Observed("green", 0, report=Report({"a": "passed"}, places)))
    repetition = Repetition(check, item, Instrumented("pytest"), observed, frozenset({"a"}))
    judged = await repetition.judged(Judgement("evidence", "a turned green"), await repetition.run())
    assert judged.outcome == outcome
