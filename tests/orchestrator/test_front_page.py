"""What README.md at the top shows is true: its blocks run as they stand, what it says is refused is refused."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.cli.demo import parts
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from tests.architecture.sources import PACKAGES, ROOT
from tests.orchestrator.command_line import PROGRAM, environment, started
from tests.picture import drawn, shown
from tests.running import say, script
from tests.waiting import until

TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
INSTALLING, UP, COMMANDS, HTTP = (text for language, text in BLOCKS if language == "sh")
(PYTHON,) = (text for language, text in BLOCKS if language == "python")
PORT = "8642"
"""The service's own port, for which a test takes a free one."""


async def executed(block: str, cwd: Path, env: dict[str, str], *program: str) -> str:
    """What the block printed, run by one program that stops at the first mistake."""
    process = await asyncio.create_subprocess_exec(
        *program or ("bash", "-euo", "pipefail", "-c"),
        block,
        cwd=cwd,
        env=env,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
    )
    try:
        async with asyncio.timeout(120):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.system
@pytest.mark.timeout(240)
async def test_the_doors_it_shows_open_as_they_stand(tmp_path: Path) -> None:
    model = script(tmp_path, [say("All of it is done.")])
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_MODEL": model}
    project = tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text("A project.\n")
    env = environment(**here, PATH=f"{Path(PROGRAM).parent}:/usr/local/bin:/usr/bin:/bin")
    program, *arguments = UP.split()
    assert program == "deputize"
    async with started(*arguments, "--port", "0", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        port = json.loads((tmp_path / "home" / "stack.json").read_text())["url"].rpartition(":")[2]
        said = await asyncio.gather(
            executed(COMMANDS, project, env),
            executed(HTTP.replace(f"localhost:{PORT}", f"localhost:{port}"), project, env),
            executed(PYTHON, project, env, sys.executable, "-c"),
            return_exceptions=True,
        )
        stack.interrupt()
        await stack.done()
    assert [str(each) for each in said if isinstance(each, BaseException)] == []
    commands, http, python = map(str, said)
    assert "All of it is done." in commands
    assert json.loads((project / "results.jsonl").read_text())["success"] is True
    assert '"terminationReason":"completed"' in http
    assert "event: run_finished" in http
    assert "All of it is done. []" in python
    assert python.splitlines()[-1].endswith(" run_finished")


@pytest.mark.timeout(240)
async def test_the_wheel_is_made_and_installed_as_it_says(tmp_path: Path) -> None:
    """From a copy, so that nothing is made in this one; what the wheel needs is there already."""
    project, fresh = tmp_path / "project", tmp_path / "fresh"
    for package in (*PACKAGES, ".package"):
        shutil.copytree(ROOT / package, project / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, project)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    (site,) = fresh.glob("lib/python3*/site-packages")
    (installed,) = {Path(path) for path in sys.path if path.endswith("site-packages")}
    (site / "installed.pth").write_text(f"{installed}\n")
    (fresh / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (fresh / "bin" / "pip").chmod(0o755)
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1", "PIP_IGNORE_INSTALLED": "1"}
    env = environment(
        **offline, DEPUTIZE_HOME=str(tmp_path / "home"), DEPUTIZE_MODEL="scripted", PATH=f"{fresh}/bin:/usr/bin:/bin"
    )
    said = await executed(INSTALLING, project, env)
    assert "Successfully installed deputize-" in said
    assert (site / "deputize" / "py.typed").is_file()
    assert not {path.name for path in site.iterdir()} & {*PACKAGES}
    (metadata,) = site.glob("deputize-*.dist-info/METADATA")
    assert "\n# deputize\n" in metadata.read_text()


def test_the_two_commands_are_targets_that_do_what_it_says() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo", "test"], cwd=ROOT, capture_output=True, text=True
    )
    assert "Two commands\n" in TEXT
    assert "deputize demo\n" in done.stdout
    assert "-m pytest -n" in done.stdout


async def test_what_it_says_is_refused_is_refused(real: httpx2.AsyncClient) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith('| `"') and "refused with 422" in line]
    assert len(rows) == 5
    for field in (field for row in rows for field in re.findall(r"`([^`]+)`", row.split(" | ")[0])):
        answer = await real.post("/v1/delegations", json={"task": "x", **json.loads("{" + field + "}")})
        assert answer.status_code == 422, field
        assert answer.json()["errors"][0]["pointer"].split("/")[1] == field.split('"')[1]


async def test_what_it_says_is_accepted_is_accepted(real: httpx2.AsyncClient) -> None:
    (mode,) = re.findall(r'^\| `("approvalMode": "ask")` \| accepted', TEXT, re.MULTILINE)
    assert (await real.post("/v1/delegations", json={"task": "x", **json.loads("{" + mode + "}")})).is_success


def test_a_policy_file_keeps_a_process_from_starting() -> None:
    assert re.search(r"^\| `DEPUTIZE_POLICY` .*does not start", TEXT, re.MULTILINE)
    with pytest.raises(Misconfigured, match="policy files are not supported"):
        Settings.load(environ={"DEPUTIZE_POLICY": "rules.toml"})


def test_the_result_it_shows_has_the_fields_of_a_result() -> None:
    (sample,) = (json.loads(text) for language, text in BLOCKS if language == "json")
    assert sample.keys() - {*ToolAgentResult.model_validate({**sample, "delegationId": "x"}).to_dict()} == set()


def test_it_is_short_and_every_block_is_executed_here() -> None:
    assert len(TEXT.splitlines()) <= 200
    assert sorted(language for language, _ in BLOCKS) == ["", "", "json", "python", "sh", "sh", "sh", "sh"]


def test_its_picture_shows_the_demo_as_it_is() -> None:
    (path,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    picture = ElementTree.parse(ROOT / path)
    lines = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert f"✓ {parts({'kind': 'empty'}, {'kind': 'empty'}, None)[1].truth}" in lines
    assert drawn(lines) == (ROOT / path).read_text("utf-8")


def test_a_picture_shows_how_all_ended_and_one_of_them_whole() -> None:
    history = [
        "note",
        "✓ a",
        "",
        "━━ A",
        "text",
        "",
        "━━ Find and fix the bug.  dlg_1",
        "+ x",
        "✓ it completed",
        "",
        "━━ C",
    ]
    assert shown(history) == [
        "$ make demo", "note", "✓ a", "", "━━ Find and fix the bug.  dlg_1", "+ x", "✓ it completed",
    ]  # fmt: skip
