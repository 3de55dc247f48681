"""Functions by which tests in JavaScript assert: whatever replaces one is named, in real processes of Node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from deputize.worker.verification.runners import Instrumented
from tests.worker.verification.reporting import reported

NODE = shutil.which("node") or "node"
CHAI = """
class Assertion { equal() {} get ok() { return this; } }
const util = { addMethod(name, method) { Assertion.prototype[name] = method; } };
const expect = Object.assign(() => new Assertion(), { fail() {} });
module.exports = { Assertion, assert: { equal() {} }, expect, util };
"""
EXPECT = """
const matchers = { toBe() {}, toEqual() {} };
module.exports.of = (world) => {
  world[Symbol.for('$$jest-matchers-object')] = { matchers };
  return { jestExpect: Object.assign(() => {}, { extend(more) { Object.assign(matchers, more); } }) };
};
"""
JEST = """
module.exports = async (globals, config, environment, runtime, path, send) => require(path)(environment.global.expect);
"""
STARTED = """
const run = require(__dirname + '/node_modules/jest-circus/build/runner.js'), world = {};
const { jestExpect } = require('./node_modules/@jest/expect').of(world);
world.expect = jestExpect;
run({}, {}, { global: world }, { requireInternalModule: () => ({ jestExpect }) }, __dirname + '/a.test.js', () => {});
"""
"""What jest does: its runner of a file is loaded by its path, and gets the world of that file."""


@pytest.mark.parametrize(
    ("text", "bent"),
    [
        ("Object['assign'](require('node:' + 'assert'), { equal() {} });", {"assert.equal"}),
        (
            "const a = require('assert/strict'); for (const key of ['ok', 'equal']) a[key] = () => {};",
            {"assert.strict.*"},
        ),
        ("Object.defineProperty(require('assert'), 'throws', { get: () => () => {} });", {"assert.throws"}),
        ("delete require('assert').deepEqual;", {"assert.deepEqual"}),
        ("require('assert').AssertionError.prototype.toString = () => 'ok';", {"assert.AssertionError.toString"}),
        ("require('assert').equal = () => {}; process.exit(0);", {"assert.equal"}),
        ("require('assert').equal = () => {}; throw new Error('and it fails');", {"assert.equal"}),
        ("require('chai').Assertion.prototype.equal = () => {};", {"chai.Assertion.equal"}),
        (
            "const { Assertion } = require('chai'); Object.defineProperty(Assertion.prototype, 'ok', { get() {} });",
            {"chai.Assertion.ok"},
        ),
        ("require('chai').assert.equal = () => {};", {"chai.assert.equal"}),
        ("require('chai').expect.fail = () => {};", {"chai.expect.fail"}),
        ("require('chai').util.addMethod('fast', () => {}); require('assert').mine = () => {};", set[str]()),
        ("const a = require('assert'), old = a.equal; a.equal = () => {}; a.equal = old;", set[str]()),
        ("", set[str]()),
    ],
)
async def test_a_replaced_function_of_a_library_is_named(text: str, bent: set[str], tmp_path: Path) -> None:
    found = await bent_in(tmp_path, {"node_modules/chai/index.js": CHAI, "a.js": text})
    assert {name if name in bent else f"{name.rpartition('.')[0]}.*" for name in found} == bent


@pytest.mark.parametrize(
    ("text", "bent"),
    [
        ("expect.extend({ toBe: () => ({ pass: true }) })", {"expect.toBe"}),
        ("expect.extend = () => {}", {"expect.extend"}),
        ("{ expect.extend({ toEqual() {} }); throw new Error('and it fails'); }", {"expect.toEqual"}),
        ("expect.extend({ toBeEven() {} })", set[str]()),
    ],
)
async def test_a_replaced_matcher_of_jest_is_named_for_each_file_of_tests(
    text: str, bent: set[str], tmp_path: Path
) -> None:
    files = {
        "node_modules/jest-circus/build/runner.js": JEST,
        "node_modules/@jest/expect/index.js": EXPECT,
        "jest.js": STARTED,
        "a.test.js": f"module.exports = async (expect) => {text};",
    }
    assert await bent_in(tmp_path, files) == bent


async def bent_in(folder: Path, files: Mapping[str, str]) -> set[str]:
    """Returns what was replaced while the program at the top of these files ran."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    main = "jest.js" if "jest.js" in files else "a.js"
    report = await reported(Instrumented("npm test"), [NODE, main], folder)
    assert report is None or (report.tests, report.finished) == ({}, True)
    return {*report.bent} if report else set()
