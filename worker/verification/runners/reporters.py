"""Programs by which runners of tests report each test, where no option does: of unittest below others, Node, mocha.
Another one compares the libraries by which tests in JavaScript assert.

They run in the sandbox beside the code under test. ``NAME`` in them stands for the name of the execution.
"""

from __future__ import annotations

from .python_runners import LIBRARY, ORDER, PLACE, REPORTING

SITE = """
import importlib.util, os, sys
here = os.path.dirname(os.path.abspath(__file__))

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "unittest.runner":
            return None
        sys.meta_path[:] = [each for each in sys.meta_path if each is not Finder]
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            __import__("NAME_results").install(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
for folder in sys.path:
    file = os.path.join(folder, "sitecustomize.py")
    if os.path.abspath(folder) != here and os.path.isfile(file):
        with open(file, encoding="utf-8") as hidden:
            exec(compile(hidden.read(), file, "exec"), {"__name__": "sitecustomize", "__file__": file})
        break
"""
"""Python imports it at its start. It has unittest report its tests, whatever starts unittest, and executes what it
hides."""

RESULTS = f"""
import os, sys, unittest
from NAME_channel import begin, end, put
before = []

{PLACE}
{LIBRARY}
{ORDER}
{REPORTING}
def install(module):
    run, make = module.TextTestRunner.run, module.TextTestRunner._makeResult
    def made(self):
        result = make(self)
        if self.__dict__.get("_reports"):
            result.__class__ = reporting(type(result))
        return result
    def runs(self, test):
        if not begin():
            return run(self, test)
        self._reports = True
        result = run(self, in_order(test))
        end(end=0 if result.wasSuccessful() else 1, stopped=result.shouldStop, bent=replaced(before))
        return result
    module.TextTestRunner.run, module.TextTestRunner._makeResult = runs, made
    before.append(library())
"""
"""What it installs. While tests run, other tests that they run do not report."""

_SESSION = """
  const channel = connect('/opt/check/NAME_socket');
  let key = '';
  const opened = new Promise((resolve) => {
    channel.on('data', (part) => { key += part; if (key.endsWith('\\n')) resolve(key.trimEnd()); });
    for (const end of ['error', 'close']) channel.on(end, () => resolve(''));
  }).then((found) => { channel.unref(); return found; });
  const send = (key, fields) => { if (key) channel.write(key + JSON.stringify(fields) + '\\n'); };
  const closed = () => new Promise((resolve) => {
    channel.ref();
    for (const end of ['error', 'close']) channel.on(end, resolve);
    channel.end(() => channel.destroy());
    if (channel.destroyed) resolve();
  });
"""
"""A connection as that of ``CHANNEL``; it keeps no process alive that has nothing else to do."""
NODE = f"""
import {{ connect }} from 'node:net';
import {{ resolve as absolute }} from 'node:path';
{_SESSION}
export default async function* (source) {{
  const key = await opened, put = (fields) => send(key, fields);
  put({{ begin: 1 }});
  const above = new Map();
  for await (const {{ type, data }} of source) {{
    const names = above.get(data.file) ?? above.set(data.file, []).get(data.file);
    if (type === 'test:start') names.splice(data.nesting, Infinity, data.name);
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const failed = type === 'test:fail' && data.todo === undefined;
    if (data.details?.type === 'suite' && !failed) continue;
    const id = [data.file ?? '', ...names.slice(0, data.nesting), data.name].join('::');
    const skipped = data.skip !== undefined || data.todo !== undefined;
    const isFile = data.file !== undefined && absolute(data.name) === data.file;
    put({{ item: id, file: data.file ?? '', name: isFile ? '' : data.name }});
    put({{ test: id, state: failed ? 'failed' : skipped ? 'skipped' : 'passed' }});
  }}
  put({{ end: 0 }});
  await closed();
}}
"""
"""A reporter of ``node --test``, and of files that use ``node:test`` and are started alone."""

MOCHA = f"""
const fs = require('fs'), path = require('path'), {{ connect }} = require('net');
{_SESSION}
const find = () => {{
  try {{ return require.resolve('mocha', {{ paths: [process.cwd()] }}); }}
  catch (error) {{ return path.join(path.dirname(fs.realpathSync(process.argv[1])), '..'); }}
}};
const Mocha = require(find());
module.exports = class extends Mocha.reporters.Spec {{
  constructor(runner, options) {{
    super(runner, options);
    const put = (fields) => opened.then((key) => send(key, fields));
    put({{ begin: 1 }});
    const report = (state) => (test) => {{
      const file = test.file || (test.parent && test.parent.file) || '';
      const id = [file, ...test.titlePath()].join('::');
      put({{ item: id, file, name: test.title }});
      put({{ test: id, state }});
    }};
    runner.on('pass', report('passed'));
    runner.on('fail', report('failed'));
    runner.on('pending', report('skipped'));
    runner.on('end', () => put({{ end: 0 }}));
  }}
  done(failures, end) {{
    opened.then(closed).then(() => end(failures));
  }}
}};
"""
"""A reporter of mocha, which also prints what the usual one does."""

