"""What the sandbox shows of the machine so that a server's program can run, and nothing more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.worker.mcp.transport import needed, program_of
from deputize.worker.sandbox import environment


def places(program: str, *asked: Path) -> list[str]:
    found = needed(program, asked)
    assert len({shown.name for shown in found}) == len(found)
    assert all(str(shown.source) == shown.target for shown in found)
    return [shown.target for shown in found]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A directory with a program, and with what nobody else is to see."""
    for folder in ("bin", "lib", "secrets"):
        (tmp_path / "opt" / folder).mkdir(parents=True)
    (tmp_path / "opt/bin/server").touch()
    return tmp_path / "opt"


def test_a_virtual_environment_comes_with_the_interpreter_behind_it(prefix: Path, tmp_path: Path) -> None:
    base = tmp_path / "python"
    for folder in ("bin", "lib/python3.11", "etc"):
        (base / folder).mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"version = 3.11\nhome = {base}/bin\n")
    assert places(f"{prefix}/bin/server") == [str(prefix), f"{base}/bin", f"{base}/lib"]


@pytest.mark.parametrize("library", ["python3.11", "node_modules"])
def test_of_a_prefix_programs_and_libraries_are_shown(prefix: Path, library: str) -> None:
    (prefix / "lib" / library).mkdir()
    assert places(f"{prefix}/bin/server") == [f"{prefix}/bin", f"{prefix}/lib"]


@pytest.mark.parametrize("part", ["bin", "lib"])
@pytest.mark.parametrize("library", ["python3.11", "node_modules"])
def test_a_link_in_the_place_of_a_part_shows_no_other_directory(prefix: Path, part: str, library: str) -> None:
    """As a checkout may have one to a directory of its user's, where a Node is installed beside much else."""
    theirs = prefix.parent / "theirs"
    (prefix / part).rename(theirs)
    (theirs if part == "lib" else prefix / "lib").joinpath(library).mkdir()
    (prefix / part).symlink_to(theirs)
    assert places(f"{prefix}/bin/server") == [f"{prefix}/bin/server"]


def test_an_environment_shows_nothing_of_a_prefix_without_a_python(prefix: Path, tmp_path: Path) -> None:
    for folder in ("theirs/bin", "theirs/lib/node_modules"):
        (tmp_path / folder).mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {tmp_path}/theirs/bin\n")
    assert places(f"{prefix}/bin/server") == [str(prefix)]


def test_of_any_other_directory_only_the_program_is_shown(prefix: Path) -> None:
    assert places(f"{prefix}/bin/server") == [f"{prefix}/bin/server"]


def test_a_link_shows_where_it_leads(prefix: Path, tmp_path: Path) -> None:
    """As tools of uv and pipx lie beside the environment that each has."""
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "home/bin").mkdir(parents=True)
    link = tmp_path / "home/bin/server"
    link.symlink_to("../../opt/bin/server")
    assert places(str(link)) == [str(link), str(prefix)]
    loop = tmp_path / "home/bin/loop"
    loop.symlink_to("loop")
    assert places(str(loop)) == []


@pytest.mark.parametrize("program", ["/usr/bin/env", "/bin/sh", "no-such-program", "/no/such/program", "./here"])
def test_what_is_there_anyway_or_nowhere_needs_nothing(program: str) -> None:
    assert places(program) == []


def test_what_is_asked_for_is_shown_once(prefix: Path) -> None:
    assert places("/bin/sh", prefix, prefix / "secrets", Path("/usr/share")) == [str(prefix)]


@pytest.mark.parametrize("path", ["/proc/self", "/workspace", "/dev", "relative", "/no/such/place"])
def test_what_cannot_be_shown_is_named(path: str) -> None:
    with pytest.raises(Misconfigured, match=f"show names {path}"):
        needed("/bin/sh", [Path(path)])


def test_a_program_is_the_sandboxs_own_where_it_has_one(prefix: Path) -> None:
    assert program_of("/x/y", "") == "/x/y"
    assert program_of("sh", str(prefix / "bin")) == environment.program("sh", ())
    assert program_of("no-such-program", "/nowhere") == "no-such-program"
    (prefix / "bin/server").chmod(0o755)
    assert program_of("server", str(prefix / "bin")) == f"{prefix}/bin/server"


def test_this_very_interpreter_can_be_shown() -> None:
    assert str(Path(sys.prefix)) in places(sys.executable) or sys.prefix == sys.base_prefix
