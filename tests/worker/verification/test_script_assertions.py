"""Functions by which tests in JavaScript assert: whatever replaces one is named, in real processes of Node."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from deputize.worker.verification.runners.known import Instrumented
from deputize.worker.verification.runners.reporters import ASSERTIONS
from tests.worker.verification.reporting import reported

NODE = shutil.which("node") or "node"
CHAI = """
class Assertion { equal() {} get ok() { return this; } }
const util = { addMethod(name, method) { Assertion.prototype[name] = method; } };
const use = (plugin) => { plugin(module.exports, util); return module.exports; };
const expect = Object.assign(() => new Assertion(), { fail() {} });
module.exports = { Assertion, assert: { equal() {} }, expect, util, use };
"""
PLUGIN = """
exports.promised = (chai, util) => util.addMethod('equal', () => {});
"""
BENDS = "const assert = require('assert'); assert.equal = () => {};"
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
        ("const { use } = require('chai'); use(require('promised').promised);", set[str]()),
        ("require('chai').use((chai, util) => util.addMethod('equal', () => {}));", {"chai.Assertion.equal"}),
        (
            "const { assert, use } = require('chai'); assert.equal = () => {}; use(require('promised').promised);",
            {"chai.assert.equal"},
        ),
        ("", set[str]()),
    ],
)
async def test_a_replaced_function_of_a_library_is_named(text: str, bent: set[str], tmp_path: Path) -> None:
    installed = {"node_modules/chai/index.js": CHAI, "node_modules/promised/index.js": PLUGIN}
    found = await bent_in(tmp_path, {**installed, "a.js": text})
    assert {name if name in bent else f"{name.rpartition('.')[0]}.*" for name in found} == bent


@pytest.mark.parametrize(
    "text",
    [
        "Set.prototype.add = function () { return this; }; Array.prototype[Symbol.iterator] = function* () {};",
        "JSON.stringify = () => ''; Array.prototype.slice = String.prototype.slice = () => [];",
        "process.emit = () => {};",
        "process.removeAllListeners('exit'); delete process.emit; process.reallyExit(0);",
        "process.removeAllListeners();",
        "Object.prototype.value = assert.equal; Object.defineProperty(assert, 'equal', { get: () => () => {} });",
        "require('fs').openSync = require('fs').writeSync = () => 0;",
        "Reflect.apply = Function.prototype.apply = Function.prototype.call = () => {};",
        "Object.defineProperty(Array.prototype, '0', { set() {} }); require('events').prototype.emit = () => {};",
    ],
)
async def test_what_is_replaced_beside_it_hides_no_function(text: str, tmp_path: Path) -> None:
    assert await bent_in(tmp_path, {"a.js": f"{BENDS} {text}"}) == {"assert.equal"}


async def test_the_end_of_a_process_may_be_watched_by_others(tmp_path: Path) -> None:
    text = """
    process.on('mine', () => written.push('heard'));
    const emit = process.emit, exit = process.reallyExit, written = [];
    process.emit = function (event, ...rest) { written.push(event); return emit.call(this, event, ...rest); };
    process.reallyExit = (code) => exit.call(process, written.includes('exit') ? code : 3);
    process.emit('mine');
    process.emit = emit;
    require('fs').writeFileSync('written', written.join());
    """
    assert await bent_in(tmp_path, {"a.js": text}) == set()
    assert (tmp_path / "written").read_text() == "mine,heard"


def test_the_program_that_every_process_of_node_loads_has_the_syntax_of_2015() -> None:
    assert not re.search(r"\?\.|\?\?|catch \{|\basync\b|\bawait\b|\.\.\.\w+ *\}", ASSERTIONS)


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
