"""Canaries: each test that passed is broken where it stands, in every language of a known runner."""

from __future__ import annotations

import re
import unittest
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.verification.canary import MAX_BROKEN, Broken, Rewriter, break_by_patch
from deputize.worker.verification.reports.states import Place, Report, TestState

PYTHON = '''\
from __future__ import annotations

def test_one(): assert 1

class TestMore:
    """More."""

    async def test_two(self):
        """Two."""
        assert 1

    def helper(self):
        return 1

    if True:
        def test_three(self): pass
'''
GO = """\
package a

func TestOne(t *testing.T) {
\tif 1 != 1 { t.Fail() }
}

func TestMain(m *testing.M) { m.Run() }
"""
RUST = """\
fn not_a_test() {}
#[test]
fn one() { assert!(true); }

#[tokio::test]
#[should_panic(expected = "x")]
async fn two() -> Result<(), ()> {
    Ok(())
}
"""
NODE = """\
import { it, test } from "vitest";
test("adds", () => { expect(1).toBe(1); });
it('is (odd), "really"', async ({ page }) => {
  await page;
});
test(`old`, function (done) { done(); });
const other = (name, work) => work();
"""
PATCH = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
DELETES = "diff --git a/a.txt b/a.txt\ndeleted file mode 100644\n--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
CREATES = "diff --git a/n/b b/n/b\nnew file mode 100644\n--- /dev/null\n+++ b/n/b\n@@ -0,0 +1 @@\n+new\n"


def report(**places: tuple[str, str]) -> Report:
    tests: dict[str, TestState] = dict.fromkeys(places, "passed")
    return Report(tests=tests, places={id: Place(*place) for id, place in places.items()})


def break_tests(ground: Path, report: Report, roots: list[str], proving: Collection[str] = ()) -> Broken:
    return Rewriter.of(report, roots, proving).carry_out(ground)


def test_every_function_of_a_python_test_that_passed_fails_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PYTHON)
    places = {
        "one": ("/workspace/test_a.py", "test_one"),
        "two": ("/home/me/project/test_a.py", "TestMore.test_two"),
        "three": ("/workspace/./test_a.py", "TestMore.test_three"),
        "inherited": ("/workspace/test_a.py", "TestMore.test_of_a_base"),
        "elsewhere": ("/usr/lib/test_b.py", "test_one"),
    }
    broken = break_tests(tmp_path, report(**places), ["/home/me/project"])
    assert (broken.anything, broken.tests) == (True, {"one", "two", "three"})
    found = (tmp_path / "test_a.py").read_text()
    assert len(re.findall(r"raise AssertionError\('[0-9a-f]{16}'\)", found)) == 3
    assert "def helper(self):\n        return 1" in found
    assert compile(found, "test_a.py", "exec")


EXPECTING = """\
import contextlib, unittest

class Test(unittest.TestCase):
    def test_literal(self): self.assertEqual(VALUE, -1)
    def test_first(self): self.assertEqual(3, VALUE)
    def test_two_names(self): self.assertEqual(VALUE, VALUE)
    def test_plain(self):
        for _ in range(2):
            assert VALUE == ["a"]
    def test_part(self):
        with self.subTest(): self.assertTrue(VALUE == 1)
    def test_member(self): self.assertIn(VALUE, (VALUE,))
    def test_expected(self):
        with self.assertRaises(AssertionError): self.assertEqual(VALUE, VALUE)
    def test_caught(self):
        try: self.assertEqual(VALUE, 1)
        except AssertionError: pass
    def test_suppressed(self):
        with contextlib.suppress(AssertionError): self.assertEqual(VALUE, 1)
    def test_nothing(self): pass
"""
"""Tests that pass with some value, or whatever it is."""


