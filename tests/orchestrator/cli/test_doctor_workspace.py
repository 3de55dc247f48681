"""`deputize doctor --workspace DIR`: what an agent will find there, really asked inside the sandbox."""

from __future__ import annotations

import json
import venv
from pathlib import Path
from typing import Any

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from tests.orchestrator.command_line import deputize


async def rows(
    tmp_path: Path, directory: Path, *, sandbox: str = "true", show: str = ""
) -> tuple[int, dict[str, dict[str, Any]]]:
    done = await deputize(
        *("doctor", "--workspace", str(directory), "--json"),
        DEPUTIZE_HOME=str(tmp_path / "home"),
        DEPUTIZE_SANDBOX=sandbox,
        DEPUTIZE_SANDBOX_SHOW=show,
    )
    return done.code, {row["name"]: row for row in map(json.loads, done.out.splitlines())}


async def test_it_says_what_an_agent_will_find_before_money_is_spent(tmp_path: Path) -> None:
    assert await Bubblewrap.selftest() is None
    project = tmp_path / "project"
    venv.create(project / ".venv", symlinks=True)
    (project / "package.json").write_text("{}")
    site = next((project / ".venv/lib").glob("python3*")) / "site-packages"
    (site / "pytest.py").write_text("print('pytest 99')\n")
    code, found = await rows(tmp_path, project)
    assert code == 0
    assert found["sandbox"]["state"] == "ok"
    assert found["venv"]["said"].startswith(f"{project}/.venv")
    assert found["pytest"]["said"] == "pytest 99"
    assert found["python"]["said"].startswith("Python 3.")
    assert (found["packages"]["state"], found["packages"]["said"]) == ("warning", "no node_modules")
    assert sorted(path.name for path in project.iterdir()) == [".venv", "package.json"]


async def test_what_is_missing_and_what_stays_hidden_has_a_remedy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".venv/bin").mkdir(parents=True)
    (project / "setup.py").touch()
    (tmp_path / "own/bin").mkdir(parents=True)
    (tmp_path / "own/bin/python3").touch(0o755)
    (tmp_path / "own/lib/python3.11").mkdir(parents=True)
    (tmp_path / "own/lib/python3.11/os.py").touch()
    (project / ".venv/bin/python").symlink_to(tmp_path / "own/bin/python3")
    code, found = await rows(tmp_path, project)
    assert (code, found["venv"]["state"]) == (0, "warning")
    assert "python -m venv" in found["venv"]["mend"]
    (project / ".venv/pyvenv.cfg").touch()
    code, found = await rows(tmp_path, project)
    assert (code, found["hidden"]["state"]) == (0, "warning")
    assert f"is {tmp_path}/own, " in found["hidden"]["said"]
    assert "sandbox.show" in found["hidden"]["said"]


async def test_what_keeps_agents_from_running_commands_is_broken(tmp_path: Path) -> None:
    code, found = await rows(tmp_path, tmp_path, sandbox="false")
    assert (code, found["sandbox"]["state"]) == (3, "broken")
    code, found = await rows(tmp_path, tmp_path, show="/")
    assert (code, found["settings"]["state"]) == (3, "broken")
    assert "which is never shown" in found["settings"]["said"]


async def test_a_directory_that_does_not_exist_is_a_mistake_of_usage(tmp_path: Path) -> None:
    done = await deputize("doctor", "--workspace", str(tmp_path / "nowhere"))
    assert done.code == 2
    assert "does not exist" in done.err
