"""Tests in JavaScript that are rewritten: executed by Node as they are, broken, and by a program that lies."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deputize.worker.verification.sources.broken_functions import Shape
from deputize.worker.verification.sources.broken_scripts import broken_script, reversed_script

TESTS = """\
const test = require('node:test'), assert = require('node:assert');
const expect = (a) => ({ toBe: (b) => assert.strictEqual(a, b),
  toBeCloseTo: (b) => assert.ok(LIES || Math.abs(a - b) < 1),
  not: { toBe: (b) => assert.notStrictEqual(a, b) } });
const LIES = process.argv.includes('lies');
if (LIES) for (const name of ['equal', 'strictEqual', 'deepEqual', 'ok']) assert[name] = () => {};
test('arrow', () => expect(3).toBe(1 + 2));
test("block", async () => { assert.equal(f(1, "),"), 4); assert.deepEqual([1, { a: 2 }], [1, { a: 2 }]); });
test('close', function () { expect(3.1).toBeCloseTo(3); }, );
test('truth', () => { assert.ok(1 < 2, 'message'); });
test('nothing', () => { /* ) */ });
test('patterns', () => { assert.ok(/\\)/.test(')')); assert.equal('a}'.replace(/[)}"']/g, ''), 'a'); });
// test('commented out', () => expect(3).toBe(4));
if (true) {
  // test('commented out too', () => {
  // });
}
test('callback', (t) => { assert.equal(1, 1); });
test('negated', () => expect(3).not.toBe(4));
function f(a, b) { return a + 1 + b.length; }
"""
BODIES = {"arrow", "block", "close", "truth", "nothing", "patterns", "negated"}


@pytest.mark.parametrize("suffix", ["cjs", "cts"])
@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("lies", [True, False])
def test_broken_tests_pass_only_where_assertions_lie(tmp_path: Path, suffix: str, breaks: bool, lies: bool) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    made = broken_script(TESTS, Shape(breaks), is_typed=suffix == "cts")
    assert made is not None
    assert made.titles == BODIES
    if suffix == "cts":
        assert "given: any" in made.text
        return
    (tmp_path / "a.test.cjs").write_text(made.text)
    done = subprocess.run([node, "a.test.cjs", *["lies"] * lies], cwd=tmp_path, capture_output=True, text=True)
    passed = {line.split(" - ")[1] for line in done.stdout.splitlines() if line.startswith("ok ")} or {
        line.split()[1] for line in done.stdout.splitlines() if line.startswith("\u2714")
    }
    assert passed == (
        {*BODIES, "callback"} if not breaks else {"arrow", "block", "close", "truth", "patterns"} if lies else set()
    ), json.dumps(done.stdout)


@pytest.mark.parametrize("text", ["", "test('a'", "test('a', () => (", "const x = 1;", "x" * 300_000])
def test_a_file_without_whole_tests_is_left_alone(text: str) -> None:
    assert broken_script(text, Shape(breaks=True), is_typed=False) is None


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("test('a', () => {});\ntest('b', () => {});\ntest('c', async () => { f(1, 2); });\n", "cba"),
        ("it('a', () => f(')')); it('b', function () { f('('); });", "ba"),
        ("describe('x', () => {\n  it('a', () => {});\n  it('b', () => {});\n});\nit('c', () => {});\n", "bac"),
        ("test('a', (done) => { done(); }, 500);\nconst c = { d: [1] };\ntest('b', () => {});\n", "ba"),
        ("test('a', async (t) => {\n  await t.test('b', () => {});\n  await t.test('c', () => {});\n});\n", "abc"),
        ("// test('a', () => {});\ntest('b', () => {});\ntest('c', () => {});\n", "acb"),
        ("test('a', () => {\n", "a"),
        ("", ""),
    ],
)
def test_tests_beside_each_other_are_put_into_reverse(text: str, order: str) -> None:
    found = reversed_script(text)
    assert "".join(re.findall(r"(?:test|it)\('(\w)'", found)) == order
    assert sorted(found) == sorted(text)


def test_a_script_that_is_too_long_stays_as_it_is() -> None:
    text = "test('a', () => {});test('b', () => {});" * 10_000
    assert reversed_script(text) == text