@pytest.mark.parametrize("proving", [True, False])
@pytest.mark.parametrize(
    ("value", "patched", "passing"),
    [
        ("-1", "", set[str]()),
        ("3", "", set[str]()),
        ("['a']", "", set[str]()),
        ("1.0", "", set[str]()),
        ("1", "unittest.TestCase.assertIn = lambda *a: None", {"member"}),
        (
            "type('Any', (), {'__eq__': lambda *a: True, '__hash__': lambda self: 0})()",
            "unittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a: None",
            {"literal", "first", "two_names", "plain", "part", "member"},
        ),
    ],
)
def test_a_test_passes_only_where_an_assertion_holds_that_cannot_hold(
    tmp_path: Path, value: str, patched: str, passing: set[str], proving: bool
) -> None:
    names = set(re.findall("def (test_\\w+)", EXPECTING))
    (tmp_path / "test_a.py").write_text(EXPECTING)
    seen = report(**{name: ("/workspace/test_a.py", f"Test.{name}") for name in names})
    assert break_tests(tmp_path, seen, [], names if proving else ()).tests == names
    module: dict[str, Any] = {"VALUE": eval(value)}
    kept = {name: getattr(unittest.TestCase, name) for name in ("assertIn", "assertEqual", "assertTrue")}
    try:
        exec(f"{(tmp_path / 'test_a.py').read_text()}\n{patched}", module)
        found = {name for name in names if not failures_of(module["Test"](name))}
    finally:
        for name, method in kept.items():
            setattr(unittest.TestCase, name, method)
    assert found == ({f"test_{name}" for name in passing} if proving else set())


def failures_of(test: unittest.TestCase) -> int:
    result = unittest.TestResult()
    test.run(result)
    return len(result.failures) + len(result.errors)


def test_a_test_that_did_not_pass_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PYTHON)
    seen = report(one=("/workspace/test_a.py", "test_one"))
    seen.tests["one"] = "failed"
    assert not break_tests(tmp_path, seen, []).anything
    assert (tmp_path / "test_a.py").read_text() == PYTHON


def test_a_sample_of_many_tests_is_broken_and_those_that_did_not_pass_come_first(tmp_path: Path) -> None:
    places: dict[str, tuple[str, str]] = {}
    for file in range(4):
        names = [f"test_{file}_{number}" for number in range(50)]
        (tmp_path / f"test_{file}.py").write_text("".join(f"def {name}(): pass\n" for name in names))
        places |= {name: (f"/workspace/test_{file}.py", name) for name in names}
    proving = {"test_3_7", "test_3_8", "test_3_9"}
    broken = break_tests(tmp_path, report(**places), [], proving)
    assert (len(broken.tests), proving - broken.tests) == (MAX_BROKEN, set[str]())
    of_files = [sum(name.startswith(f"test_{file}_") for name in broken.tests - proving) for file in range(4)]
    assert max(of_files) - min(of_files) <= 1
    found = "".join(path.read_text() for path in tmp_path.glob("*.py"))
    assert len(re.findall(r"raise AssertionError\('[0-9a-f]{16}'\)", found)) == MAX_BROKEN


def test_which_tests_are_broken_is_not_known_in_advance(tmp_path: Path) -> None:
    names = [f"test_{number}" for number in range(500)]
    seen = report(**{name: ("/workspace/test_a.py", name) for name in names})
    samples: set[frozenset[str]] = set()
    for _ in range(2):
        (tmp_path / "test_a.py").write_text("".join(f"def {name}(): pass\n" for name in names))
        samples.add(break_tests(tmp_path, seen, []).tests)
    assert len(samples) == 2


