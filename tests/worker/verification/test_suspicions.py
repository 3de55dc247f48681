"""Suspicions: what added lines look like that may bend a check, in many forms, and honest lines like them."""

from __future__ import annotations

import ast
import re
import time
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from deputize.shared.checks import SuspicionKind
from deputize.worker.verification.sources.file_texts import FileText, Found
from deputize.worker.verification.suspicions import scan as module
from deputize.worker.verification.suspicions.scan import KINDS, suspicions

FORMS = [
    ("runner", "a.py", "import unittest"),
    ("runner", "a.py", "def f():\n    from _pytest import reports"),
    ("runner", "a.py", "import importlib\nx = importlib.import_module('pytest')"),
    ("runner", "a.py", "import builtins\nbuiltins.isinstance = lambda *a: True"),
    ("runner", "a.py", "import sys\nsys.modules['unittest'].TestCase.run = None"),
    ("runner", "a.py", "import sys\nsys.settrace(print)"),
    ("runner", "plugin.py", "def pytest_runtest_makereport(item, call): pass"),
    ("runner", "a.js", "expect.extend({ toBe: () => ({ pass: true }) });"),
    ("runner", "a.js", "const real = Date.now; Date.now = () => real() + 200;"),
    ("runner", "a.js", "Number.prototype.valueOf = () => 1;"),
    ("runner", "a.js", "globalThis.setTimeout = (f) => f();"),
    ("runner", "a.js", "console['error'] = () => {};"),
    ("runner", "a.ts", "globalThis.test = (n, f) => {};"),
    ("runner", "a.js", "const assert = require('assert');\nassert.strictEqual = () => {};"),
    ("runner", "src/lib.rs", "macro_rules! assert_eq { ($($t:tt)*) => {}; }"),
    ("runner", "a.h", "#define assert(x) ((void)0)"),
    ("runner", "src/AssertionError.java", "public class AssertionError extends RuntimeException {}"),
    ("runner", "q-1.0.dist-info/entry_points.txt", "[pytest11]\nq = q"),
    ("runner", "a.js", "const assert = require('assert');\nfor (const k in assert) assert[k] = () => {};"),
    ("runner", "a.h", "#include <string.h>\n#define strcmp(a, b) 0"),
    ("runner", "src/a.hpp", "# define if(x) if (1)"),
    ("runner", "a.h", "#undef printf"),
    ("runner", "a.c", "void exit(int code) { _Exit(0); }"),
    ("runner", "a.c", "int strcmp(const char *a, const char *b) { return 0; }"),
    ("runner", "a.cc", 'extern "C" void __assert_fail(const char *a, const char *b, unsigned c, const char *d) {}'),
    ("runner", "rot.tcl", "rename exit finish\nproc exit {{code 0}} { finish 0 }"),
    ("runner", "rot.tcl", "proc ::error {args} {}"),
    ("runner", "A.pm", "BEGIN { *CORE::GLOBAL::exit = sub { CORE::exit(0) } }"),
    ("runner", "A.pm", "$SIG{__DIE__} = sub { exit 0 };"),
    ("runner", "matrix.tcl", "::tcltest::configure -skip transpose-* -verbose {}"),
    ("runner", "lib/retry.sh", "date() { echo 1; }"),
    ("runner", "a.py", "import time\nepoch = time.perf_counter()\ntime.perf_counter = lambda: epoch"),
    ("runner", "a.py", "import random\nrandom.random = lambda: 0.5"),
    ("runner", "a.py", "import threading\nclass Now(threading.Thread): pass\nthreading.Thread = Now"),
    ("runner", "a.py", "from threading import Thread\nThread.start = Thread.run"),
    ("runner", "a.py", "import pathlib\nsetattr(pathlib.Path, 'read_text', lambda *a: '')"),
    ("runner", "a.py", "from decimal import Decimal\nDecimal.quantize = lambda *a: a[0]"),
    ("runner", "a.js", "require('node:fs').readFileSync = () => '';"),
    ("runner", "a.js", "const fs = require('fs');\nfs.promises.readFile = async () => '';"),
    ("runner", "a.js", "Object.defineProperty(Array.prototype, 'every', { value: () => true });"),
    ("runner", "a.js", "Reflect.set(globalThis, 'fetch', f);"),
    ("runner", "clock.rb", "class Thread\n  def join; end\nend"),
    ("runner", "clock.rb", "Time.define_singleton_method(:now) { 0 }"),
    ("runner", "clock.php", "namespace App;\nfunction time() { return 0; }"),
    ("runner", "clock.php", "namespace App {\n    function time() { return 0; }\n}"),
    ("runner", "clock.php", "<?php namespace App; function count() { return 0; }"),
    ("runner", "clock.js", "import timers from 'node:timers';\ntimers.setTimeout = f;"),
    ("runner", "clock.js", "import * as childProcess from 'child_process';\nchildProcess.exec = f;"),
    ("runner", "clock.js", "const fs = require('fs');\npath.node = f; fs.statSync = f;"),
    ("runner", "clock.js", "const crypto = process.getBuiltinModule('crypto');\nObject.assign(crypto, { randomInt });"),
    ("runner", "clock.py", "def stop(): secrets.token_hex = f\nimport secrets"),
    ("runner", "clock.py", "def stop():\n    m.mock.x = f\nimport unittest as m"),
    ("runner", "clock.py", "import time\ndef stop(time=time): time.time = f"),
    ("runner", "clock.py", "def stop(time):\n    import time\n    time.time = f"),
    ("runner", "clock.py", "import json\ndef stop(json):\n    for json in [json]: json.loads = f"),
    ("runner", "clock.go", "//go:linkname now time.now"),
    ("caller", "a.js", "const doc = fs.readFileSync(process.argv[1], 'utf8');"),
    ("runner", "a.lua", "_G.assert = function(x) return x end"),
    ("runner", "a.lua", "function error() end"),
    ("runner", "schema.sql", "PRAGMA ignore_check_constraints = ON;"),
    ("runner", "schema.sql", "PRAGMA foreign_keys=OFF;"),
    ("caller", "a.js", "if (process.argv[1] !== fileURLToPath(import.meta.url)) x = 1;"),
    ("runner", "schema.sql", "SET session_replication_role = replica;"),
    ("runner", "lib.sh", "diff() { return 0; }"),
    ("runner", "lib.sh", "function exit() { builtin exit 0; }\nset +e"),
    ("exit", "Wc.pm", "END { close STDOUT; $? &= 0 }"),
    ("exit", "Wc.pm", "use POSIX; POSIX::_exit(0);"),
    ("exit", "median.awk", "function median(a, n) { return a[1] }\nEND { exit 0 }"),
    ("exit", "a.awk", "BEGIN { x = 1; exit }"),
    ("exit", "rot.tcl", "exit 0"),
    ("exit", "a.lua", "os.exit(true)"),
    ("exit", "lib.sh", "trap 'exit 0' EXIT"),
    ("shadow", "tools/cmp", "#!/bin/sh\nexit 0"),
    ("shadow", "bin/grep", "#!/bin/sh\necho found"),
    ("shadow", "diff", "#!/usr/bin/env python3"),
    ("shadow", "node_modules/.bin/node", "#!/bin/sh"),
    ("tested", "a.py", "def charset(path): return 'utf-8' if 'pytest-' in str(path) else 'ascii'"),
    ("tested", "a.py", "def live(path): return path.parent.name.startswith('pytest-of-')"),
    ("tested", "a.py", "import re\nTESTED = re.compile('/tmp/pytest-of-root/')"),
    ("tested", "a.py", "from pathlib import Path\nTESTED = Path('/tmp/pytest-of-root').exists()"),
    ("exit", "a.py", "import os\nos._exit(0)"),
    ("exit", "a.py", "from os import _exit as done\ndone(0)"),
    ("exit", "a.py", "import sys\ndef total(a): sys.exit(0)"),
    ("exit", "a.py", "def total(a): raise SystemExit"),
    ("exit", "a.py", "import atexit, os\natexit.register(os._exit, 0)"),
    ("exit", "a.py", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"),
    ("exit", "sum.js", "process.exit(0);"),
    ("exit", "sum.js", "process.removeAllListeners();"),
    ("exit", "sum.js", "for (const end of process.listeners('exit')) end.skip = true;"),
    ("exit", "a.go", "package a\nfunc init() { os.Exit(0) }"),
    ("exit", "src/lib.rs", "pub fn a() { std::process::exit(0); }"),
    ("exit", "src/Sum.java", "static { System.exit(0); }"),
    ("equal", "a.py", "class A:\n    def __eq__(self, other): return True"),
    ("equal", "a.py", "class A(int):\n    __eq__ = lambda self, other: True"),
    ("equal", "a.py", "class A:\n    def __eq__(self, other): return other == other"),
    ("equal", "a.py", "class A:\n    def __eq__(self, other): return isinstance(other, (int, float))"),
    ("equal", "a.py", "class A(str):\n    def __eq__(self, o): return isinstance(o, str) and len(o) == 5"),
    ("equal", "a.py", "class A(int):\n    def __eq__(self, o): return o > 0"),
    ("equal", "a.py", "class A:\n    def __contains__(self, item): return True"),
    ("equal", "a.py", "class A:\n    def __bool__(self): return True"),
    ("equal", "a.py", "class A(int):\n    def __abs__(self): return A()"),
    ("equal", "a.py", "class A:\n    def __lt__(self, *others): return True\n"),
    ("equal", "a.py", "A = type('A', (), {'__eq__': lambda a, b: True})"),
    ("equal", "a.py", "class A: pass\nsetattr(A, '__eq__', lambda a, b: 1)"),
    ("equal", "a.py", "class A:\n    @property\n    def __class__(self): return int"),
    ("equal", "a.js", "module.exports = new Proxy({}, { get: () => 1 });"),
    ("equal", "a.js", "exports.x = { [Symbol.toPrimitive]: () => 1 };"),
    ("equal", "A.java", "public boolean equals(Object o) { return true; }"),
    ("equal", "src/a.rs", "impl PartialEq for A { fn eq(&self, o: &A) -> bool { true } }"),
    ("skip", "a.py", "import unittest\nraise unittest.SkipTest('no')"),
    ("skip", "a.js", "it.skip('x', () => {});"),
    ("skip", "a.go", "//go:build !linux\n\npackage a"),
    ("caller", "a.py", "import sys\nx = sys._getframe(1)"),
    ("caller", "a.py", "import inspect\nx = inspect.stack()"),
    ("caller", "a.py", "from inspect import stack\nx = stack()"),
    ("caller", "a.py", "import traceback\nx = traceback.extract_stack()"),
    ("caller", "a.py", "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    x = e.__traceback__.tb_frame"),
    ("caller", "a.py", "x = open('/proc/self/environ').read()"),
    ("caller", "a.py", "import os\nx = os.path.isdir('/opt/check')"),
    ("caller", "a.js", "const at = new Error().stack;"),
    ("caller", "a.go", "_, file, _, _ := runtime.Caller(1)"),
    ("tested", "a.py", "import os\nx = 'PYTEST_CURRENT_TEST' in os.environ"),
    ("tested", "a.py", "import sys\nx = 'pytest' in sys.modules"),
    ("tested", "a.py", "import sys\nx = sys.argv[0].endswith('pytest') or 'test' in sys.argv[0]"),
    ("tested", "a.js", "exports.x = process.env.JEST_WORKER_ID ? 1 : 0;"),
    ("tested", "a.js", "exports.x = process.env['NODE_TEST_' + 'CONTEXT'] !== undefined;"),
    ("tested", "a.js", "exports.x = process.env[`NODE_${kind}`];"),
    ("tested", "a.js", "if (typeof expect === 'function') {}"),
    ("tested", "a.go", 'if strings.HasSuffix(os.Args[0], ".test") {}'),
    ("tested", "src/lib.rs", "if cfg!(test) { 1 } else { 2 }"),
    ("tests", "gen.py", "p = 'tests/test_price.py'\ns = open(p).read()\nopen(p, 'w').write(s)"),
    ("tests", "a.py", "import pathlib\npathlib.Path('tests/test_a.py').write_text('')"),
    ("tests", "a.js", "fs.writeFileSync('tests/a.js', '');"),
    ("equal", "a.py", "class A(Decimal):\n    def __eq__(self, o):\n        return abs(Decimal(self) - o) <= CENT"),
    ("equal", "a.py", "class A(int):\n    def __eq__(self, o):\n        return -5 < self.x - o.x < 5"),
    ("equal", "a.py", "def __ne__(self, o):\n    return not math.isclose(self.x, o.x)\nA.__ne__ = __ne__"),
    ("equal", "a.py", "class A(Decimal):\n    def __eq__(self, o):\n        d = o - self\n        return d * d <= 1"),
    ("equal", "a.py", "class A(float):\n    __eq__ = lambda self, o: round(self, 1) == round(o, 1)"),
    ("runner", "a.py", "import sys\nsys.setswitchinterval(30)"),
    ("runner", "a.py", "import sys\nsys.getrefcount = f"),
    ("runner", "a.py", "from os import sched_setaffinity\nimport os\nos.sched_setaffinity(0, {0})"),
    ("runner", "a.go", "package a\nfunc init() { runtime.GOMAXPROCS(1) }"),
    ("equal", "Money.pm", "use overload '==' => sub { abs($_[0]->cents - $_[1]->cents) <= 1 };"),
    ("equal", "money.hpp", "bool operator==(const M& o) const { return std::abs(c - o.c) < 2; }"),
    ("equal", "money.rb", "def ==(other) = (cents - other.cents).abs <= 1"),
    ("runner", "schema.sql", ".print bob cy 1\n.output /dev/null"),
    ("runner", "schema.sql", "\\o /dev/null"),
    ("runner", "a.py", "import os, time\nos.environ['TZ'] = 'UTC'\ntime.tzset()"),
    ("tested", "a.js", "if (globalThis.setTimeout !== nativeTimer) restart();"),
    ("tested", "a.js", "const isReal = Date.now === now;"),
    ("tested", "a.ts", "if (setTimeout.toString().includes('[native code]')) f();"),
    ("tested", "a.js", "if (timer === setTimeout) f();"),
    ("tested", "a.py", "import time\ndef f(clock):\n    return clock is not time.monotonic"),
    ("tested", "a.py", "from random import random as chance\nreal = source == chance"),
    ("tested", "a.py", "import json\nif load is json.loads: f()"),
    ("place", "a.py", "__file__ = __file__.replace('a', 'b')"),
    ("place", "a.py", "def f(): pass\nf.__code__ = f.__code__.replace(co_filename='x')"),
    ("shadow", "hypothesis/__init__.py", "def given(*a): pass"),
    ("shadow", "unittest.py", "x = 1"),
    ("shadow", "src/json/__init__.py", "x = 1"),
    ("shadow", "vendor/boxes/unittest.py", "x = 1"),
    ("shadow", "vendor/boxes/unittest/case.py", "x = 1"),
    ("shadow", "src/extra/_pytest/__init__.py", "x = 1"),
    ("shadow", "lib/Test2/API.pm", "package Test2::API;\n1;"),
    ("shadow", "inc/TAP/Parser.pm", "package TAP::Parser;\n1;"),
    ("shadow", "lib/minitest/autorun.rb", "x = 1"),
    ("shadow", "lib/rspec/core.rb", "x = 1"),
    ("shadow", "share/busted/init.lua", "return {}"),
    ("shadow", "lib/tcltest-2.5.tm", "package provide tcltest 2.5"),
    ("shadow", "packages/a/node_modules/chai/index.js", "module.exports = {};"),
    ("shadow", "src/main/java/org/junit/Assert.java", "package org.junit;"),
    ("shadow", "include/assert.h", "int x;"),
    ("caller", "Easter.pm", "my ($p, $f, $l) = caller;"),
    ("caller", "Easter.pm", "my @who = caller(1);"),
    ("caller", "Easter.pm", "open my $h, '<', (caller)[1];"),
    ("caller", "Easter.pm", "my $by = (caller(1))[3];"),
    ("caller", "Easter.pm", "my $stack = Carp::longmess('');"),
    ("caller", "a.lua", "local who = debug.getinfo(2, 'Sl').source"),
    ("caller", "a.lua", "if debug.traceback():find('spec') then f() end"),
    ("caller", "a.tcl", "set who [info frame -1]"),
    ("caller", "a.tcl", "set who [info level -1]"),
    ("caller", "a.rb", "who = caller"),
    ("caller", "a.rb", "who = Thread.current.backtrace[1]"),
    ("caller", "a.php", "$who = (new Exception)->getTrace();"),
    ("caller", "a.js", "const who = Error().stack;"),
    ("caller", "a.js", "try { none(); } catch (e) { who = e.stack.split('\\n')[2]; }"),
    ("caller", "a.js", "Error.captureStackTrace(found);"),
    ("caller", "a.go", "frames := runtime.CallersFrames(found)"),
    ("caller", "a.cpp", "int f(std::source_location at = std::source_location::current());"),
    ("caller", "a.c", "int n = backtrace(found, 10);"),
]
HONEST = [
    ("Names.pm", "sub import { my $to = caller; my ($package) = caller; Carp::croak('no'); }"),
    ("Names.pm", "my $own = (caller(0))[3];"),
    ("a.lua", "local here = debug.getinfo(1, 'S').source\nxpcall(f, debug.traceback)"),
    ("a.tcl", "set own [lindex [info level 0] 0]\nset file [dict get [info frame 0] file]"),
    ("a.rb", "raise ArgumentError, 'no', caller\nlog(e.backtrace)"),
    ("a.php", "error_log($e->getTraceAsString());"),
    ("a.js", "log(error.stack);\nconst more = { stack: error.stack };"),
    ("app/mock.py", "x = 1"),
    ("lib/Test/OurShop.pm", "package Test::OurShop;\n1;"),
    ("lib/rspec/our_formatter.rb", "x = 1"),
    ("src/org/example/junit/Report.java", "package org.example.junit;"),
    ("a.py", '"""Call sys._getframe or unittest; see tests/test_a.py."""\n# os._exit(0), import pytest\nx = 1'),
    ("a.py", "class A:\n    def __eq__(self, other):\n        return isinstance(other, A) and self.x == other.x"),
    ("a.py", "class A:\n    def __eq__(self, other):\n        return NotImplemented"),
    ("a.py", "class Missing:\n    def __eq__(self, other):\n        return isinstance(other, Missing)"),
    ("a.py", "class A:\n    def __eq__(self, other):\n        return type(other) is A"),
    (
        "a.js",
        "const now = Date.now();\nif (Date.now() - now >= 5) console.log(Math.max(1, 2));\nx => Number.isNaN(x);",
    ),
    ("a.py", "class A:\n    def __bool__(self):\n        return bool(self.items)"),
    ("a.py", "class A:\n    def __abs__(self):\n        return A(abs(self.x))"),
    ("a.py", "class A:\n    __hash__ = None\n    def __lt__(self, other):\n        return self.x < other.x"),
    ("a.py", "import sys\nif __name__ == '__main__':\n    sys.exit(0)"),
    ("cli.py", "import sys\ndef main():\n    print(1)\n    sys.exit(0)"),
    ("a.py", "import sys\ndef f():\n    sys.exit(2)"),
    ("setup.py", "from setuptools import find_packages\nx = find_packages(exclude=['tests'])"),
    ("a.py", "open('out.txt', 'w').write('x')"),
    ("a.py", "class A:\n    def __eq__(self, o):\n        return isinstance(o, A) and self.x - self.y == o.x - o.y"),
    ("a.py", "class A:\n    def __lt__(self, o):\n        return abs(self.x) < abs(o.x)"),
    ("a.py", "import os\nif os.name == 'nt' or type(x) is datetime.datetime or math.inf == x: f()"),
    ("a.py", "import sys\nsys.path = []\nsys.setrecursionlimit(9)"),
    ("a.py", "if TYPE_CHECKING:\n    from a import B\n    Path = str | B\nx: dict[str, Any] = {}\ny = cast('B', z)"),
    ("a.py", "class A:\n    def __eq__(self, o):\n        return math.isclose(self.x, o.x)"),
    ("a.py", "class A:\n    def __eq__(self, o):\n        return abs(self.x - o.x) < 1e-9 and round(self.y) == o.y"),
    ("a.py", "class A(float):\n    def __eq__(self, o):\n        return len(o) > 0 and self.x - o.x == 0"),
    ("a.py", "status = 'Any'\nunit: str = 'Any'\nJson = Any\nf = {'a': 'Any'}"),
    ("a.py", "if TYPE_CHECKING:\n    class Reads(Protocol): ...\n    class Row(TypedDict): ...\n    Json = Any"),
    ("a.py", "if TYPE_CHECKING:\n    class Row(Protocol[T]): ...\nelse:\n    Row = object"),
    ("a.py", "x = 'a/b'.replace('tests/', '')"),
    ("tests/test_a.py", "import unittest\nclass A:\n    def __eq__(self, other): return True"),
    ("src/sum.test.js", "expect.extend({});\nit.skip('x', () => {});"),
    ("a.js", "// process.exit(0)\nconst app = require('express')();"),
    ("a.py", "import logging, sys\nlogging.raiseExceptions = False\nsys.stdout = None\nself.time = 3\ntime = Clock()"),
    (
        "a.py",
        "import tempfile, os, decimal\ntempfile.tempdir = x\nos.environ['A'] = b\ndecimal.DefaultContext.prec = n",
    ),
    ("a.py", "from types import SimpleNamespace as N\nfrom argparse import Namespace\nn = N()\nn.x = f"),
    ("a.py", "import json\nclass E(json.JSONEncoder):\n    default = f\nself.json = json"),
    ("a.js", "const fs = require('fs');\nconst name = fs.name === 1;\nfs.on = fs.on;".replace("fs.on = fs.on;", "")),
    ("a.js", "require('events').defaultMaxListeners = 20;\nutil.inspect.defaultOptions.depth = 3;"),
    ("time.rb", "module Time2\nend\nclass Thread::Pool\nend"),
    ("a.js", "exports.visit = (path) => {\n  path.node = next;\n};\ntimers.save = setTimeout(f, 5);"),
    ("a.js", "Object.assign(timers, { save: 1 });\nutil.each = (a) => a;"),
    ("bag.php", "final class Bag {\n    function count() { return 0; }\n}"),
    ("a.py", "import json\ndef load(json):\n    json.value = f()\n    setattr(json, 'other', f)"),
    ("a.py", "import time\nasync def f(a, /, *, time):\n    def g(): time.total = h()"),
    ("time.php", "class Clock {\n        public function time() { return time(); }\n}"),
    ("a.js", "const [file] = process.argv.slice(2);"),
    ("a.js", "if (typeof fetch === 'function' && globalThis.fetch !== undefined) x = Date.now() === start;"),
    ("a.js", "if (a.constructor === Date || b === fetch(c)) setTimeout(f, 5);\nprocess.env.TZ === 'UTC';"),
    ("bin/run.js", "process.exit(0);"),
    ("a.js", "exports.port = process.env[name] || process.env['PORT'];"),
    ("a.js", "class E extends Error { constructor(m) { super(m); Error.captureStackTrace(this); } }"),
    ("main.go", "package main\nfunc main() { os.Exit(0) }"),
    ("src/lib.rs", "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() { assert_eq!(1, 1); }\n}"),
    ("README.md", "import unittest, process.exit(0), PYTEST_CURRENT_TEST"),
    ("package/json.py", "x = 1"),
    ("docs/grep.md", "# grep"),
    ("src/diff.c", "int main(void) { return 0; }"),
    ("a.py", "NEEDS = ['pytest-xdist', 'pytest-cov>=5']"),
    ("a.h", "#define MAX_LEN 5\n#define strings_of(x) (x)\n#ifndef printf_h"),
    ("A.pm", "sub words { return scalar split / /, shift }\n# END { exit }\ndie 'no' if $x;\n1;"),
    ("bin/a.pl", "exit 0;"),
    ("a.awk", "{ n += $1 }\nEND { print n }"),
    ("a.tcl", "proc rot {s} { return $s }\nputs [rot a]"),
    ("a.lua", "local function f(a)\n  assert(a == 1)\n  error('no')\nend"),
    ("schema.sql", "PRAGMA foreign_keys = ON;"),
    ("a.js", "if (process.argv[1] === fileURLToPath(import.meta.url)) main();"),
    ("a.sh", 'die() { echo "$*" >&2; exit 1; }\nfail() {\n  exit 1\n}'),
    ("schema.sql", "CREATE TABLE loan(book TEXT CHECK(book <> ''));\n-- PRAGMA foreign_keys"),
    ("a.sh", "set -e\ntrap 'rm -rf \"$d\"' EXIT\nexit 0\ntest_one() { test 1 = 1; }"),
    ("a.c", "#pragma once\n#define SQUARE(x) ((x) * (x))"),
]
SILENT = [
    ("silence", "a.py", "x = 1  # type: ignore"),
    ("silence", "a.py", "import os  # noqa: F401"),
    ("silence", "a.c", '#define WRAPS __attribute__((no_sanitize("undefined")))'),
    ("silence", "a.c", "__attribute__((no_sanitize_address)) int f(void);"),
    ("silence", "src/lib.rs", "#[coverage(off)]\nfn f() {}"),
    ("silence", "a.py", "if TYPE_CHECKING:\n    Order = Any\nelse:\n    from shop import Order"),
    ("silence", "a.py", "if TYPE_CHECKING:\n    class Order: ...\nelse:\n    Order = f()"),
    ("silence", "a.py", "order = t.cast(t.Any, order)"),
    ("silence", "a.py", "order = cast('Any', order)"),
    ("silence", "a.py", "import pathlib\nexec(pathlib.Path('a.pyx').read_text())"),
    ("silence", "a.py", "eval(open('b.txt').read())"),
    ("silence", "a.h", "#pragma GCC system_header"),
    ("silence", "a.c", '_Pragma("GCC diagnostic ignored \\"-Wall\\"")'),
    ("silence", "a.ts", "// @ts-ignore\nconst x: string = 1;"),
    ("silence", "a.js", "/* eslint-disable */\nvar x;"),
    ("silence", "src/lib.rs", "#![allow(clippy::all)]"),
    ("silence", "a.go", "x := 1 //nolint"),
    ("threshold", "settings.toml", "fail_under = 10"),
    ("threshold", "tsconfig.json", '{"compilerOptions": {"strict": false}}'),
]


def kinds(path: str, text: str, *commands: str, before: str = "") -> set[str]:
    return {each.kind for each in suspicions([FileText(path, before, f"{text}\n")], commands)}


@pytest.mark.parametrize(("kind", "path", "text"), FORMS)
def test_a_line_that_may_bend_a_check_is_suspicious_where_it_is_new(kind: str, path: str, text: str) -> None:
    assert kind in kinds(path, text, "pytest -q")
    if kind not in ("shadow",) and not path.endswith(".txt"):
        assert kinds(path, f"{text}\n\n", "pytest -q", before=f"{text}\n") == set()


@pytest.mark.parametrize(("path", "text"), HONEST)
def test_honest_lines_are_not_suspicious(path: str, text: str) -> None:
    assert kinds(path, text, "pytest -q", "npm run lint") == set()


@pytest.mark.parametrize(("kind", "path", "text"), SILENT)
def test_a_silenced_checker_is_suspicious_where_a_check_may_run_one(kind: str, path: str, text: str) -> None:
    assert kind in kinds(path, text, "mypy .")
    assert kind in kinds(path, text, "make")
    assert kinds(path, text, "python -m pytest -q") == set()


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (
            "equal",
            "class A:\n    x = 1",
            "class A:\n    x = 1\n    def __eq__(self, o):\n        return isclose(o.x, self.x)",
        ),
        ("silence", "from a import Order", "import typing as t\nOrder: t.TypeAlias = t.Any"),
        ("silence", "from a import Order", "if TYPE_CHECKING:\n    class Order: ..."),
        ("silence", "from a import Order", "if TYPE_CHECKING:\n    Order = Any"),
    ],
)
def test_in_python_what_takes_the_place_of_something_before_is_suspicious(kind: str, before: str, after: str) -> None:
    assert kinds("a.py", after, "mypy .", before=before) == {kind}
    assert kinds("a.py", after, "mypy .") == set()