ASSERTIONS = """
'use strict';
const fs = require('fs'), path = require('path'), Module = require('module');
const { openSync, writeSync } = fs, flags = fs.constants.O_WRONLY | fs.constants.O_NONBLOCK;
const { apply, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
const text = String, { stringify } = JSON, { kill } = process;
const { hasOwnProperty } = Object.prototype, { indexOf } = String.prototype;
const known = { first: null }, ofChai = { first: null }, seen = Object.create(null);
let names = '', sent = 0;
const bend = (name) => {
  if (seen[name] || names.length + name.length > 3000) return;
  seen[name] = true;
  names += (names && ', ') + name;
};
const functionOf = (owner, key) => {
  const found = getOwnPropertyDescriptor(owner, key);
  const value = found && (apply(hasOwnProperty, found, ['value']) ? found.value : found.get);
  return typeof value === 'function' ? value : undefined;
};
const ofVitest = /[/\\\\](?:vitest|tinypool)[/\\\\]/.test(process.argv[1]);
const keep = (library, owner, into) => {
  const keys = owner ? ownKeys(owner) : [];
  for (let at = 0; at < keys.length; at++) {
    const key = keys[at], value = functionOf(owner, key);
    if (!value || ofVitest && /^throws?$/i.test(text(key))) continue;
    into.first = { name: `${library}.${text(key)}`, owner, key, value, next: into.first };
  }
};
const compare = (kept) => {
  for (let one = kept.first; one; one = one.next) if (functionOf(one.owner, one.key) !== one.value) bend(one.name);
};
const keepChai = (chai) => {
  ofChai.first = null;
  keep('chai.Assertion', chai.Assertion.prototype, ofChai);
  keep('chai.assert', chai.assert, ofChai);
  keep('chai.expect', chai.expect, ofChai);
  keep('chai.util', chai.util, ofChai);
};
const loaded = Module._cache;
const isInstalled = (extension) => {
  const files = ownKeys(loaded);
  for (let at = 0; at < files.length; at++) {
    const found = loaded[files[at]] && loaded[files[at]].exports;
    if (apply(indexOf, files[at], ['node_modules']) < 0 || !found) continue;
    if (found === extension) return true;
    const keys = typeof found === 'object' || typeof found === 'function' ? ownKeys(found) : [];
    for (let of = 0; of < keys.length; of++) if (functionOf(found, keys[of]) === extension) return true;
  }
  return false;
};
const watchChai = (chai) => {
  const { use } = chai;
  const value = function (extension) {
    if (!isInstalled(extension)) return apply(use, this, arguments);
    compare(ofChai);
    try { return apply(use, this, arguments); } finally { keepChai(chai); }
  };
  const watched = { value, writable: true, enumerable: true, configurable: true };
  if (!use || defineProperty(chai, 'use', watched)) keepChai(chai);
};

const assert = require('assert');
keep('assert', assert, known);
keep('assert.strict', assert.strict, known);
keep('assert.AssertionError', assert.AssertionError.prototype, known);
if (!/^(?:npm|npx|pnpm|yarn|corepack)\\b/.test(path.basename(process.argv[1] || ''))) {
  try {
    const chai = Module.createRequire(path.join(process.cwd(), 'package.json')).resolve('chai');
    watchChai(Module.createRequire(chai)(chai));
  } catch (error) {}
}

const load = Module._load;
if (/jest/.test(process.argv[1])) Module._load = function (request) {
  const found = apply(load, this, arguments);
  return /[/\\\\]jest-circus[/\\\\](?:\\w+[/\\\\]){0,2}\\w+\\.js$/.test(request) ? ofJest(found, request) : found;
};
const ofJest = (found, request) => {
  const run = found && found.default || found;
  if (typeof run !== 'function' || run.length !== 6) return found;
  return function (_, config, environment, runtime) {
    const kept = { first: null }, after = () => compare(kept);
    try {
      const { jestExpect } = runtime.requireInternalModule(Module.createRequire(request).resolve('@jest/expect'));
      keep('expect', jestExpect, kept);
      keep('expect', (environment.global[Symbol.for('$$jest-matchers-object')] || {}).matchers, kept);
    } catch (error) {}
    const ran = apply(run, this, arguments);
    Promise.resolve(ran).then(after, after);
    return ran;
  };
};
const report = () => {
  compare(known);
  compare(ofChai);
  if (require('assert') !== assert) bend('assert');
  if (names.length === sent) return;
  sent = names.length;
  const line = '{"begin":1,"end":0,"bent":' + stringify(names) + '}\\n';
  try {
    writeSync(openSync('/opt/check/NAME_bent', flags), line);
  } catch (error) {
    if (error.code !== 'EAGAIN') throw error;
  }
};

const reporting = (emit) => function (event) {
  try {
    return apply(emit || getPrototypeOf(process).emit, this, arguments);
  } finally {
    if (event === 'exit' && this === process) report();
  }
};
let emit = reporting();
defineProperty(process, 'emit', {
  configurable: true,
  get() { return emit; },
  set(value) {
    if (this === process) emit = reporting(value);
    else defineProperty(this, 'emit', { value, writable: true, enumerable: true, configurable: true });
  },
});
const exit = process.reallyExit;
process.reallyExit = function () {
  report();
  return apply(exit, this, arguments);
};
process.on('exit', report);
if (ofVitest) process.once('SIGTERM', () => { report(); apply(kill, process, [process.pid, 'SIGTERM']); });
"""
"""Each process of Node loads it at its start. It compares functions of ``node:assert``, chai and jest's ``expect`` at
the end with those at the start, of jest for each file of tests, and reports those that were replaced. Extensions
that are installed may replace functions of chai. vitest replaces ``throw`` of chai itself, and ends its processes by a
signal.

At the end it calls nothing that the code under test can have replaced, and no listener need be left for that. Its
syntax is that of 2015, as old versions of Node load it, too."""
