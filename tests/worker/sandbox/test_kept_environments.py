"""Environments that tools keep outside of a project's folder, and JDKs that a variable names."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from deputize.worker.sandbox.kept_environments import inside, outside
from deputize.worker.sandbox.project_tools import find_tools
from tests.worker.sandbox.sandboxes import said, sandbox_over


def environment_at(path: Path, made: float = 0.0) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin/python").symlink_to("/usr/bin/python3")
    (path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    os.utime(path / "pyvenv.cfg", (made, made))
    return path


def digest(project: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(str(project).encode()).digest()).decode()[:8]


@pytest.mark.parametrize(
    ("place", "variables"),
    [
        ("cache/pypoetry/virtualenvs/price-DIGEST-py3.11", {"XDG_CACHE_HOME": "cache"}),
        ("kept/virtualenvs/price-DIGEST-py3.12", {"POETRY_CACHE_DIR": "kept"}),
        ("kept/price-DIGEST-py3.11", {"POETRY_VIRTUALENVS_PATH": "kept"}),
        ("data/hatch/env/virtual/price/DIGEST/price", {"XDG_DATA_HOME": "data"}),
        ("kept/env/virtual/price/DIGEST/price", {"HATCH_DATA_DIR": "kept"}),
        ("data/virtualenvs/price-x1y2", {"XDG_DATA_HOME": "data"}),
        ("kept/anything", {"WORKON_HOME": "kept"}),
    ],
)
def test_the_environment_that_a_tool_keeps_for_this_project_is_found(
    tmp_path: Path, place: str, variables: dict[str, str]
) -> None:
    project, other = tmp_path / "price", tmp_path / "other"
    environ = {name: str(tmp_path / value) for name, value in variables.items()}
    for of in (other, project):
        made = environment_at(tmp_path / place.replace("DIGEST", digest(of)).replace("anything", of.name), 5)
        (made / ".project").write_text(f"{of}\n" if "DIGEST" not in place else "")
        assert outside(project, environ) == (made if of == project else None)
        if of == other and "DIGEST" not in place:
            made.rename(made.with_name("moved"))
    (made / "pyvenv.cfg").unlink()
    assert outside(project, environ) is None


def test_of_several_environments_the_newest_counts_and_no_link(tmp_path: Path) -> None:
    project = tmp_path / "price"
    for name, made in (("py3.10", 1.0), ("py3.11", 3.0), ("py3.12", 2.0)):
        environment_at(tmp_path / f"kept/price-{digest(project)}-{name}", made)
    (tmp_path / f"kept/price-{digest(project)}-py3.13").symlink_to(environment_at(tmp_path / "elsewhere", 9))
    found = outside(project, {"POETRY_VIRTUALENVS_PATH": str(tmp_path / "kept")})
    assert found == tmp_path / f"kept/price-{digest(project)}-py3.11"


def test_environments_of_tox_and_nox_are_found_and_one_for_tests_comes_first(tmp_path: Path) -> None:
    assert inside(tmp_path) is None
    environment_at(tmp_path / ".tox/lint", 9)
    assert inside(tmp_path) == ".tox/lint"
    environment_at(tmp_path / ".tox/py311", 1)
    environment_at(tmp_path / ".nox/tests-3-11", 2)
    (tmp_path / ".tox/py312").symlink_to(tmp_path / ".tox/py311")
    assert inside(tmp_path) == ".nox/tests-3-11"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.tox").symlink_to(tmp_path / ".tox")
    assert inside(tmp_path / "other") is None


async def test_commands_find_a_kept_environment_and_import_the_copy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    kept = environment_at(tmp_path / f"kept/price-{digest(project)}-py3.11")
    (kept / "bin/count").write_text(f"#!/bin/sh\ncat {project}/src/a\n")
    (kept / "bin/count").chmod(0o755)
    tools = find_tools(project, {"POETRY_VIRTUALENVS_PATH": str(tmp_path / "kept")}, [], [])
    assert tools.variables == {"VIRTUAL_ENV": str(kept)}
    with sandbox_over(tmp_path / "ws", tools=tools) as sandbox:
        (tmp_path / "ws/src").mkdir()
        (tmp_path / "ws/src/a").write_text("of the copy\n")
        assert await said(sandbox, "command -v python; count") == f"{kept}/bin/python\nof the copy"
        assert "Read-only file system" in await said(sandbox, f"touch {kept}/new")


async def test_commands_find_the_environment_of_tox(tmp_path: Path) -> None:
    made = environment_at(tmp_path / "project/.tox/py311")
    tools = find_tools(tmp_path / "project", {"HOME": str(tmp_path)}, [], [])
    with sandbox_over(tmp_path / "ws", tools=tools) as sandbox:
        assert await said(sandbox, "command -v python; ls .tox") == f"{made}/bin/python\npy311"


async def test_a_link_in_the_place_of_a_folder_of_environments_stops_no_command(tmp_path: Path) -> None:
    environment_at(tmp_path / "project/.tox/py311")
    tools = find_tools(tmp_path / "project", {"HOME": str(tmp_path)}, [], [])
    with sandbox_over(tmp_path / "ws", tools=tools) as sandbox:
        (tmp_path / "ws/.tox").symlink_to("/usr/local")
        assert await said(sandbox, "echo on") == "on"


def test_an_environment_in_the_project_comes_first_and_secrets_stay_hidden(tmp_path: Path) -> None:
    kept = environment_at(tmp_path / f"kept/price-{digest(tmp_path / 'project')}-py3.11")
    environ = {"POETRY_VIRTUALENVS_PATH": str(tmp_path / "kept")}
    assert find_tools(tmp_path / "project", environ, [], [tmp_path / "kept"]).variables == {}
    environment_at(tmp_path / "project/.tox/py311")
    own = environment_at(tmp_path / "project/.venv")
    tools = find_tools(tmp_path / "project", environ, [], [])
    assert tools.variables == {"VIRTUAL_ENV": str(own)}
    assert [*tools.dependencies] == [".venv"]
    assert str(kept) not in [mount.target for mount in tools.mounts]


def test_a_jdk_that_a_variable_names_is_shown_and_named(tmp_path: Path) -> None:
    for path in ("bin/java", "lib/modules", "release"):
        (tmp_path / "jdk" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "jdk" / path).touch(0o755)
    tools = find_tools(None, {"PATH": "/usr/bin", "JAVA_HOME": f"{tmp_path}/jdk"}, [], [])
    assert tools.variables == {"JAVA_HOME": f"{tmp_path}/jdk"}
    assert f"{tmp_path}/jdk/lib" in [mount.target for mount in tools.mounts]
    for elsewhere in (f"{tmp_path}/none", "/usr/lib/jvm/none", ""):
        assert find_tools(None, {"PATH": "/usr/bin", "JAVA_HOME": elsewhere}, [], []).variables == {}
