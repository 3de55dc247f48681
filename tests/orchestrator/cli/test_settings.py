"""`deputize settings` in its three forms."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.orchestrator.command_line import deputize


async def test_settings_are_listed_with_what_differs_from_the_default(tmp_path: Path) -> None:
    done = await deputize("settings", cwd=tmp_path, DEPUTIZE_PORT="1", DEPUTIZE_CONFIG="/dev/null")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert done.code == 0
    assert rows["DEPUTIZE_PORT"] == ["1", "default:", "8642"]
    assert rows["DEPUTIZE_HOST"] == ['"127.0.0.1"']
    assert rows["DEPUTIZE_REDIS_URL"] == ["unset"]


async def test_settings_as_json_and_as_a_file(tmp_path: Path) -> None:
    variables = {"DEPUTIZE_SANDBOX_PROCESSES": "99", "DEPUTIZE_CONFIG": "/dev/null"}
    done = await deputize("settings", "--json", cwd=tmp_path, **variables)
    lines = {line["variable"]: line for line in map(json.loads, done.out.splitlines())}
    assert lines["DEPUTIZE_SANDBOX_PROCESSES"]["value"] == "99"
    done = await deputize("settings", "--toml", cwd=tmp_path, **variables)
    assert tomllib.loads(done.out)["sandbox"] == {"processes": 99}
    both = await deputize("settings", "--toml", "--json", cwd=tmp_path)
    assert (both.code, "--toml and --json" in both.err) == (2, True)


NAMED_BY = {
    "deputize.toml": "--config or DEPUTIZE_CONFIG",
    "mcp.json": "DEPUTIZE_MCP_CONFIG",
    ".mcp.json": "DEPUTIZE_MCP_CONFIG",
    "skills": "DEPUTIZE_SKILLS_DIR",
}
"""What is not used where it merely lies in the working directory, and what names it."""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "skills/one").mkdir(parents=True)
    (folder / "skills/one/SKILL.md").touch()
    (folder / "mcp.json").write_text("{}")
    (folder / ".mcp.json").write_text("{}")
    (folder / "deputize.toml").write_text("port = 1\n")
    return folder


def hint_of(*names: str) -> str:
    hints = [f"found ./{name}, which is not used; name it with {NAMED_BY[name]}" for name in names]
    return "; ".join(hints) + "\n" if hints else ""


async def test_one_line_names_what_lies_in_the_working_directory_and_is_not_used(here: Path, tmp_path: Path) -> None:
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = await deputize("settings", cwd=here, **own)
    assert (done.code, done.err) == (0, hint_of(*NAMED_BY))
    assert not any(line.split()[:2] == ["DEPUTIZE_PORT", "1"] for line in done.out.splitlines())
    done = await deputize("settings", cwd=here / "skills", **own)
    assert (done.code, done.err) == (0, "")


async def test_what_is_named_is_not_hinted_at(here: Path, tmp_path: Path) -> None:
    named = {"DEPUTIZE_MCP_CONFIG": "mcp.json", "DEPUTIZE_SKILLS_DIR": "skills"}
    done = await deputize("--config", "deputize.toml", "settings", cwd=here, **named)
    assert (done.code, done.err) == (0, "")
    done = await deputize("settings", cwd=here, DEPUTIZE_CONFIG="deputize.toml", **named)
    assert (done.code, done.err) == (0, "")
    here.rename(tmp_path / "deputize")  # now it is this user's own configuration folder
    done = await deputize("settings", cwd=tmp_path / "deputize", XDG_CONFIG_HOME=str(tmp_path))
    assert (done.code, done.err) == (0, "")
