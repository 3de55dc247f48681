"""`deputize doctor --workspace DIR`: what an agent will find there, really asked inside the sandbox."""

from __future__ import annotations

import json
import venv
from pathlib import Path
from typing import Any

from deputize.orchestrator.cli.doctor_workspace import chosen_sandbox, project_rows
from deputize.orchestrator.cli.findings import Finding
from deputize.shared.settings import Settings
from deputize.worker.promises.project import find_project
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.canaries import Canaries
from deputize.worker.sandbox.project_tools import tools_for
from deputize.worker.sandbox.setup_command import SetupCache
from tests.orchestrator.command_line import deputize


async def rows(tmp_path: Path, project: Path, **sandbox: Any) -> dict[str, Finding]:
    settings = Settings.load(environ={}, home=tmp_path / "home", sandbox=sandbox)
    assert await Bubblewrap.selftest() is None
    with Canaries(tmp_path) as canaries:
        found = await find_project(settings, project, canaries.workspace("project"))
    return {row.name: row for row in project_rows(settings, project, found)}


async def test_it_says_what_an_agent_will_find_before_money_is_spent(tmp_path: Path) -> None:
    assert await Bubblewrap.selftest() is None
    project = tmp_path / "project"
    venv.create(project / ".venv", symlinks=True)
    (project / "package.json").write_text("{}")
    site = next((project / ".venv/lib").glob("python3*")) / "site-packages"
    (site / "pytest.py").write_text("print('pytest 99')\n")
    done = await deputize("doctor", "--workspace", str(project), "--json", DEPUTIZE_HOME=str(tmp_path / "home"))
    assert done.code == 0
    found = {row["name"]: row for row in map(json.loads, done.out.splitlines())}
    for name in ("sandbox", "secrets", "files", "network", "kernel", "bounds", "limits"):
        assert found[name]["state"] == "ok"
    assert found["sandbox"]["detail"] == "works; no network, and only the workspace can be written"
    assert ("by measuring" in found["bounds"]["detail"]) != ("by a control group" in found["bounds"]["detail"])
    assert found["venv"]["detail"].startswith(f"{project}/.venv")
    assert found["pytest"]["detail"] == "pytest 99"
    assert found["python"]["detail"].startswith("Python 3.")
    assert (found["packages"]["state"], found["packages"]["detail"]) == ("warning", "no node_modules")
    assert sorted(path.name for path in project.iterdir()) == [".venv", "package.json"]


async def test_it_says_what_set_up_would_run_which_hosts_it_reaches_and_the_limits(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    line = "touch /opt/setup/x"
    sandbox = {"setup": line, "setup_hosts": ["example.org", "*.example.com"], "command_seconds": 45}
    found = await rows(tmp_path, project, **sandbox)
    assert found["set-up"].detail == f"{line} (runs before the next run; network: only example.org, *.example.com)"
    assert found["limits"].detail == (
        "a run has 2 GiB of memory, 2 processors and 2 GiB of disk; a command ends after 45 s, and has 256 processes, "
        "files of 1 GiB each, and 256 MiB in /tmp"
    )
    settings = Settings.load(environ={}, home=tmp_path / "home", sandbox=sandbox)
    tools = tools_for(settings, project)
    await SetupCache(settings).add_to(tools, project, project, build=True)
    assert (await rows(tmp_path, project, **sandbox))["set-up"].detail.startswith(f"{line} (done already; ")


async def test_what_is_missing_and_what_stays_hidden_has_a_remedy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".venv/bin").mkdir(parents=True)
    (project / "setup.py").touch()
    (tmp_path / "own/bin").mkdir(parents=True)
    (tmp_path / "own/bin/python3").touch(0o755)
    (tmp_path / "own/lib/python3.11").mkdir(parents=True)
    (tmp_path / "own/lib/python3.11/os.py").touch()
    (project / ".venv/bin/python").symlink_to(tmp_path / "own/bin/python3")
    found = await rows(tmp_path, project)
    assert (found["venv"].state, "python -m venv" in found["venv"].remedy) == ("!", True)
    (project / ".venv/pyvenv.cfg").touch()
    hidden = (await rows(tmp_path, project))["hidden"]
    assert hidden.state == "!"
    assert f"is {tmp_path}/own, " in hidden.detail
    assert "sandbox.show" in hidden.detail


async def test_it_shows_the_sandbox_of_an_agent_or_of_a_profile(tmp_path: Path) -> None:
    profiles = {"online": {"allowed_hosts": ["example.org"], "command_seconds": 7}}
    using = Settings.load(environ={}, sandbox={"profiles": profiles}, agents={"surfer": {"sandbox": "online"}})
    for named, chosen in (
        ({"agent": "surfer"}, "online"),
        ({"profile": "online"}, "online"),
        ({}, "none, as in [sandbox]"),
    ):
        settings, row = chosen_sandbox(using, **named)
        assert row == Finding("✓", "profile", f"{chosen}; there are online")
        assert settings.sandbox.command_seconds == (7 if named else 600)
    given: dict[str, Any] = {"DEPUTIZE_SANDBOX_PROFILES": json.dumps(profiles), "DEPUTIZE_HOME": str(tmp_path)}
    for option, name in (("--agent", "surfr"), ("--profile", "onlin")):
        more: dict[str, Any] = {"DEPUTIZE_AGENTS": '{"surfer": {"sandbox": "online"}}', **given}
        done = await deputize("doctor", "--json", "--workspace", str(tmp_path), option, name, **more)
        (row,) = map(json.loads, done.out.splitlines())
        assert (done.code, row["name"], "did you mean" in row["detail"]) == (3, "profile", True)
    for arguments in (("--agent", "a"), ("--workspace", ".", "--agent", "a", "--profile", "b")):
        assert (await deputize("doctor", *arguments)).code == 2


async def test_a_directory_that_does_not_exist_is_a_mistake_of_usage(tmp_path: Path) -> None:
    done = await deputize("doctor", "--workspace", str(tmp_path / "nowhere"))
    assert done.code == 2
    assert "does not exist" in done.err
