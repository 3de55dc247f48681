"""The general canary: changed files fail where they changed, in each language, and a check has to notice it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deputize.worker.verification.protected.named_files import with_targets
from deputize.worker.verification.runners.known import unreported
from deputize.worker.verification.sources.broken_sources import (
    broken_content,
    changed_lines,
    only_executes_python,
    only_reads,
    reads_text,
    unnoticed,
)

FAILS_HERE = r"\d+ % \d+ == \d+ and \(_ for _ in \(\)\)\.throw\(RuntimeError\('\w+'\)\)"
JAVA = """\
public class Sum {{
    static {{ {first} }}
    public Sum(int x) {{ super(); }}
    public static int sum(int a) {{ return a {sign} 1; }}
}}
"""
SOURCES = {
    "price.py": ("def f(a):\n    return a + 1\n\ndef other(): pass\n", "throw(RuntimeError"),
    "price.js": ("exports.f = (a) => a + 1;\n", "throw new Error"),
    "price.mjs": ("export async function f(a) {\n  return a + 1;\n}\n", "throw new Error"),
    "price.ts": (
        "class A {\n  f(a: number): number { return 0; }\n}\nfunction g(b: number) { return b + 1; }\n",
        "throw new",
    ),
    "price.go": ("package p\n\nfunc (p *P) F(a int) (int, error) { return a + 1, nil }\n", "panic("),
    "price.rs": ("pub fn f<T>(a: i32) -> i32 {\n    a + 1\n}\n", "panic!("),
    "Sum.java": (JAVA.format(first="", sign="+"), "throw new RuntimeException"),
    "price.kt": ("fun f(a: Int): Int { return a + 1 }\n", "error("),
    "price.cs": ("class A { public static int F(int a) { return a + 1; } }\n", "throw new System.Exception"),
    "price.c": ("int f(int a)\n{\n  return a + 1;\n}\n", "__builtin_trap()"),
    "price.sh": ("f() {\n  echo $(($1 + 1))\n}\nf 1\n", "exit 97"),
    "price.rb": ("def f(a)\n  a + 1\nend\n", "raise "),
    "price.php": ("<?php\nfunction f($a): int { return $a + 1; }\n", "throw new"),
    "Price.pm": ("package Price;\nsub f { my ($a) = @_; return $a + 1 }\n1;\n", 'return "'),
    "price.lua": ("local function f(a)\n  return a + 1\nend\nreturn f\n", "do return "),
    "price.tcl": ("proc f {a} {\n  return [expr {$a + 1}]\n}\n", 'return "'),
    "price.awk": ("function f(a) { return a + 1 }\n", 'return "'),
    "tool": ("#!/bin/sh\necho + 1\n", "exit 97"),
}


def broken(path: str, old: str, new: str, *, statically: bool = False) -> str | None:
    content = broken_content(path, old.encode(), new.encode(), statically=statically)
    return None if content is None else content.decode()


@pytest.mark.parametrize("path", SOURCES)
def test_a_changed_function_fails_in_each_language_by_words_that_differ_each_time(path: str) -> None:
    text, failing = SOURCES[path]
    first, second = (broken(path, text, text.replace("+ 1", "+ 2")) for _ in range(2))
    assert first is not None
    assert failing in first
    assert (first == second) is ("exit 97" in failing or "trap" in failing)
    assert broken(path, "", text) is not None


def test_of_several_functions_those_fail_that_changed() -> None:
    text = "function f(a) {\n  return 1;\n}\n\nfunction g(a) {\n  return 2;\n}\n"
    found = broken("a.ts", text, text.replace("2", "3")) or ""
    assert found.index("throw new") > found.index("function g")
    tree = broken("a.py", "def f(): return 1\n\ndef g(): return 2\n", "def f(): return 1\n\ndef g(): return 3\n") or ""
    assert "throw" not in tree.partition("def g")[0]


def test_a_constructor_and_what_runs_before_the_function_are_left_so_that_it_compiles() -> None:
    found = broken("Sum.java", "", JAVA.format(first="System.exit(0);", sign="+")) or ""
    assert "super(); }" in found
    assert "{ System.exit(0); }" in found
    assert broken("AssertionError.java", "", "class AssertionError { AssertionError(String a) { super(a); } }") is None


@pytest.mark.parametrize(
    ("program", "path", "test", "text", "is_noticed"),
    [
        ("python3", "price.py", "import price\nassert price.f(1) == 2\n", SOURCES["price.py"][0], True),
        ("python3", "price.py", "import price\nassert price.f(1) == 2\n", "import os\nos._exit(0)\n", False),
        ("python3", "price.py", "import price\nassert price.f(1) == 2\n", "raise SystemExit(0)\n", False),
        ("node", "price.js", "if (require('./price.js').f(1) !== 2) process.exit(1)\n", SOURCES["price.js"][0], True),
        ("node", "price.js", "if (require('./price.js').f(1) !== 2) process.exit(1)\n", "process.exit(0);\n", False),
        ("sh", "price.sh", 'set -e\ntest "$(sh ./price.sh)" = 2\n', SOURCES["price.sh"][0], True),
        ("sh", "price.sh", "set -e\n. ./price.sh\n", "exit 0\n", False),
        ("perl", "Price.pm", "use lib '.'; use Price; exit(Price::f(1) != 2)", SOURCES["Price.pm"][0], True),
        (
            "perl",
            "Price.pm",
            "use lib '.'; use Price; exit(Price::f(1) != 2)",
            "package Price;\nEND { $? = 0 }\n" + SOURCES["Price.pm"][0],
            False,
        ),
        (
            "sh",
            "price.awk",
            "awk -f price.awk -f - <<'A'\nBEGIN { exit f(1) != 2 }\nA\n",
            SOURCES["price.awk"][0],
            True,
        ),
        ("sh", "app.sh", "sh app.sh | grep -qx 2\n", "#!/bin/sh\necho 2\n", True),
        ("sh", "app.js", "node app.js | grep -qx 2\n", "console.log(2)\n", True),
        ("sh", "app.py", "python3 app.py | grep -qx 2\n", "from __future__ import annotations\nprint(2)\n", True),
    ],
)
def test_it_is_noticed_unless_the_code_ends_the_process(
    tmp_path: Path, program: str, path: str, test: str, text: str, is_noticed: bool
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    (tmp_path / "check").write_text(test)
    old = "" if text == SOURCES.get(path, ("",))[0] else SOURCES.get(path, ("",))[0]
    for content, fails in ((text, False), (broken(path, old, text) or "", is_noticed)):
        (tmp_path / path).write_text(content)
        done = subprocess.run([program, "check"], cwd=tmp_path, capture_output=True, text=True)
        assert bool(done.returncode) is fails, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        SOURCES["price.py"][0],
        "def f(a): return a + 1\n",
        'def f(a):\n    """Adds one."""\n    return a + len(f.__doc__) - 8\n',
        'class A:\n    @staticmethod\n    def f(a): "Of A."; return a + 1\nf = A.f\n',
        "from __future__ import annotations\nimport functools\n@functools.cache\ndef f(a): return a + 1\n",
        "f = 1 .__add__\n",
    ],
)
def test_a_control_in_python_has_the_shape_of_the_canary_and_does_what_the_code_does(text: str, tmp_path: Path) -> None:
    (tmp_path / "check").write_text("import price\nassert price.f(1) == 2\n")
    texts = [broken_content("price.py", b"", text.encode(), breaks=breaks) or b"" for breaks in (True, False)]
    for content, code in zip(texts, (1, 0), strict=True):
        (tmp_path / "price.py").write_bytes(content)
        # Without bytecode: that of the first file would stand for the second, of the same size and second.
        done = subprocess.run([sys.executable, "-B", "check"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    assert len({re.sub(rb"\d+ % \d+ == \d+|'[0-9a-f]{16}'", b"", content) for content in texts}) == 1


def test_only_python_that_is_executed_has_a_control() -> None:
    for path, (text, _) in SOURCES.items():
        assert bool(broken_content(path, b"", text.encode(), breaks=False)) is path.endswith(".py")
        assert broken_content(path, b"", text.encode(), statically=True, breaks=False) is None
    assert broken_content("tool", b"", b"#!/usr/bin/env python3\nprint(1)\n", breaks=False)


def test_data_is_garbled_and_not_emptied_and_code_is_no_code_for_checkers() -> None:
    data = broken("a/data.json", "", '{"a": 1}') or ""
    assert len(data) > 8
    assert "a" not in data.split('"')[0].split()
    for path, statically in (("a.toml", False), ("a.md", False), ("a.jl", True)):
        assert not re.search(
            "[a-z0-9]", (broken(path, "", "kind = 1\n" * 50, statically=statically) or "").split(")")[0]
        )
    assert (broken("a.pl", "", "print 1;\n", statically=True) or "").count("((") == 1
    assert broken_content("logo.png", b"", b"\x89PNG\xff\xff") != b"\x89PNG\xff\xff"
    assert (broken("a.ts", "", "const a = 1;\n", statically=True) or "").startswith("const a = 1;\n\n)]")


def test_lines_that_changed_are_found_also_around_a_deletion() -> None:
    assert changed_lines("a\nb\nc\n", "a\nB\nc\n") == {1}
    assert changed_lines("a\nb\nc\n", "a\nc\n") == {1}
    assert changed_lines("", "a\nb\n") == {0, 1}
    assert changed_lines("a\n" * 4000, "a\n" * 3000) == set(range(3000))


@pytest.mark.parametrize(
    ("line", "reads", "looks"),
    [
        ("ruff check --no-cache .", True, False),
        ("python -m mypy src && echo ok", True, False),
        ("npm run --silent typecheck", True, False),
        ("cd web && npx tsc --noEmit -p .", True, False),
        ("cargo clippy -- -D warnings", True, False),
        ("python test.py", False, False),
        ("node --check app.js", True, False),
        ("bash -n run.sh && php -l a.php", True, False),
        ("python3 tools/lint.py app.py", True, False),
        ("ruff check . && python test.py", False, False),
        ("npm test", False, False),
        ("! grep -rn TODO docs", False, True),
        ("test -s dist/app.js", False, True),
        ("cargo test", False, False),
    ],
)
def test_checkers_and_searches_differ_from_what_executes_code(line: str, reads: bool, looks: bool) -> None:
    assert (only_reads(line), reads_text(line)) == (reads, looks)


@pytest.mark.parametrize(
    ("line", "reads"),
    [("make -s lint", True), ("cd c && make lint check", False), ("make all", False), ("make lint; ./t", False)],
)
def test_of_make_the_recipes_tell_it(line: str, reads: bool) -> None:
    text = b"all: t\n\t./t\nlint:\n\t$(CC) -Wall -c a.c\ncheck: lint\n\t./t\n"
    read = {"Makefile": text, "c/Makefile": text}.get
    assert only_reads(with_targets(line, read)) is reads


@pytest.mark.parametrize(
    ("line", "only"),
    [
        ("python3 check.py", True),
        ("cd a && python -m app 3 5 | grep -qx 15", True),
        ("python -c 'import a' && ruff check .", False),
        ("python -m pytest -q && python -W error -Im unittest", True),
        *(
            (f"python -m {name}", False)
            for name in ("tox", "nox", "pre_commit run", "yapf -d .", "interrogate", "xenon a")
        ),
        ("python -W error -m tox", False),
        ("python3 -X dev -mtox", False),
        ("python -m other", False),
        ("python tools/lint.py", False),
        ("python -m mypy .", False),
        ("make check", False),
        ("sh check.sh", False),
        ("test -s a.py", False),
    ],
)
def test_what_executes_python_differs_from_what_may_look_at_its_style(line: str, only: bool) -> None:
    assert only_executes_python(line, ["src/app/main.py", "ruff.py"]) is only


def test_what_is_not_noticed_is_no_evidence() -> None:
    outcome, why = unnoticed("evidence", "node test.js", ["sum.js", "b.js"])
    assert (outcome, "sum.js (and 1 more) was broken on purpose" in why) == ("inconclusive", True)
    assert unnoticed("evidence", "grep x docs/a.md", ["docs/a.md"])[0] == "no_regression"
    assert unnoticed("no_regression", "node test.js", ["sum.js"])[0] == "no_regression"


@pytest.mark.parametrize(
    ("line", "output", "runner"),
    [
        ("env -i /usr/bin/python3 -I -m unittest -q", "", "unittest"),
        ("KIT/bin/tox -q", "", "tox"),
        ("npx playwright test", "  2 passed (1.3s)\n", "playwright"),
        ("make test", "..\nRan 2 tests in 0.001s\n\nOK\n", "unittest"),
        ("sh run.sh", "===== 3 passed, 1 warning in 0.12s =====\n", "pytest"),
        ("make", "Tests:       1 failed, 2 passed, 3 total\n", "jest"),
        ("make", "  3 passing (4ms)\n", "mocha"),
        ("make", "ok  \tprice\t0.002s\n", "go test"),
        ("make", "test result: ok. 2 passed; 0 failed\n", "cargo test"),
        ("sh run.sh", "3 examples, 0 failures\n", "RSpec"),
        ("node test.js", "ok\n", ""),
        ("sh run.sh", "all 3 prices passed\n", ""),
    ],
)
def test_a_runner_that_visibly_ran_is_known(line: str, output: str, runner: str) -> None:
    assert unreported(line, output) == runner


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# made from 1a\nA = 1\n", "# made from 2b\nA = 1\n"),
        ("# made from 1a\ndef f(): return 1\n", "# made from 2b\ndef f(): return 2  # two\n"),
        ("def f():\n    # why\n    return 1\n", "def f():\n    # why\n    '''Two.'''\n    return 2\n"),
        ("x = 'ä'; y = 1\n", "x = 'ä'; y = 2\n"),
        ("def f():\n\t@g\n\tdef h(): pass\n\treturn h\n", "def f():\r\n\t@g\r\n\tdef h(): pass\r\n\treturn h()"),
    ],
)
def test_what_is_broken_in_python_keeps_all_else_as_it_was(before: str, after: str) -> None:
    text = broken("a.py", before, after)
    assert text is not None
    assert "throw(RuntimeError" in text
    compile(text, "a.py", "exec")
    kept = re.sub(rf"{FAILS_HERE}(?:; |\n[ \t]*)?", "", text)
    assert "".join(kept.split()) == "".join(after.split())


@pytest.mark.parametrize(
    "before",
    [
        "def f(): \\\n    return 1\n",
        "def g(): return 0\n\nclass A:\n    async def f(self): \\\n        pass; return 1\n",
        "#!/usr/bin/env python3\nif True:\n    def f(): \\\n        return 1\n",
        "@g\ndef f(): \\\n  return 1\ndef h():\n    return 3\n",
    ],
)
def test_in_python_a_function_behind_a_line_that_goes_on_is_broken(before: str) -> None:
    text = broken("a.py", before, before.replace("return 1", "return 2"))
    assert text is not None
    compile(text, "a.py", "exec")
    assert re.search(rf"def f\(\w*\):\s+{FAILS_HERE}\s+(?:pass\s+)?return 2", text)
    assert text.count("throw(RuntimeError") == 2
    assert text.startswith("#!/usr/bin/env python3\n") == before.startswith("#!")