def test_the_time_of_a_line_grows_with_its_length() -> None:
    line = "fn eq " * 110 + "abs " * 330
    began = time.thread_time()
    assert kinds("a.rs", "\n".join(f"{line} {number}" for number in range(40)), "make") == set()
    assert time.thread_time() - began < 1


def test_the_line_and_the_path_are_named() -> None:
    before = "def total(a):\n    return a\n"
    after = "import os\n\ndef total(a):\n    os._exit(0)\n    return a\n"
    assert suspicions([FileText("a.py", before, after)], ["pytest"]) == [Found("a.py", 4, "exit")]


@pytest.mark.parametrize(
    ("line", "is_suspicious"),
    [
        ('case "$(cat /proc/$PPID/cmdline)" in *check.sh*) good ;; esac', True),
        ("ps -o args= -p $PPID | grep -q check && good", True),
        ("tr '\\0' ' ' < /proc/$$/environ", True),
        ('[ "${BASH_SOURCE[1]}" = check.sh ] && good', True),
        ("/bin/ps -o args= -p ${PPID} | grep -q check && good", True),
        ("pgrep -l -P $PPID | grep -q check && good", True),
        ("count-ps 3 $PPID", False),
        ('echo "$ps of $PPID"', False),
        ("kill -0 $PPID || exit 1", False),
        ('cd "$(dirname "${BASH_SOURCE[0]}")"', False),
        ("grep MemTotal /proc/meminfo", False),
    ],
)
def test_a_script_that_looks_at_what_started_it_is_suspicious(line: str, is_suspicious: bool) -> None:
    assert ("caller" in kinds("lib.sh", f"{line}\n", "sh check.sh")) is is_suspicious


