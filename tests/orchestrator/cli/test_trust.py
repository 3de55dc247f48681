"""`deputize trust`: what is shown, who is asked, and what counts afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import pty
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.errors import Exit
from tests.orchestrator.command_line import PROGRAM, environment

URL = 'url = "http://stranger.example"\n'


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "deputize.toml").write_text(f'{URL}model = "\x9d52;c;"\n')
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "tools/x"}}}))
    (folder / "tools").mkdir()
    (folder / "tools/x").write_bytes(b"\x7fELF\0")
    return folder


def trust(repo: Path, *options: str) -> Result:
    variables = {"XDG_CONFIG_HOME": str(repo.parent / "config"), "HOME": str(repo.parent)}
    return CliRunner().invoke(cli, ["trust", *options], env=variables, prog_name="deputize")


def test_what_is_trusted_is_shown_and_later_its_differences(repo: Path) -> None:
    first = trust(repo, str(repo), "--yes")
    assert first.exit_code == 0
    assert first.stdout == f"{repo} is trusted: 3 files\n"
    assert f"{repo}/deputize.toml is new\n" in first.stderr
    assert '+url = "http://stranger.example"\n+model = "\\x9d52;c;"\n' in first.stderr
    assert f"{repo}/tools/x is new\n  5 bytes that cannot be shown here" in first.stderr
    assert "nothing has changed" in trust(repo, str(repo)).stdout

    (repo / "deputize.toml").write_text(URL + "sandbox = false\n")
    (repo / ".mcp.json").unlink()
    again = trust(repo, str(repo), "--yes")
    assert f"{repo}/deputize.toml has changed\n" in again.stderr
    assert "+sandbox = false\n" in again.stderr
    assert "+url" not in again.stderr
    assert f"{repo}/.mcp.json is gone\n" in again.stderr
    assert trust(repo, "--list").stdout == f"{repo}\n"
    assert trust(repo, str(repo), "--revoke").stdout == f"{repo} is not trusted any more\n"
    assert trust(repo, "--list").stdout == ""


def test_without_a_terminal_nothing_is_trusted_silently(repo: Path) -> None:
    done = trust(repo, str(repo))
    assert done.exit_code == Exit.USAGE
    assert "use --yes" in done.stderr
    assert "+url" in done.stderr
    assert trust(repo, "--list").stdout == ""


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_where_nothing_lies_there_is_nothing_to_trust(repo: Path, folder: str) -> None:
    (repo / "empty").mkdir()
    assert trust(repo, str(repo / folder), "--yes").exit_code == Exit.USAGE


@pytest.mark.parametrize(("answer", "code", "listed"), [("y\n", 0, True), ("n\n", Exit.CANCELLED, False)])
async def test_on_a_terminal_the_user_is_asked(repo: Path, answer: str, code: int, listed: bool) -> None:
    terminal, theirs = pty.openpty()
    try:
        os.write(terminal, answer.encode())
        variables = environment(XDG_CONFIG_HOME=str(repo.parent / "config"))
        asking = await asyncio.create_subprocess_exec(
            *(PROGRAM, "trust"), stdin=theirs, stdout=-3, stderr=asyncio.subprocess.PIPE, cwd=repo, env=variables
        )
        _, said = await asyncio.wait_for(asking.communicate(), 60)
    finally:
        os.close(terminal)
        os.close(theirs)
    assert asking.returncode == code, said
    assert b"Trust 3 files as shown?" in said
    assert (trust(repo, "--list").stdout == f"{repo}\n") is listed
