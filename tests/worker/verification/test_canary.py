"""Canaries: each test that passed is broken where it stands, in every language of a known runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.worker.verification.canary import break_by_patch, break_tests
from deputize.worker.verification.reports import Place, Report, TestState

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
    assert found.count("raise AssertionError('broken on purpose')\n") == 3
    assert "def helper(self):\n        return 1" in found
    assert compile(found, "test_a.py", "exec")


def test_a_test_that_did_not_pass_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PYTHON)
    seen = report(one=("/workspace/test_a.py", "test_one"))
    seen.tests["one"] = "failed"
    assert not break_tests(tmp_path, seen, []).anything
    assert (tmp_path / "test_a.py").read_text() == PYTHON


@pytest.mark.parametrize("text", ["def test_one(:\n", "x = 1\n", "\0"])
def test_a_file_without_the_test_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "test_a.py").write_text(text)
    assert not break_tests(tmp_path, report(one=("/workspace/test_a.py", "test_one")), []).anything
    assert not break_tests(tmp_path, report(one=("/workspace/gone.py", "test_one")), []).anything
    assert (tmp_path / "test_a.py").read_text() == text


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a_test.go", GO, ['(t *testing.T) { t.Fatal("broken on purpose");']),
        ("src/lib.rs", RUST, ['fn one() { panic!("broken', 'fn two() -> Result<(), ()> { panic!("broken']),
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
    assert found.count("broken on purpose") == len(wanted)


def test_every_test_of_a_file_in_javascript_is_broken(tmp_path: Path) -> None:
    (tmp_path / "a.test.ts").write_text(NODE)
    assert break_tests(tmp_path, report(one=("/workspace/a.test.ts", "adds")), []).anything
    assert (tmp_path / "a.test.ts").read_text().count('{ throw new Error("broken on purpose");') == 3


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