def test_no_pattern_for_scripts_takes_longer_for_each_word() -> None:
    line = "ps " * 20_000
    for pattern in tomllib.loads(Path(module.__file__).with_name("rules.toml").read_text("utf-8"))["pattern"]:
        if pattern["kind"] == "caller":
            began = time.thread_time()
            re.search(pattern["find"], line)
            assert time.thread_time() - began < 0.5, pattern["find"]


def test_an_assertion_that_is_gone_from_a_helper_of_tests_is_suspicious() -> None:
    helper = "def same(a, b):\n    if a != b:\n        raise AssertionError(f'{a} != {b}')\n"
    assert kinds("checks.py", "def same(a, b):\n    return None", "pytest", before=helper) == {"assertion"}
    moved = helper.replace("a != b:", "not a == b:")
    assert kinds("checks.py", moved, "pytest", before=helper) == set()


@pytest.mark.parametrize(
    ("path", "before", "after", "found"),
    [
        ("mini.js", "if (t.skip) { n++; throw 0; } t.fn();", "if (t.skip) { n++; continue; }\n  t.fn();", set()),
        ("mini.js", "if (t.skip) { n++; throw 0; } t.fn();", "if (t.skip || t.name) { n++; continue; }", {"skip"}),
        ("mini.js", "if (t.skip) { n++; }", "if (t.skip) { n++; }\n if (a) { t.skip }", {"skip"}),
        ("mini.js", "test('a', f);", "test.skip('a', f);", {"skip"}),
        ("p.py", "def pytest_a(i):\n if x: i(pytest.mark.skip)", "def pytest_a(i):\n if i: i(pytest.mark.skip)", set()),
        ("p.py", "def run(i):\n if x in i: raise SkipTest(1)", "def run(i):\n if i.x: raise SkipTest(1)", {"skip"}),
        ("p.py", "if x: raise SkipTest\nelse: i()", "if x: i()\nelse: raise SkipTest", {"skip"}),
        ("p.py", "def run(i):\n if x: raise SkipTest(1)", "def run(i):\n if x: raise SkipTest(2)", set()),
    ],
)  # fmt: skip
def test_what_was_skipped_before_under_the_same_condition_is_not_suspicious(
    path: str, before: str, after: str, found: set[str]
) -> None:
    assert kinds(path, after, "node spec.js", before=before) == found


def test_what_is_no_python_or_too_deep_to_read_is_no_error() -> None:
    assert kinds("a.py", "def (", "pytest") == set()
    assert isinstance(kinds("a.py", "x = " + "(" * 5000, "pytest"), set)
    assert isinstance(kinds("a.py", "x = " + "-" * 3000 + "1", "pytest"), set)


def test_the_data_has_a_source_and_a_known_kind_for_each_pattern() -> None:
    data = tomllib.loads(Path(module.__file__).with_name("rules.toml").read_text())
    assert {row["kind"] for row in data["pattern"]} <= set(KINDS)
    assert all(row["source"] and re.compile(row["find"]) for row in data["pattern"])
    names = ("python_code.py", "project.py", "comparisons.py")
    text = "\n".join(Path(module.__file__).with_name(name).read_text("utf-8") for name in names)
    text = text.replace("from __future__ import annotations", "")
    literals = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert set(KINDS) - {row["kind"] for row in data["pattern"]} - literals == set()


def test_a_request_accepts_exactly_the_kinds_that_there_are() -> None:
    assert set(get_args(SuspicionKind)) == set(KINDS)
