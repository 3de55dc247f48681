"""The first block of each page that shows commands is executed as it stands, on one stack, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.operate import DESKTOP
from tests.architecture.sources import ROOT
from tests.orchestrator.command_line import environment, started
from tests.orchestrator.doc_pages import OTHERS, PAGES, blocks
from tests.orchestrator.front_page import PORT, executed
from tests.processes.forked_commands import forked_commands
from tests.runs.bench import call, say
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]

SHOWN = [*PAGES, *(page for page in OTHERS if page == "other-styles" or blocks(page)[0][0] == "sh"), "redis-keys"]
"""The other pages begin with a file, which `tests/worker/test_readme.py` has read."""
ALONE = ("workspaces-and-git", "many-machines")
"""Run after the others: the first is about the newest delegation, the second drains the only worker."""
SECRET = "whsec_" + "c2VjcmV0" * 4
FILES = {
    "README.md": "A project.\n",
    **{f"{name}.py": "def right():\n    return False\n" for name in ("shop", "tax", "discount")},
    **{
        f"test_{name}.py": f"import unittest, {name}\nclass T(unittest.TestCase):\n    def test_{name}(self):\n"
        f"        self.assertTrue({name}.right())\n"
        for name in ("shop", "tax", "discount")
    },
}


def repair(name: str) -> Any:
    return call("write_file", path=f"{name}.py", content="def right():\n    return True\n")


RULES: list[dict[str, Any]] = [
    {
        "match": {"contains": "Review the work of another agent"},
        "turns": [[call("submit_result", gaming=False, findings=[])], [say("Done.")]],
    },
    {"match": {"contains": "Repair the code"}, "turns": [[*map(repair, ("shop", "tax", "discount"))], [say("Done.")]]},
    *(
        {"match": {"contains": f"Repair {name}.py"}, "turns": [[repair(name)], [say("Done.")]]}
        for name in ("tax", "discount")
    ),
    {
        "match": {"contains": "Fix the typo"},
        "turns": [[call("write_file", path="README.md", content="The project.\n")], [say("Done.")]],
    },
    {
        "match": {"contains": "Publish the notes"},
        "turns": [[call("write_file", path="notes.md", content="1\n")], [say("Published.")]],
    },
    {"match": {"contains": "Count the tests"}, "turns": [[call("submit_result", tests=3)], [say("Done.")]]},
    {
        "match": {"contains": "Review the code"},
        "turns": [{"blocks": [say("Read.")], "delay": 60}],
        "summary": "A report.",
    },
    {"turns": [[say("Nothing stands out.")]]},
]


def project(folder: Path) -> Path:
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    who = ["-c", "user.name=Dev", "-c", "user.email=dev@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.mark.costly
async def test_the_first_example_of_each_page_runs(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"rules": RULES}))
    here: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "home"),
        "DEPUTIZE_MODEL": f"scripted:{tmp_path / 'script.json'}",
        "DEPUTIZE_WEBHOOK_SECRETS": SECRET,
        "PATH": f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        **dict.fromkeys(DESKTOP, ""),  # no browser is opened
    }
    env = environment(**here)
    folders = {page: project(tmp_path / page) for page in SHOWN}
    (folders["redis"] / "shared").symlink_to(ROOT / "shared")

    async def run(page: str) -> str:
        language, block = blocks(page)[0]
        program = (sys.executable, "-c") if language == "python" else ()
        port = json.loads((tmp_path / "home" / "stack.json").read_text())["url"].rpartition(":")[2]
        return await executed(block.replace(f"localhost:{PORT}", f"localhost:{port}"), folders[page], env, *program)

    async with forked_commands(tmp_path / "bin"), started("up", "--port", "0", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        pages = [page for page in SHOWN if page not in ALONE]
        found = dict(zip(pages, await asyncio.gather(*map(run, pages), return_exceptions=True), strict=True))
        assert {page: str(each) for page, each in found.items() if isinstance(each, BaseException)} == {}
        _, machines = [await run(page) for page in ALONE]
        assert "worker-1" in machines
        stack.interrupt()
        await stack.done()

    def files(page: str) -> list[str]:
        return [name for name, text in FILES.items() if (folders[page] / name).read_text() != text]

    assert files("workspaces-and-git") == ["README.md"]
    assert "README.md | 2 +-" in str(found["delivering"])
    assert files("checks-and-verdicts") == ["shop.py", "tax.py", "discount.py"]
    assert files("merging") == ["tax.py", "discount.py"]
    assert files("attempts") == ["tax.py"]
    assert "too few for a conclusion" in str(found["evaluations"])
    assert json.loads((folders["structured-output"] / "result.json").read_text())["output"] == {"tests": 3}
    assert "A report." in str(found["limits-and-messages"])
    assert "Published." in str(found["permissions"])
    assert "user deputize on >" in (folders["redis"] / "users.acl").read_text()
    assert str(found["redis-keys"]) == "deputize:run:{dlg_01k00000000000000000000000}\n"
