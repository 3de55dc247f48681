"""The recipes of .github/RECIPES.md: each block is executed as it stands, on one stack, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.orchestrator.command_line import environment, started
from tests.orchestrator.front_page import executed
from tests.runs.bench import call, say
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

TEXT = (ROOT / ".github/RECIPES.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^## ([^\n]+)\n.*?^```(?:sh|python)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
PACKAGES = ("alpha", "beta", "gamma")
FILES = {
    "README.md": "A project.\n",
    "shop.py": "def right():\n    return False\n",
    "test_shop.py": "import unittest, shop\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertTrue(shop.right())\n",
    "UPGRADING.md": "Version 2 returns 2.\n",
    "issues.json": json.dumps([{"number": 7, "title": "It crashes"}, {"number": 8, "title": "Which license?"}]),
} | {
    f"packages/{name}/{file}": text
    for name in PACKAGES
    for file, text in {
        f"{name}.py": "VERSION = 1\n",
        f"test_{name}.py": f"import unittest, {name}\nclass T(unittest.TestCase):\n    def test(self):\n"
        f"        self.assertEqual({name}.VERSION, 2)\n",
    }.items()
}
REPAIR = call("write_file", path="shop.py", content="def right():\n    return True\n")
LIE = call(
    "write_file",
    path="test_shop.py",
    content="import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        pass\n",
)
UPGRADE = call(
    "write_file", path="packages/{{task /packages\\/(\\w+)/}}/{{task /packages\\/(\\w+)/}}.py", content="VERSION = 2\n"
)
BUG = call("submit_result", kind="bug", severity="high", files=["shop.py"])
QUESTION = call("submit_result", kind="question", severity="low", files=[])
RULES: list[dict[str, Any]] = [
    {"match": {"contains": "packages/gamma"}, "turns": [[say("It is upgraded.")]]},
    {"match": {"contains": "Upgrade packages/"}, "turns": [[UPGRADE], [say("It is upgraded.")]]},
    {"match": {"contains": "It crashes"}, "turns": [[BUG], [say("Done.")]]},
    {"match": {"contains": "Which license?"}, "turns": [[QUESTION], [say("Done.")]]},
    {"match": {"contains": "Change the test"}, "turns": [[LIE], [say("All tests pass now.")]]},
    {"match": {"contains": "Repair the code"}, "turns": [[REPAIR], [say("The code is repaired.")]]},
    {"turns": [[say("Nothing stands out.")]]},
]


def project(folder: Path, packages: tuple[str, ...] = PACKAGES) -> Path:
    left_out = {f"packages/{name}/" for name in {*PACKAGES} - {*packages}}
    for name, text in FILES.items():
        if any(map(name.startswith, left_out)):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def test_there_are_the_five() -> None:
    assert len(BLOCKS) == TEXT.count("\n## ") == TEXT.count("\n```\n") == 5


@pytest.mark.costly
async def test_each_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"rules": RULES}))
    here: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "home"),
        "DEPUTIZE_MODEL": f"scripted:{tmp_path / 'script.json'}",
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    }
    env = environment(**here)
    folders = {name: project(tmp_path / str(number)) for number, name in enumerate(BLOCKS)}
    lied, none = project(tmp_path / "lied"), project(tmp_path / "none", ("gamma",))
    lie = BLOCKS["A job of continuous integration"].replace("Repair the code", "Change the test")

    async def run(name: str, folder: Path | None = None) -> str:
        program = (sys.executable, "-c") if "import " in BLOCKS[name] else ()
        return await executed(BLOCKS[name], folder or folders[name], env, *program)

    async with started("up", "--port", "0", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        unverified = run("Upgrade a library in 30 packages", none)
        found = await asyncio.gather(*map(run, BLOCKS), unverified, executed(lie, lied, env), return_exceptions=True)
        stack.interrupt()
        await stack.done()
    *found, nothing, refused = found
    assert [str(each) for each in found if isinstance(each, BaseException)] == []
    review, upgrade, triage, over_mcp, repair = map(str, found)

    results = [
        json.loads(line) for line in (folders["Review 200 files"].parent / "review.jsonl").read_text().splitlines()
    ]
    assert len(results) == sum(name.endswith(".py") for name in FILES)
    assert all(each["success"] and not each["filesModified"] for each in results)
    assert "review" in review

    assert upgrade.splitlines() == [
        *("alpha verified", "beta verified", "gamma inconclusive"),
        "packages/alpha/alpha.py packages/beta/beta.py",
    ]
    changed = folders["Upgrade a library in 30 packages"] / "packages"
    upgraded = [(changed / name / f"{name}.py").read_text() for name in PACKAGES]
    assert upgraded == ["VERSION = 2\n", "VERSION = 2\n", "VERSION = 1\n"]

    assert "nothing was verified, so nothing is merged" in str(nothing)
    assert "Traceback" not in str(nothing)

    assert triage.splitlines() == ["7 bug high shop.py", "8 question low"]
    assert over_mcp.splitlines()[0].startswith("delegate ")
    assert "\nFalse Nothing stands out.\n" in over_mcp
    last = folders["A job of continuous integration"]
    assert json.loads((last / "result.json").read_text())["verification"]["verdict"] == "verified"
    assert (last / "shop.py").read_text() == "def right():\n    return True\n", repair

    # Its check was red before and is green after, and the agent changed only the test.
    assert json.loads((lied / "result.json").read_text())["verification"]["verdict"] == "inconclusive"
    assert isinstance(refused, AssertionError)
    assert "nothing was applied to " in str(refused)
    assert (lied / "test_shop.py").read_text() == FILES["test_shop.py"]
