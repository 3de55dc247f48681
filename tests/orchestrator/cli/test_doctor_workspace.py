"""`deputize doctor --workspace DIR`: what an agent will find there, really asked inside the sandbox."""

from __future__ import annotations

import json
import venv
from pathlib import Path
from typing import Any

from deputize.shared.settings import Settings
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.project_tools import tools_for
from deputize.worker.sandbox.setup_command import SetupCache
from tests.orchestrator.command_line import deputize


async def rows(
    tmp_path: Path,
    directory: Path,
    *options: str,
    sandbox: str = "true",
    show: str = "",
    more: dict[str, Any] | None = None,
) -> tuple[int, dict[str, dict[str, Any]]]:
    done = await deputize(
        *("doctor", "--workspace", str(directory), "--json", *options),
        DEPUTIZE_HOME=str(tmp_path / "home"),
        DEPUTIZE_SANDBOX=sandbox,
        DEPUTIZE_SANDBOX_SHOW=show,
        **(more or {}),
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
    for protection in ("isolated", "seccomp", "egress", "memory", "disk"):
        assert found[protection]["state"] == "ok"
    assert ("by measuring" in found["memory"]["detail"]) != ("by a control group" in found["memory"]["detail"])
    assert found["venv"]["detail"].startswith(f"{project}/.venv")
    assert found["pytest"]["detail"] == "pytest 99"
    assert found["python"]["detail"].startswith("Python 3.")
    assert (found["packages"]["state"], found["packages"]["detail"]) == ("warning", "no node_modules")
    assert sorted(path.name for path in project.iterdir()) == [".venv", "package.json"]


async def test_it_says_what_set_up_would_run_which_hosts_it_reaches_and_the_limits(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    line, hosts = "touch /opt/setup/x", "example.org,*.example.com"
    more: dict[str, Any] = {
        "DEPUTIZE_SANDBOX_SETUP": line,
        "DEPUTIZE_SANDBOX_SETUP_HOSTS": hosts,
        "DEPUTIZE_SANDBOX_COMMAND_SECONDS": "45",
    }
    code, found = await rows(tmp_path, project, more=more)
    assert code == 0
    assert found["sandbox"]["detail"] == "works; no network, and only the workspace can be written"
    assert found["set-up"]["detail"] == f"{line} (runs before the next run; network: only example.org, *.example.com)"
    assert found["limits"]["detail"] == (
        "a run has 2 GiB of memory, 2 processors and 2 GiB of disk; a command ends after 45 s, and has 256 processes, "
        "files of 1 GiB each, and 256 MiB in /tmp"
    )
    sandbox = {"setup": line, "setup_hosts": hosts}
    settings = Settings.load(environ={}, home=tmp_path / "home", sandbox=sandbox)
    tools = tools_for(settings, project)
    await SetupCache(settings).add_to(tools, project, project, build=True)
    _, found = await rows(tmp_path, project, more=more)
    assert found["set-up"]["detail"].startswith(f"{line} (done already; ")


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
    assert "python -m venv" in found["venv"]["remedy"]
    (project / ".venv/pyvenv.cfg").touch()
    code, found = await rows(tmp_path, project)
    assert (code, found["hidden"]["state"]) == (0, "warning")
    assert f"is {tmp_path}/own, " in found["hidden"]["detail"]
    assert "sandbox.show" in found["hidden"]["detail"]


async def test_what_keeps_agents_from_running_commands_is_broken(tmp_path: Path) -> None:
    code, found = await rows(tmp_path, tmp_path, sandbox="false")
    assert (code, found["sandbox"]["state"]) == (3, "broken")
    code, found = await rows(tmp_path, tmp_path, show="/")
    assert (code, found["settings"]["state"]) == (3, "broken")
    assert "which is never shown" in found["settings"]["detail"]
    profiles = {"DEPUTIZE_SANDBOX_PROFILES": '{"tools": {"show": ["/root"]}}'}
    code, found = await rows(tmp_path, tmp_path, more=profiles)
    assert "sandbox.profiles.tools.show names /root" in found["settings"]["detail"]


async def test_it_shows_the_sandbox_of_an_agent_or_of_a_profile(tmp_path: Path) -> None:
    more = {
        "DEPUTIZE_SANDBOX_PROFILES": '{"online": {"allowed_hosts": ["example.org"], "command_seconds": 7}}',
        "DEPUTIZE_AGENTS": '{"surfer": {"sandbox": "online"}}',
    }
    code, found = await rows(tmp_path, tmp_path, "--agent", "surfer", more=more)
    assert (code, found["profile"]["detail"]) == (0, "online; there are online")
    assert "network: only example.org" in found["sandbox"]["detail"]
    assert "a command ends after 7 s" in found["limits"]["detail"]
    for options, detail in ((("--profile", "online"), "online; "), ((), "none, as in [sandbox]; ")):
        _, found = await rows(tmp_path, tmp_path, *options, sandbox="false", more=more)
        assert found["profile"]["detail"].startswith(detail)
    for option, name in (("--agent", "surfr"), ("--profile", "onlin")):
        code, found = await rows(tmp_path, tmp_path, option, name, more=more)
        assert (code, *found) == (3, "profile")
        assert "did you mean" in found["profile"]["detail"]
    for arguments in (("--agent", "a"), ("--workspace", ".", "--agent", "a", "--profile", "b")):
        assert (await deputize("doctor", *arguments)).code == 2


async def test_a_directory_that_does_not_exist_is_a_mistake_of_usage(tmp_path: Path) -> None:
    done = await deputize("doctor", "--workspace", str(tmp_path / "nowhere"))
    assert done.code == 2
    assert "does not exist" in done.err
