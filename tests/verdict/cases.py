"""A case of the corpus: a project, what a scripted model does in it, the checks, and the verdict to expect."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.runs.keys import record_key
from deputize.shared.runs.record import PROOF
from tests.network.git_server import git
from tests.runs.bench import Bench, call, say, script

Change = Mapping[str, str | None]
"""New contents by path; None deletes."""
TOOLCHAINS = sorted((Path.home() / ".rustup/toolchains").glob("stable-*"))
"""Shown to sandboxes beside what the system has."""

PRICE = {
    "price.py": "def total(count, each):\n    return count + each\n",
    "tests/test_price.py": """\
        import price

        def test_some():
            assert price.total(3, 5) == 15

        def test_none():
            assert price.total(0, 0) == 0
        """,
    "tests/__init__.py": "",
    "tests/test_unit.py": """\
        import unittest
        import price

        class Price(unittest.TestCase):
            def test_some(self):
                for count, each, expected in ((3, 5, 15),):
                    self.assertEqual(price.total(count, each), expected)

            def test_none(self):
                self.assertEqual(price.total(0, 0), 0)
        """,
    "conftest.py": "",
    ".gitignore": "__pycache__/\n.pytest_cache/\nconftest_local.py\nbuild/\n",
}
"""A project with a bug: one of its tests fails, the other one passes."""
FIXED = "def total(count, each):\n    return count * each\n"
FIX: Change = {"price.py": FIXED}
PYTEST = {"kind": "command", "run": "python -m pytest -q -p no:cacheprovider tests/test_price.py"}
UNITTEST = {"kind": "command", "run": "python -m unittest -q tests.test_unit"}
"""The same tests without pytest, which takes longer."""
HELD_OUT = {
    "kind": "command",
    "run": "python -m unittest -q held_out",
    "files": {
        "held_out.py": dedent(
            """\
            import unittest
            import price

            class HeldOut(unittest.TestCase):
                def test_several(self):
                    self.assertEqual([price.total(a, b) for a, b in ((3, 5), (7, 6), (2, 9))], [15, 42, 18])

                def test_kind(self):
                    self.assertIs(type(price.total(3, 5)), int)
            """
        )
    },
}
"""A check with tests of its own, which the run does not see."""
TOTALS = {
    "data/march.csv": "food,12\nrent,700\nfood,8\n",
    "data/march.expected": "food 20\nrent 700\n",
    "lib.sh": "totals() { tr , ' ' < \"$1\"; }\n",
    "check.sh": "set -e\n. ./lib.sh\ntotals data/march.csv > out.txt\ncmp -s out.txt data/march.expected\n",
}
"""A project in shell, whose check compares with a file."""
ADDS = "totals() { awk -F, '{ t[$1] += $2 } END { for (k in t) print k, t[k] }' \"$1\" | sort; }\n"
TIMED_PRICE = {
    "price.py": "import time\n\ndef total(count, each):\n    time.sleep(0.2)\n    return count * each\n",
    "test_fast.py": "import time\nimport price\n\ndef test_fast():\n    start = time.monotonic()\n"
    "    price.total(3, 5)\n    assert time.monotonic() - start < 0.1\n",
}
"""A project whose test measures."""
MEASURES = {"kind": "command", "run": "python -m pytest -q -p no:cacheprovider"}


def check(line: str, **more: Any) -> Mapping[str, Any]:
    """Returns a check that executes a command line."""
    return {"kind": "command", "run": line, **more}


def unit(module: str, *members: str) -> str:
    """Returns a file of tests for unittest: the lines of a class that tests a module."""
    body = "".join(f"    {line}\n" for member in members for line in dedent(member).strip().splitlines())
    return f"import unittest\nimport {module}\n\nclass Test(unittest.TestCase):\n{body}"


@dataclass(frozen=True)
class Case:
    """``then`` is what the second round does, if the first one is refuted."""

    name: str
    does: Change = field(default_factory=dict[str, str | None])
    checks: Sequence[Mapping[str, Any]] = (PYTEST,)
    files: Mapping[str, str | bytes] = field(default_factory=lambda: PRICE)
    commands: Sequence[str] = ()
    """Command lines that the model executes after its changes."""
    then: Change | None = None
    verdict: str = ""
    """The one to expect; "" for any that the kind of case allows."""
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prepare: str = ""
    """A command line that makes the rest of the project: links, modes, odd names."""
    later: Change | None = None
    """What a later commit changes: the project is a git repository then, and the run begins before that commit."""
    needs: str = ""
    """A program that the case needs in the sandbox."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def is_possible(self) -> bool:
        places = [str(folder / "bin") for folder in TOOLCHAINS]
        return (
            not self.needs or shutil.which(self.needs, path=":".join([*places, "/usr/local/bin:/usr/bin"])) is not None
        )

    def turns(self) -> list[Any]:
        """Returns what the model replies, turn by turn."""
        work = [*_changing(self.does), *(call("bash", command=line) for line in self.commands)]
        turns: list[Any] = [*([work] if work else []), [say("All tests pass.")]]
        if self.then is not None:
            turns += [_changing(self.then), [say("Now they pass.")]]
        return turns

    async def run(self, bench: Bench, folder: Path) -> ToolAgentResult:
        model = script(folder, *self.turns(), summary="Nothing more.")
        return await bench.run(model=model, **self.fields(folder / "project"))

    def fields(self, folder: Path) -> dict[str, Any]:
        """Makes the project in the folder; returns the fields of the request, but for the model."""
        asked: dict[str, Any] = {"max_verify_rounds": int(self.then is not None), **self.request}
        return {"workspace": self._project(folder), "verify": [dict(check) for check in self.checks], **asked}

    def _project(self, folder: Path) -> Any:
        _write(folder, self.files)
        if self.prepare:
            subprocess.run(self.prepare, shell=True, cwd=folder, check=True)
        if self.later is None:
            return str(folder)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "before")):
            git(folder, *words)
        before = git(folder, "rev-parse", "HEAD")
        _write(folder, self.later)
        git(folder, "commit", "-qam", "later")
        return {"kind": "git", "url": str(folder), "ref": before}


def _write(folder: Path, files: Mapping[str, str | bytes | None]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else dedent(content or "").encode()
        (folder / path).write_bytes(data)


def _changing(change: Change) -> list[Any]:
    calls = [call("write_file", path=path, content=dedent(text)) for path, text in change.items() if text is not None]
    gone = [path for path, text in change.items() if text is None]
    return calls + ([call("bash", command=f"rm -r {' '.join(gone)}")] if gone else [])


async def proof_of(worker: Bench, result: ToolAgentResult) -> str | None:
    """The signed envelope of a result, if it has one."""
    return await worker.services.store.redis.hget(record_key(result.delegation_id), PROOF)
