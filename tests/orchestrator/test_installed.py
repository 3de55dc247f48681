"""The wheel in an empty environment of each Python at hand: README.md's blocks run there as they stand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.demo import parts
from deputize.orchestrator.cli.operate import DESKTOP
from tests.architecture.sources import PACKAGES, ROOT
from tests.orchestrator.command_line import environment
from tests.orchestrator.front_page import COMMANDS, HTTP, INSTALLING, PORT, PYTHON, QUICK_START, executed
from tests.runs.bench import call, say

pytestmark = pytest.mark.system

PYTHONS = [Path(sys.executable), *sorted(Path(sys.prefix, "pythons").glob("*/bin/python"))]
"""This one, and those that `.ci/setup pythons` found and gave what the wheel needs."""
REPAIR = call("write_file", path="shop.py", content="def right():\n    return True\n")
RULES = [
    {"match": {"contains": "Find and fix the bug"}, "turns": [[REPAIR], [say("One value was wrong.")]]},
    {"turns": [[say("All of it is done.")]]},
]
TEST = """import unittest, shop
class T(unittest.TestCase):
    def test_it(self):
        self.assertTrue(shop.right())
"""
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1", "PIP_IGNORE_INSTALLED": "1"}


def checkout(folder: Path) -> Path:
    """A copy of the project, so that nothing is made in this one."""
    for package in (*PACKAGES, ".package"):
        shutil.copytree(ROOT / package, folder / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    return folder


def empty_environment(python: Path, folder: Path) -> Path:
    """A new environment; what the wheel needs is there, as in the one of ``python``. Returns its site-packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    ask = "import sys; print(*(path for path in sys.path if path.endswith('site-packages')))"
    there = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "installed.pth").write_text(there)
    return site


async def installed_as_it_says(source: Path, fresh: Path, site: Path, home: Path) -> None:
    """Executes the block of README.md that installs the project, and looks at what is there then."""
    (fresh / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (fresh / "bin" / "pip").chmod(0o755)
    env = environment(**OFFLINE, DEPUTIZE_HOME=str(home), DEPUTIZE_MODEL="scripted", PATH=f"{fresh}/bin:/usr/bin:/bin")
    said = await executed(INSTALLING, source, env)
    assert "Successfully installed deputize-" in said
    patch = await executed(hint_of_the_demo(said), home.parent, {"PATH": env["PATH"], "HOME": str(home.parent)})
    assert re.search(r"^diff --git ", patch, re.MULTILINE)  # in a shell that does not know the home
    assert not {path.name for path in site.iterdir()} & {*PACKAGES}
    page = [each.relative_to(ROOT) for each in (ROOT / "orchestrator" / "web").rglob("*.[jch]*s*")]
    assert [str(each) for each in page if not (site / "deputize" / each).is_file()] == []
    (metadata,) = site.glob("deputize-*.dist-info/METADATA")
    assert "\n# deputize\n" in metadata.read_text()


async def started_quickly(folder: Path, env: dict[str, str]) -> None:
    """Executes the block of README.md about the reader's own project, which is repaired by it."""
    project = failing(folder / "my-project")
    said = await executed(QUICK_START, folder, env)
    assert "✓ verified (completed, 1 of 1 attempt passed)" in said
    assert (project / "shop.py").read_text() == REPAIR["arguments"]["content"]


def failing(project: Path) -> Path:
    """A project with a test that fails."""
    project.mkdir()
    (project / "README.md").write_text("A project.\n")
    (project / "shop.py").write_text("def right():\n    return False\n")
    (project / "test_shop.py").write_text(TEST)
    return project


def hint_of_the_demo(said: str) -> str:
    """Checks what `deputize demo` has shown. Returns the command that it names for more of it."""
    assert "a script plays the model's part" in " ".join(said.split())
    truths = [part.truth for part in parts({"kind": "empty"}, {"kind": "empty"}, None)]
    assert [line.removeprefix("✓ ") for line in said.splitlines() if line.removeprefix("✓ ") in truths] == truths
    assert "NOT TRUE" not in said
    assert "+        if subtotal >= DISCOUNT_FROM:" in said
    assert len(re.findall(r"^[✓✗] (?:succeeded|failed|verified|refuted) \(", said, re.MULTILINE)) == 4
    assert re.findall(r"^verdict +(\w+)", said, re.MULTILINE) == ["refuted", "verified"]
    assert "max_tool_calls" in said
    (hint,) = [line.split("more lines: ")[1] for line in said.splitlines() if "more lines: " in line]
    return hint


@pytest.mark.costly
@pytest.mark.timeout(240)
@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.parents[1].name)
async def test_it_is_installed_as_documented_and_its_blocks_run_on_every_python(python: Path, tmp_path: Path) -> None:
    fresh, home, project = tmp_path / "fresh", tmp_path / "home", failing(tmp_path / "project")
    site, source = empty_environment(python, fresh), checkout(tmp_path / "checkout")
    if python == PYTHONS[0]:
        await installed_as_it_says(source, fresh, site, tmp_path / "first")
    else:
        pip = [sys.executable, "-m", "pip", "--python", fresh / "bin" / "python", "install", "--quiet"]
        subprocess.run([*pip, source], check=True, env=environment(**OFFLINE))
    assert (site / "deputize" / "py.typed").is_file()
    (tmp_path / "script.json").write_text(json.dumps({"rules": RULES}))
    here: dict[str, Any] = {
        "DEPUTIZE_HOME": str(home),
        "DEPUTIZE_MODEL": f"scripted:{tmp_path / 'script.json'}",
        "PATH": f"{fresh}/bin:/usr/local/bin:/usr/bin:/bin",
        **dict.fromkeys(DESKTOP, ""),  # no browser is opened
    }
    env = environment(**here)
    if python == PYTHONS[0]:
        await started_quickly(tmp_path, env)
    try:
        commands = await executed(COMMANDS.replace("--detach ", "--detach --port 0 ", 1), project, env)
        port = json.loads((home / "stack.json").read_text())["url"].rpartition(":")[2]
        in_python = await executed(PYTHON, project, env, str(fresh / "bin" / "python"), "-c")
        http = await executed(HTTP.replace(f"localhost:{PORT}", f"localhost:{port}"), project, env)
        assert not (home / "stack.json").exists()  # it was stopped
    finally:
        subprocess.run([fresh / "bin" / "deputize", "stop"], check=True, env=env)
    assert "All of it is done." in commands
    assert json.loads((project.parent / "results.jsonl").read_text())["success"] is True
    assert '"terminationReason":"completed"' in http
    assert "event: run_finished" in http
    assert in_python.endswith("-    return False\n+    return True\n\nverified\n")