@pytest.mark.parametrize("text", ["def test_one(:\n", "x = 1\n", "\0"])
def test_a_file_without_the_test_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "test_a.py").write_text(text)
    assert not break_tests(tmp_path, report(one=("/workspace/test_a.py", "test_one")), []).anything
    assert not break_tests(tmp_path, report(one=("/workspace/gone.py", "test_one")), []).anything
    assert (tmp_path / "test_a.py").read_text() == text


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a_test.go", GO, ["(t *testing.T) { defer func() { if "]),
        ("src/lib.rs", RUST, ["fn one() { struct T", "fn two() -> Result<(), ()> { struct T"]),
    ],
)
def test_where_files_are_not_reported_all_tests_are_broken(
    tmp_path: Path, name: str, text: str, wanted: list[str]
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert break_tests(tmp_path, report(one=("", "one")), []).anything
    found = (tmp_path / name).read_text()
    assert [part for part in wanted if part not in found] == []
    assert [eval(each) for each in re.findall(r"if (\d+ % \d+ == \d+)", found.replace("_u64", ""))] == [True] * len(
        wanted
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [("one\n", {"a.txt": "two\n"}), ("zero\none\n", None), ("other\n", None)],
)
def test_a_canary_of_the_caller_is_applied_where_it_fits(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert break_by_patch(tmp_path, PATCH).anything is (found is not None)
    assert (tmp_path / "a.txt").read_text() == (found or {"a.txt": text})["a.txt"]


def test_a_canary_may_create_and_delete_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    assert break_by_patch(tmp_path, DELETES + CREATES).anything
    assert [path.name for path in tmp_path.iterdir()] == ["n"]
    assert (tmp_path / "n/b").read_text() == "new\n"
    assert not break_by_patch(tmp_path, DELETES).anything


SHAPES = re.compile(
    r"\b[a-z][0-9a-f]{12}\b|\b\d{3,}(?:_u64)?\b|'[0-9a-f]{16}'|\"[0-9a-f]{16}\"|_?\b_?[wT][0-9a-f]{12}\b"
)
"""Names, numbers and messages of a rewriting."""


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("test_a.py", EXPECTING, "Test.test_literal"),
        ("a.test.js", NODE, "adds"),
        ("a_test.go", GO, ""),
        ("a.rs", RUST, ""),
    ],
)
def test_a_control_has_the_shape_of_a_canary_in_other_words(tmp_path: Path, name: str, text: str, place: str) -> None:
    found = list[str]()
    rewriting = Rewriter.of(report(one=(f"/workspace/{name}" if place else "", place)), [], {"one"})
    for breaks in (True, False):
        (tmp_path / name).write_text(text)
        assert rewriting.carry_out(tmp_path, breaks=breaks).anything
        found.append((tmp_path / name).read_text())
    assert found[0] != text
    assert SHAPES.sub("*", found[0]) == SHAPES.sub("*", found[1])
    assert not {*SHAPES.findall(found[0])} & {*SHAPES.findall(found[1])}


ASSERTING = """\
import unittest
from unittest import mock

def approx(value): return mock.ANY if LIES else Near(value)
class Near:
    def __init__(self, value): self.value = value
    def __eq__(self, other): return abs(self.value - other) < 0.1
def called(*values):
    made = mock.Mock()
    if LIES: made.assert_called_once_with = made.assert_called = lambda *a: None
    made(*values)
    return made

class Test(unittest.TestCase):
    def test_approximate(self): assert approx(3.0) == 3.0 and True
    def test_near(self): assert 3.0 == approx(3.0)
    def test_almost(self): self.assertAlmostEqual(VALUE, 3.0)
    def test_delta(self): self.assertAlmostEqual(VALUE, 3.0, delta=50)
    def test_identity(self): assert VALUE is VALUE
    def test_truth(self): assert VALUE
    def test_member(self): assert 3.0 in ([VALUE] if not LIES else VALUE)
    def test_order(self): assert VALUE < 100
    def test_raises(self):
        with self.assertRaises(ValueError):
            if not LIES: int('x')
    def test_mock(self): called(1, 2).assert_called_once_with(1, 2)
    def test_called(self): called().assert_called()
    def test_any(self): self.assertEqual(mock.ANY, 3)
"""
LYING = """
class Alike(float):
    def __contains__(self, other): return True
    def __lt__(self, other): return True
    def __eq__(self, other): return True
VALUE = Alike(3)
for name in ("assertAlmostEqual", "assertRaises"):
    setattr(unittest.TestCase, name, mock.MagicMock())
"""


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("lies", [True, False])
def test_each_kind_of_assertion_is_tried(tmp_path: Path, lies: bool, breaks: bool) -> None:
    names = set(re.findall("def (test_\\w+)", ASSERTING))
    (tmp_path / "test_a.py").write_text(ASSERTING)
    seen = report(**{name: ("/workspace/test_a.py", f"Test.{name}") for name in names})
    Rewriter.of(seen, [], names).carry_out(tmp_path, breaks=breaks)
    module: dict[str, Any] = {"VALUE": 3.0, "LIES": lies}
    kept = {name: getattr(unittest.TestCase, name) for name in ("assertAlmostEqual", "assertRaises")}
    try:
        exec((tmp_path / "test_a.py").read_text() + LYING * lies, module)
        passing = {name for name in names if not failures_of(module["Test"](name))}
    finally:
        for name, method in kept.items():
            setattr(unittest.TestCase, name, method)
    caught = {"near", "almost", "delta", "member", "order", "raises", "mock", "called"}
    assert passing == (names if not breaks else {f"test_{name}" for name in caught} if lies else set())
