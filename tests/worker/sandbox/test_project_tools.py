"""What commands find of the project they work on: its environment, the interpreter behind it, and shown paths."""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import homes
from deputize.worker.sandbox.project_tools import ProjectTools, check_shown, find_tools, shown_paths, tools_for
from tests.processes.ordinary_user import ORDINARY_UID, home_of_an_ordinary_user, need_ordinary_user
from tests.waiting import until
from tests.worker.forked import in_child
from tests.worker.sandbox.sandboxes import said, sandbox_over

BASE = Path(sys.base_prefix)
NOTHING = dict[str, str]()


def project_of(folder: Path, *, editable: bool = True) -> Path:
    """A project with a virtual environment and an editable installation, as ``pip install -e`` leaves it."""
    (folder / "src/counting").mkdir(parents=True)
    (folder / "src/counting/__init__.py").write_text("ONE = 1\n")
    venv.create(folder / ".venv", symlinks=True)
    script = folder / ".venv/bin/count"
    script.write_text(f"#!{folder}/.venv/bin/python\nimport counting; print(counting.ONE, counting.__file__)\n")
    script.chmod(0o755)
    if editable:
        site = next((folder / ".venv/lib").glob("python3*")) / "site-packages"
        (site / "_counting.pth").write_text(f"{folder}/src\n")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return project_of(tmp_path / "project")


@pytest.fixture
def copy(project: Path, tmp_path: Path) -> Iterator[Bubblewrap]:
    """A sandbox over a copy of the project's files that git knows."""
    tools = find_tools(project, NOTHING, [], [])
    with sandbox_over(tmp_path / "ws", tools=tools) as sandbox:
        (tmp_path / "ws/src/counting").mkdir(parents=True)
        (tmp_path / "ws/src/counting/__init__.py").write_text("ONE = 'of the copy'\n")
        yield sandbox


def python_at(prefix: Path) -> Path:
    """What has the shape of an installation of Python."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/python3").touch(0o755)
    (prefix / "lib/python3.11").mkdir(parents=True)
    (prefix / "lib/python3.11/os.py").touch()
    return prefix


def venv_at(folder: Path, program: str | Path, home: str = "") -> Path:
    """A project with an environment whose link leads to that program."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(program)
    (folder / ".venv/pyvenv.cfg").write_text(home)
    return folder


def targets(tools: ProjectTools) -> list[str]:
    return [mount.target for mount in tools.mounts]


async def test_the_projects_environment_is_active_and_imports_the_copy(copy: Bubblewrap, project: Path) -> None:
    assert await said(copy, "command -v python") == f"{project}/.venv/bin/python"
    assert await said(copy, "python -c 'import counting; print(counting.ONE)'") == "of the copy"
    assert (await said(copy, "count")).startswith("of the copy ")
    assert (await said(copy, ".venv/bin/count")).startswith("of the copy ")
    assert await said(copy, "echo $VIRTUAL_ENV") == f"{project}/.venv"


async def test_what_is_shown_cannot_be_written(copy: Bubblewrap, project: Path) -> None:
    for path in (".venv/new", f"{project}/.venv/new", f"{BASE}/lib/new"):
        assert "Read-only file system" in await said(copy, f"touch {path}")
    assert await said(copy, f"echo 2 >{project}/made; cat /workspace/made") == "2"
    assert not (project / "made").exists()


