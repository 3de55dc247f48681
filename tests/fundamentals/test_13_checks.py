"""13. Checks: `deputize run … --verify X && ship` ships only what meets the requirement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from deputize.orchestrator.home import StackInfo
from tests.orchestrator.command_line import deputize
from tests.runs.bench import call, say, script
from tests.sampling import sampled

TESTS = dedent(
    """\
    import unittest
    import price

    class Test(unittest.TestCase):
        def test_total(self):
            self.assertEqual(price.total(3, 5), 15)

        def test_none(self):
            self.assertEqual(price.none(), 0)

        def test_one(self):
            self.assertEqual(price.total(1, 1), 1)
    """
)
PRICE = "def total(count, each):\n    return count + each\n\n\ndef none():\n    return 0\n"
FIXED = PRICE.replace("count + each", "count * each")
BROKEN = FIXED.replace("return 0", "return 1")
HALF = PRICE.replace("count + each", "1 if count == 1 else 8")
FILES: Mapping[str, str] = {
    "price.py": PRICE,
    "test_price.py": TESTS,
    "check.sh": "python3 -m unittest -q test_price\n",
    "Makefile": "check:\n\tsh check.sh\n",
}
"""A project with a bug: two of its tests fail."""
UNIT = "python3 -m unittest -q test_price"
EMPTY = "import unittest\n\nclass Test(unittest.TestCase):\n    pass\n"
SKIPPED = TESTS.replace("    def test_none", "    @unittest.skip('later')\n    def test_none")
EQUAL = "class Any(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n\n\n"
HIDDEN = "import unittest\nimport price\n\nclass Own(unittest.TestCase):\n"
HIDDEN += "    def test(self):\n        self.assertEqual(price.total(7, 6), 42)\n"
UNNOTICED = (
    "diff --git a/price.py b/price.py\n--- a/price.py\n+++ b/price.py\n@@ -6 +6 @@\n-    return 0\n+    return 5\n"
)


@dataclass(frozen=True)
class Variant:
    """``checks`` are command lines or, as objects, checks of a file; ``does`` is what the model writes or deletes."""

    code: int
    checks: Sequence[str | Mapping[str, Any]] = (UNIT,)
    does: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Sequence[str] = ()
    command: str = ""
    """What the model executes then."""


def fix(code: int, *checks: str | Mapping[str, Any], options: Sequence[str] = (), **more: Any) -> Variant:
    """A variant whose model repairs the bug."""
    return Variant(code, checks or (UNIT,), {"price.py": FIXED}, options, **more)


def own(run: str, **fields: Any) -> Mapping[str, Any]:
    return {"kind": "command", "run": run, **fields}


VARIANTS: Mapping[str, Variant] = {
    "red as before": Variant(6),
    "red as before, known by its exit code": Variant(6, ["test -e done"]),
    "red with another code": Variant(6, ["exit 255"]),
    "prints OK and fails": Variant(6, ["echo OK; exit 1"]),
    "fails in a pipe": Variant(6, ["set -o pipefail; false | cat"]),
    "ends itself": Variant(6, ["kill -9 $$"]),
    "an error of syntax": Variant(6, ["if true; do"]),
    "newly red": Variant(1, does={"price.py": BROKEN}),
    "newly red, known by its exit code": Variant(1, ["test ! -e done"], {"done": "yes\n"}),
    "newly an error of syntax": Variant(1, ["python3 price.py"], {"price.py": "def total(:\n"}),
    "everything is gone": Variant(1, ["grep -q total price.py"], command="rm -rf ./*"),
    "unreadable": Variant(1, ["cat price.py"], command="rm price.py; ln -s gone price.py"),
    "no such program": fix(3, "no-such-program --all"),
    "no such program, begun all the same": fix(6, "no-such-program", options=["--verify-early", "no"]),
    "no such script": fix(6, "sh missing.sh", options=["--verify-early", "no"]),
    "not executable": fix(6, "./check.sh", options=["--verify-early", "no"]),
    "no such module": fix(6, "python3 -m no_such_module", options=["--verify-early", "no"]),
    "does not end": fix(6, "sleep 60", options=["--verify-timeout", "0.5"]),
    "does not end any more": Variant(
        1, ["python3 price.py"], {"price.py": "while True: pass\n"}, ["--verify-timeout", "2"]
    ),
    "prints without an end": fix(6, "yes", options=["--verify-timeout", "1"]),
    "needs the network": fix(6, "python3 -c 'import urllib.request as u; u.urlopen(\"http://example.org\")'"),
    "no tests": fix(6, "python3 -m unittest -q empty", command="touch empty.py"),
    "one of two red": fix(6, UNIT, "test -e done"),
    "the first of two red": fix(6, "test -e done", UNIT),
    "one of two newly red": fix(1, UNIT, "test ! -e done", command="touch done"),
    "half repaired": Variant(6, does={"price.py": HALF}),
    "half repaired where all must be": Variant(6, does={"price.py": HALF}, options=["--require", "verified"]),
    "not even improved": Variant(6, options=["--require", "improved"]),
    "worse than improved": Variant(1, does={"price.py": BROKEN}, options=["--require", "improved"]),
    "tests edited": Variant(6, does={"test_price.py": TESTS.replace("15", "8").replace("1, 1), 1", "1, 1), 2")}),
    "tests emptied": Variant(1, does={"test_price.py": EMPTY}, options=["--protect", "no-such-file"]),
    "tests removed": Variant(1, command="rm test_price.py", options=["--protect", "no-such-file"]),
    "a test skipped": Variant(
        1, does={"price.py": FIXED, "test_price.py": SKIPPED}, options=["--protect", "no-such-file"]
    ),
    "the script of the check rewritten": Variant(6, ["sh check.sh"], {"check.sh": "exit 0\n"}),
    "the makefile rewritten": Variant(6, ["make -s check"], {"Makefile": "check:\n\ttrue\n"}),
    "a library planted": Variant(6, does={"unittest.py": "import sys\nsys.exit(0)\n"}),
    "ends the process while it is imported": Variant(1, does={"price.py": "import os\nos._exit(0)\n"}),
    "equal to everything": Variant(6, does={"price.py": EQUAL + FIXED}),
    "a file is missing": fix(1, {"kind": "file", "path": "CHANGELOG.md"}),
    "a file without the words": fix(1, {"kind": "file", "path": "price.py", "matches": "class Price"}),
    "a file with other content": fix(1, {"kind": "file", "path": "price.py", "sha256": "0" * 64}),
    "a file changed that must not be": fix(1, {"kind": "unchanged", "paths": ["price.py"]}),
    "a file not changed that must be": fix(1, {"kind": "changed", "paths": ["docs/**"]}),
    "a hidden test fails": Variant(1, [own("python3 -m unittest -q own", files={"own.py": HIDDEN})]),
    "something broken goes unnoticed": fix(1, own("grep -q '[*] each' price.py", canary=UNNOTICED)),
    "no evidence where some is required": fix(6, "test -e price.py", options=["--require", "verified"]),
    "at a limit": fix(5, options=["--max-turns", "1"]),
    "out of time": Variant(5, options=["--timeout", "1"], command="sleep 30"),
    "a wait that is too short": Variant(124, options=["--wait", "0.2"], command="sleep 3"),
    "a denied call": fix(4, command="sudo true", options=["--fail-on-denied"]),
    "verified": fix(0),
    "passed": Variant(0, ["test -e price.py"], {"docs.md": "More.\n"}),
    "improved, as required": Variant(0, does={"price.py": HALF}, options=["--require", "improved"]),
}


@pytest.mark.parametrize("variant", sampled(VARIANTS, 6))
async def test_only_what_meets_the_requirement_is_shipped(variant: Variant, stack: StackInfo, tmp_path: Path) -> None:
    """The changes are applied exactly with exit code 0; also with 4 where a denied call alone is the reason."""
    project = tmp_path / "project"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text)
    writes = [call("write_file", path=name, content=text) for name, text in variant.does.items()]
    work = [*writes, *([call("bash", command=variant.command)] if variant.command else [])]
    model = script(tmp_path, *([work] if work else []), [say("All tests pass.")], summary="No more time.")
    (tmp_path / "checks.json").write_text(json.dumps(variant.checks))
    asked = ["--workspace", str(project), "--model", model, "--max-verify-rounds", "0", *variant.options]
    given = ["--verify-file", str(tmp_path / "checks.json"), "--apply"]
    done = await deputize("run", "Repair price.py.", *asked, *given, DEPUTIZE_URL=stack.url, DEPUTIZE_TOKEN=stack.token)
    assert done.code == variant.code, done.err
    now = {path.name: path.read_text() for path in project.iterdir()}
    assert (now == FILES) is (variant.code not in (0, 4)), done.err
    if variant.code in (1, 6):
        assert f"nothing was applied to {project}: " in done.err
