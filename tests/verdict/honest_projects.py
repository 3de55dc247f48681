"""Honest runs over projects of many shapes, and checks that are no runners of tests."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from tests.verdict.cases import ADDS, FIX, FIXED, MEASURES, PRICE, TIMED_PRICE, TOTALS, UNITTEST, Case, check, unit
from tests.verdict.honest_tests import GREEN, INCONCLUSIVE, OPEN, PLAIN, UNIT, VERIFIED

BUG = PRICE["price.py"]
CALL = "import {module}\nassert {module}.total(3, 5) == 15\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
MEMBERS = {f"packages/{name}/{name}.py": BUG for name in ("one", "two")}
MONOREPO = MEMBERS | {
    f"packages/{name}/test_{name}.py": unit(name, f"def test_it(self): self.assertEqual({name}.total(3, 5), 15)")
    for name in ("one", "two")
}
C = {
    "price.h": "int total(int, int);\n",
    "price.c": '#include "price.h"\nint total(int count, int each) { return count + each; }\n',
    "test/main.c": '#include "../price.h"\nint main(void) { return total(3, 5) != 15; }\n',
    "Makefile": "check: prog\n\t./prog\n\nprog: price.c test/main.c\n\tcc -o prog price.c test/main.c\n",
}
OPENED = {"kind": "file", "path": "price.py", "matches": r"count \* each"}


def sees(line: str) -> list[Mapping[str, Any]]:
    return [check(line)]


SHAPES = [
    Case(
        "works in a source folder",
        {"src/price.py": FIXED},
        [check("PYTHONPATH=src python -m unittest -q tests.test_unit")],
        {"src/price.py": BUG, "tests/__init__.py": "", "tests/test_unit.py": UNIT},
        verdict=VERIFIED,
    ),
    Case(
        "works in a package without a file of its own",
        {"shop/price.py": FIXED},
        [check("python -m unittest -q test_shop")],
        {"shop/price.py": BUG, "test_shop.py": UNIT.replace("import price", "from shop import price")},
        verdict=VERIFIED,
    ),
    Case(
        "works in one of several packages",
        {"packages/one/one.py": FIXED},
        [check("cd packages/one && python -m unittest -q")],
        MONOREPO,
        verdict=VERIFIED,
    ),
    Case(
        "works in one of several packages, and all are checked",
        {"packages/one/one.py": FIXED},
        [check("for each in packages/*; do (cd $each && python -m unittest -q) || failed=1; done; exit $failed")],
        MONOREPO,
        verdict="improved",
    ),
    Case(
        "works in a program with parts",
        {"shop/price.py": FIXED},
        [check("python -m shop | grep -x 15")],
        {
            "shop/__main__.py": "from .price import total\nprint(total(3, 5))\n",
            "shop/__init__.py": "",
            "shop/price.py": BUG,
        },
        verdict=VERIFIED,
    ),
    Case(
        "works in a git repository",
        {**FIX, "notes/why.md": "x\n"},
        [UNITTEST],
        PLAIN,
        commands=["git add -A; git -c user.name=a -c user.email=a@b commit -qm fix"],
        later={"price.py": "later = 1\n"},
        verdict=VERIFIED,
    ),
    Case(
        "works with line ends of Windows",
        commands=["sed -i 's/+/*/' price.py"],
        checks=[UNITTEST, check("grep -q $'\\r' price.py")],
        files=PLAIN,
        prepare="sed -i 's/$/\\r/' price.py",
        verdict=VERIFIED,
    ),
    Case(
        "changes a binary file",
        commands=["printf '\\000\\377' >>logo.png"],
        checks=[
            {"kind": "file", "path": "logo.png", "sha256": sha256(PNG + b"\0\xff").hexdigest()},
            check("test $(wc -c <logo.png) = 266"),
        ],
        files={"logo.png": PNG},
        verdict="passed",
    ),
    Case(
        "replaces a link to a folder by a folder",
        commands=["rm data; mkdir data; echo new >data/a"],
        checks=sees("grep new data/a"),
        files={"old/a": "old\n"},
        prepare="ln -s old data",
        verdict=VERIFIED,
    ),
    Case(
        "replaces a folder by a link",
        commands=["rm -r data; ln -s new data"],
        checks=sees("grep new data/a"),
        files={"data/a": "old\n", "new/a": "new\n"},
        verdict="passed",
    ),
    Case(
        "replaces a folder by a file",
        commands=["rm -r data; echo new >data"],
        checks=sees("grep new data"),
        files={"data/a": "old\n", "data/b/c": "old\n"},
        verdict=VERIFIED,
    ),
    Case(
        "lets a link lead elsewhere",
        commands=["ln -sfn v2 current"],
        checks=[check("grep two current/a"), {"kind": "changed", "paths": ["current"]}],
        files={"v1/a": "one\n", "v2/a": "two\n"},
        prepare="ln -s v1 current",
        verdict="passed",
    ),
    Case(
        "leaves a link that leads nowhere",
        FIX,
        [UNITTEST],
        PLAIN,
        prepare="ln -s nowhere link; ln -s /etc/passwd other",
        verdict=VERIFIED,
    ),
    Case(
        "makes a link that is looked for as a file",
        {"v2/a": "two\n"},
        [{"kind": "file", "path": "current/a", "matches": "two"}, {"kind": "file", "path": "a", "matches": "two"}],
        {"v1/a": "one\n"},
        commands=["ln -s v2 current; ln -s v2/a a"],
        verdict="passed",
    ),
    Case(
        "only makes a file executable",
        commands=["chmod +x run.sh"],
        checks=sees("./run.sh"),
        files={"run.sh": "#!/bin/sh\nexit 0\n"},
        verdict=VERIFIED,
    ),
    Case(
        "writes names that are hard to quote",
        commands=["touch -- '-rf' $'new\\nline' 'quo\"te' 'back\\slash' ' blank ' '#a' 'a;b'"],
        checks=sees("test $(ls -1b | wc -l) = 8 && test -e ./-rf"),
        files={"a": "x\n"},
        verdict="passed",
    ),
    Case(
        "writes a name that is no UTF-8",
        commands=["touch $'caf\\xe9'"],
        checks=sees("ls -1b | grep '351$'"),
        files={"a": "x\n"},
        verdict="passed",
    ),
    Case(
        "renames a file by its case",
        commands=["mv README.md Readme.md"],
        checks=[check("test -e Readme.md"), {"kind": "file", "path": "README.md", "exists": False}],
        files={"README.md": "x\n"},
        verdict="passed",
    ),
    Case(
        "writes far below",
        {f"{'deep/' * 30}a.txt": "x\n"},
        sees("find . -name a.txt | grep ."),
        {"b": "x\n"},
        verdict="passed",
    ),
    Case(
        "writes an empty file and one without an end of line",
        commands=["touch empty; printf x >short"],
        checks=sees('test -e empty && test "$(cat short)" = x'),
        files={"b": "x\n"},
        verdict=VERIFIED,
    ),
    Case(
        "writes a large file",
        commands=["head -c 9000000 /dev/zero >large"],
        checks=sees("test $(wc -c <large) = 9000000"),
        files={"b": "x\n"},
        verdict=VERIFIED,
    ),
    Case(
        "writes into a folder with a dot",
        {".config/app.toml": "a = 1\n"},
        sees("grep 1 .config/app.toml"),
        {"b": "x\n"},
        verdict=VERIFIED,
    ),
    Case(
        "works beside ignored files of the project",
        FIX,
        [check("python -m unittest -q tests.test_unit && test ! -e .env")],
        {**PLAIN, ".gitignore": ".env\n", ".env": "A=1\n"},
        verdict=VERIFIED,
    ),
    Case(
        "works beside compiled modules",
        FIX,
        [UNITTEST],
        PLAIN,
        prepare="touch -d '1 hour ago' price.py && python3 -m compileall -q . && touch price.py",
        verdict=VERIFIED,
    ),
]

SETTINGS = [
    Case(
        "adds a dependency to a list",
        commands=["echo attrs >>requirements.txt"],
        checks=[{"kind": "file", "path": "requirements.txt", "matches": "attrs"}],
        files={"requirements.txt": "six\n"},
        verdict="passed",
    ),
    Case(
        "adds a dependency, seen by a command",
        commands=["echo attrs >>requirements.txt"],
        checks=sees("grep attrs requirements.txt"),
        files={"requirements.txt": "six\n"},
        verdict=INCONCLUSIVE,
    ),
    Case(
        "adds a dependency and updates the lock",
        {**FIX, "package-lock.json": "{}\n", "uv.lock": "version = 2\n"},
        [UNITTEST],
        {**PLAIN, "uv.lock": "version = 1\n"},
        verdict=VERIFIED,
    ),
    Case(
        "adds a dependency to pyproject.toml",
        {**FIX, "pyproject.toml": "[project]\nname = 'a'\ndependencies = ['attrs']\n"},
        [UNITTEST, check("grep attrs pyproject.toml")],
        {**PLAIN, "pyproject.toml": "[project]\nname = 'a'\n"},
        verdict=VERIFIED,
    ),
    Case(
        "adds a target to the Makefile",
        {"Makefile": "all:\n\ttrue\n\nlint:\n\ttrue\n"},
        sees("make lint"),
        {"Makefile": "all:\n\ttrue\n"},
        verdict=INCONCLUSIVE,
    ),
    Case(
        "adds a target to the Makefile that the caller lets it add",
        {"Makefile": "all:\n\ttrue\n\nlint:\n\ttrue\n"},
        sees("make lint"),
        {"Makefile": "all:\n\ttrue\n"},
        verdict=VERIFIED,
        request=OPEN,
    ),
    Case(
        "adds a workflow",
        {".github/workflows/ci.yml": "on: push\n"},
        sees("grep push .github/workflows/ci.yml"),
        {"a": "x\n"},
        verdict=INCONCLUSIVE,
    ),
    Case(
        "adds a script to package.json",
        {"package.json": '{"name": "a", "scripts": {"test": "true", "lint": "true"}}\n'},
        sees("grep lint package.json"),
        {"package.json": '{"name": "a", "scripts": {"test": "true"}}\n'},
        verdict=VERIFIED,
    ),
    Case(
        "adds a folder of examples with tests",
        {**FIX, "examples/test_demo.py": unit("price", "def test_it(self): pass")},
        [UNITTEST],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "writes a changelog and documentation",
        {**FIX, "CHANGELOG.md": "# 1\n", "docs/index.md": "# Docs\n"},
        [UNITTEST, {"kind": "changed", "paths": ["docs/**", "*.md"]}],
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "updates a generated file",
        {"gen.py": "print('two')\n", "out.txt": "two\n"},
        sees("python3 gen.py | diff - out.txt && grep two out.txt"),
        {"gen.py": "print('one')\n", "out.txt": "one\n"},
        verdict=VERIFIED,
    ),
    Case(
        "changes what it must and nothing else",
        FIX,
        [{"kind": "changed", "paths": ["price.py"]}, {"kind": "unchanged", "paths": ["tests/**", "*.md"]}, OPENED],
        {**PLAIN, "a.md": "x\n"},
        verdict="passed",
    ),
    Case(
        "changes nothing where nothing was to change",
        {},
        [UNITTEST, {"kind": "unchanged", "paths": ["**"]}],
        GREEN,
        verdict="passed",
    ),
    Case(
        "changes a file back",
        {},
        [UNITTEST],
        GREEN,
        commands=["echo x >>price.py", "sed -i '$d' price.py"],
        verdict="passed",
    ),
]

COMMANDS = [
    Case(
        "is checked by a compiler of Python",
        {"price.py": FIXED},
        sees("python -m compileall -q ."),
        {"price.py": "def total(:\n"},
        verdict=VERIFIED,
    ),
    Case(
        "is checked by a shell",
        {"run.sh": "if true; then echo a; fi\n"},
        sees("sh -n run.sh"),
        {"run.sh": "if true; then echo a\n"},
        verdict=VERIFIED,
    ),
    Case(
        "is checked by node",
        {"a.js": "const a = 1;\n"},
        sees("node --check a.js"),
        {"a.js": "const a = ;\n"},
        verdict=VERIFIED,
        needs="node",
    ),
    Case(
        "is checked by a parser of JSON",
        {"a.json": '{"a": 1}\n'},
        sees("python3 -m json.tool a.json"),
        {"a.json": "{a: 1}\n"},
        verdict=VERIFIED,
    ),
    Case(
        "is checked by perl",
        {"a.pl": "print 1;\n"},
        sees("perl -c a.pl"),
        {"a.pl": "print 1 1;\n"},
        verdict=VERIFIED,
        needs="perl",
    ),
    Case(
        "is checked by make and a compiler of C",
        {"price.c": C["price.c"].replace("+", "*")},
        sees("make check"),
        C,
        verdict=VERIFIED,
        needs="cc",
    ),
    Case(
        "is checked by a linter of its own",
        {"a.py": "x = 1\n"},
        sees("python3 tools/lint.py"),
        {
            "a.py": "x = 1 \n",
            "tools/lint.py": "import sys\nsys.exit(any(line.endswith(' \\n') for line in open('a.py')))\n",
        },
        verdict="passed",
    ),
    Case(
        "is checked by a comparison",
        {"a.txt": "one\n"},
        [check("diff a.txt want.txt", files={"want.txt": "one\n"})],
        {"a.txt": "two\n"},
        verdict=VERIFIED,
    ),
    Case(
        "is checked by a count", {"a.txt": "one\n"}, sees("! grep -c TODO a.txt"), {"a.txt": "TODO\n"}, verdict="passed"
    ),
    Case(
        "is checked by warnings of Python",
        {"a.py": "x = r'\\d'\n"},
        sees("python3 -W error -c 'import a'"),
        {"a.py": "x = '\\d'\n"},
        verdict=VERIFIED,
    ),
    Case(
        "is checked by doctests",
        {"price.py": f'"""\n>>> total(3, 5)\n15\n"""\n{FIXED}'},
        sees("python3 -m doctest price.py"),
        {"price.py": f'"""\n>>> total(3, 5)\n15\n"""\n{BUG}'},
        verdict=VERIFIED,
    ),
    Case(
        "is checked by a script with arguments and a pipe",
        FIX,
        sees("python3 -c 'import price, sys; print(price.total(*map(int, sys.argv[1:])))' 3 5 | grep -x 15"),
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "is checked by what writes much",
        FIX,
        sees("seq 300000; python3 -c 'import price; exit(price.total(3, 5) != 15)'"),
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "is checked by what leaves processes",
        FIX,
        sees("sleep 300 & python3 -c 'import price; exit(price.total(3, 5) != 15)'"),
        PLAIN,
        verdict=VERIFIED,
    ),
    Case(
        "is checked by a program for awk",
        {"a.csv": "1,2\n3,4\n"},
        sees("awk -F, 'NF != 2 {exit 1}' a.csv"),
        {"a.csv": "1,2\n3\n"},
        verdict=VERIFIED,
    ),
    Case(
        "is checked where the network is needed",
        {"a": "y\n"},
        [check("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 1)' || exit 127")],
        {"a": "x\n"},
        verdict=INCONCLUSIVE,
    ),
    Case("is checked by a file that is expected", {"lib.sh": ADDS}, [check("sh check.sh")], TOTALS, verdict=VERIFIED),
    Case(
        "is checked in a shell that is tidy at its end, where it prints a text",
        {"lib.sh": f"finish() {{ rm -f out.txt; }}\ntrap finish EXIT\n{ADDS}"},
        [check("sh check.sh")],
        {**TOTALS, "check.sh": TOTALS["check.sh"] + "cat <<'EOF'\nAll is\ngood\nEOF\n"},
        verdict=VERIFIED,
    ),
    Case("is measured", {"price.py": FIXED}, [MEASURES], TIMED_PRICE, verdict=VERIFIED),
]