async def test_a_copy_with_an_environment_of_its_own_keeps_it(project: Path, tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", tools=find_tools(project, NOTHING, [], [])) as sandbox:
        (tmp_path / "ws/.venv").mkdir()
        (tmp_path / "ws/.venv/own").touch()
        assert await said(sandbox, f"ls .venv {project}/.venv") == f".venv:\nown\n\n{project}/.venv:\nown"


async def test_an_environment_with_a_copied_interpreter_works(tmp_path: Path) -> None:
    venv.create(tmp_path / "project/venv", symlinks=False)
    with sandbox_over(tmp_path / "ws", tools=find_tools(tmp_path / "project", NOTHING, [], [])) as sandbox:
        assert await said(sandbox, "python -c 'import sys; print(sys.prefix)'") == f"{tmp_path}/project/venv"


async def test_packages_of_node_are_shown(tmp_path: Path) -> None:
    (tmp_path / "project/node_modules/left").mkdir(parents=True)
    tools = find_tools(tmp_path / "project", NOTHING, [], [])
    with sandbox_over(tmp_path / "ws", tools=tools) as sandbox:
        assert await said(sandbox, "ls node_modules; touch node_modules/x") != "left"
        assert (await said(sandbox, "ls node_modules")) == "left"


async def test_a_read_only_run_stays_read_only(project: Path, tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", tools=find_tools(project, NOTHING, [], []), read_only=True) as sandbox:
        for path in ("/workspace/x", f"{project}/x", f"{project}/.venv/x"):
            assert "Read-only file system" in await said(sandbox, f"touch {path}")


def test_of_the_settings_of_an_environment_only_the_beginning_is_read(tmp_path: Path) -> None:
    """A folder of another author may have a file there that takes no room on the disk, but all memory."""
    folder = venv_at(tmp_path / "project", "/usr/bin/python3")
    with (folder / ".venv/pyvenv.cfg").open("a") as file:
        file.truncate(1 << 40)
    assert [*find_tools(folder, NOTHING, [], []).dependencies] == [".venv"]


def test_a_link_for_an_environment_is_not_followed(project: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in (".venv", "node_modules"):
        (hostile / name).symlink_to(project / ".venv")
    assert find_tools(hostile, NOTHING, [], []) == ProjectTools()


@pytest.mark.parametrize("way", ["link", "home"])
def test_an_environment_shows_no_folder_that_is_not_an_interpreters(way: str, tmp_path: Path) -> None:
    """Neither by its link nor by the content of its file, and not even if the folder looks like an installation."""
    private = python_at(tmp_path / "private")
    program = private / "bin/python3" if way == "link" else "python3"
    hostile = venv_at(tmp_path / "hostile", program, f"home = {private}/bin\n")
    (hostile / ".venv/bin/python3").touch(0o755)
    (private / "lib").rename(private / "other")
    assert targets(find_tools(hostile, NOTHING, [], [])) == []
    (private / "other").rename(private / "lib")
    found = find_tools(hostile, NOTHING, [], [])
    assert targets(found) == []
    assert "name it in sandbox.show" in found.notes[0]


def test_an_installation_shows_no_part_that_is_a_link(tmp_path: Path) -> None:
    root = tmp_path / "uv"
    python_at(root / "cpython")
    (root / "cpython/lib").rename(root / "real")
    (root / "cpython/lib").symlink_to(root / "real")
    project = venv_at(tmp_path / "project", root / "cpython/bin/python3")
    found = find_tools(project, {"UV_PYTHON_INSTALL_DIR": str(root)}, [], [])
    assert targets(found) == [f"{root}/cpython/bin"]


def test_each_name_of_an_installation_leads_to_it(tmp_path: Path) -> None:
    """As uv makes them: the environment's link names a folder that is a link to the exact version."""
    root = tmp_path / "uv"
    python_at(root / "cpython-3.11.9")
    (root / "cpython-3.11").symlink_to("cpython-3.11.9")
    program = root / "cpython-3.11/bin/python3"
    project = venv_at(tmp_path / "project", program, f"home = {root}/cpython-3.11/bin\n")
    found = find_tools(project, {"UV_PYTHON_INSTALL_DIR": str(root)}, [], [])
    assert {f"{root}/cpython-3.11/lib", f"{root}/cpython-3.11.9/lib"} <= set(targets(found))


def rust_at(rust: Path) -> Path:
    (rust / "lib/rustlib").mkdir(parents=True)
    (rust / "bin").mkdir()
    for name in ("rustc", "cargo"):
        (rust / "bin" / name).write_text("#!/bin/sh\necho of stable\n")
        (rust / "bin" / name).chmod(0o755)
    return rust


async def test_toolchains_of_the_path_are_found_behind_their_stand_ins(tmp_path: Path) -> None:
    rust_at(tmp_path / "rustup/toolchains/stable-x")
    (tmp_path / "rustup/settings.toml").write_text('default_toolchain = "stable-x"\n')
    (tmp_path / "cargo").mkdir()
    (tmp_path / "cargo/rustup").touch(0o755)
    (tmp_path / "cargo/cargo").symlink_to("rustup")
    environ = {"PATH": f"relative:{tmp_path}/cargo:/usr/bin", "RUSTUP_HOME": str(tmp_path / "rustup")}
    tools = find_tools(None, environ, [], [])
    with sandbox_over(tmp_path / "ws", tools=tools) as sandbox:
        assert await said(sandbox, "cargo") == "of stable"
        assert await said(sandbox, f"ls {tmp_path}/cargo 2>&1 | grep -c 'No such'") == "1"


def test_what_cannot_be_looked_at_does_not_hide_the_rest(tmp_path: Path) -> None:
    """Such as another user's directory on PATH. Root may look there; a name that is too long is refused to all."""
    project = venv_at(tmp_path / "project", f"/{'x' * 300}/bin/python3")
    rust = rust_at(tmp_path / "rust")
    found = find_tools(project, {"PATH": f"/{'x' * 300}:{rust}/bin"}, [], [])
    assert str(rust / "bin") in found.path


async def test_path_is_looked_through_for_many_runs_at_once_and_then_again(tmp_path: Path) -> None:
    """It takes milliseconds, and hundreds of runs may start in the same second, each with files of its own."""

    def found_after_it_is_gone(number: int) -> bool:
        rust = rust_at(tmp_path / f"{number}/rust")
        environ = {"PATH": f"{rust}/bin"}
        before = find_tools(tmp_path, environ, [], [])
        shutil.rmtree(rust)
        assert targets(before)
        return find_tools(tmp_path / str(number), environ, [], []) == before

    assert any(found_after_it_is_gone(number) for number in range(3))  # one may lie between two periods
    await until(lambda: not targets(find_tools(tmp_path, {"PATH": f"{tmp_path}/0/rust/bin"}, [], [])))


@pytest.mark.requirement("S002-080")
async def test_the_operator_may_show_more(tmp_path: Path) -> None:
    (tmp_path / "kit/bin").mkdir(parents=True)
    (tmp_path / "kit/bin/hello").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "kit/bin/hello").chmod(0o755)
    settings = Settings.load(environ={"DEPUTIZE_SANDBOX_SHOW": str(tmp_path / "kit")}, home=tmp_path / "home")
    with sandbox_over(tmp_path / "ws", tools=tools_for(settings, None)) as sandbox:
        assert await said(sandbox, "hello") == "hello"
        assert "Read-only" in await said(sandbox, f"touch {tmp_path}/kit/x")


@pytest.mark.parametrize("path", ["/", "/home", "~", "~/.ssh", "~/.config/deputize", "/proc/1", "/etc/ssl"])
def test_what_holds_secrets_is_not_shown_even_if_it_is_named(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_homes: None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (".ssh", ".config/deputize"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(Misconfigured, match="which is never shown"):
        shown_paths([Path(path).expanduser()], [])


@pytest.fixture
def own_homes() -> Iterator[None]:
    """Looks for homes anew in this test, and after it."""
    homes.cache_clear()
    yield
    homes.cache_clear()


@pytest.mark.parametrize("setting", ["git_credentials_file", "git_signing_key_file"])
def test_what_proves_the_service_to_git_hosts_is_not_shown(setting: str, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit/credentials").write_text("")
    shown: dict[str, Any] = {"environ": {"DEPUTIZE_SANDBOX_SHOW": str(tmp_path / "kit")}, "home": tmp_path / "home"}
    check_shown(Settings.load(**shown))
    for use in (check_shown, partial(tools_for, source=None)):
        with pytest.raises(Misconfigured, match="which is never shown"):
            use(Settings.load(**{**shown, setting: tmp_path / "kit/credentials"}))


def test_the_state_of_the_service_is_not_shown_and_a_missing_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "home/workspaces").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for path in (tmp_path, tmp_path / "home", tmp_path / "home/workspaces", tmp_path / "link"):
        with pytest.raises(Misconfigured, match="may hold secrets"):
            shown_paths([path], [tmp_path / "home"])
    with pytest.raises(Misconfigured, match="which does not exist"):
        shown_paths([tmp_path / "nothing"], [])


def test_nothing_is_looked_for_if_the_operator_forbids_it(project: Path, tmp_path: Path) -> None:
    settings = Settings.load(environ={"DEPUTIZE_SANDBOX_FIND_TOOLS": "false"}, home=tmp_path / "home")
    assert tools_for(settings, project) == ProjectTools()
    looking = Settings.load(environ={}, home=tmp_path / "home")
    assert tools_for(looking, project).variables["VIRTUAL_ENV"] == f"{project}/.venv"


@pytest.mark.parametrize(
    ("name", "is_environment", "is_found"),
    [("venv", True, True), ("env", True, True), ("env", False, False), ("other", True, False)],
)
def test_an_environment_is_found_where_projects_keep_it(
    tmp_path: Path, name: str, is_environment: bool, is_found: bool
) -> None:
    folder = tmp_path / "project" / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to("/usr/bin/python3")
    if is_environment:
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    tools = tools_for(Settings.load(environ={}, home=tmp_path / "home"), folder.parent)
    assert tools.variables.get("VIRTUAL_ENV") == (str(folder) if is_found else None)
    assert ([*tools.path][:1] == [f"{folder}/bin"]) is is_found


def test_a_path_that_may_not_be_read_is_named_and_no_traceback() -> None:
    need_ordinary_user()
    with home_of_an_ordinary_user() as home:
        closed, file = home / "closed", home / "closed.txt"
        (closed / "below").mkdir(parents=True)
        file.touch()
        for path in (closed, file):
            path.chmod(0o600)

        def refusals() -> list[str]:
            found: list[str] = []
            for path in (closed, closed / "below", file, file / "below"):
                try:
                    shown_paths([path], ())
                except Misconfigured as error:
                    found.append(str(error))
            return found

        said = in_child(refusals, ordinary=True)
        assert said == [
            f"sandbox.show names {closed}, which user {ORDINARY_UID} may not read; correct or remove it",
            f"sandbox.show names {closed}/below, which cannot be read here (Permission denied); correct or remove it",
            f"sandbox.show names {file}, which user {ORDINARY_UID} may not read; correct or remove it",
            f"sandbox.show names {file}/below, which does not exist; correct or remove it",
        ]


async def test_an_interpreter_can_be_shown_where_the_system_has_none(tmp_path: Path) -> None:
    """Also when it lies where the sandbox's user could not go: as root, below a home directory."""
    mounts = environment.interpreter_mounts(Path(sys.base_prefix))
    if not mounts:
        pytest.skip(f"SKIPPED: {sys.base_prefix} is no whole installation")
    with sandbox_over(tmp_path / "ws", mounts=mounts) as sandbox:
        assert await said(sandbox, "/opt/python/bin/python3 -c 'import json, sys; print(sys.prefix)'") == "/opt/python"
        assert (await said(sandbox, "ls /opt/python; touch /opt/python/bin/x")).startswith("bin\nlib\ntouch: cannot")
        assert "/opt/python/bin" in await said(sandbox, "echo $PATH")


def test_a_virtual_environment_is_not_taken_for_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    assert [each.target for each in environment.interpreter_mounts(tmp_path)] == ["/opt/python/bin", "/opt/python/lib"]
    (tmp_path / "pyvenv.cfg").touch()
    assert environment.interpreter_mounts(tmp_path) == ()
    assert environment.interpreter_mounts(Path("/nowhere")) == ()
