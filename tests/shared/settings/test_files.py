"""``deputize.toml``: what stops a start, what is ignored, and where the paths in it begin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.request import Limits
from deputize.shared.settings.files import FileSettings, read
from deputize.shared.trust import TrustRecords, configuration_folder, covered

PATHS = {"home", "mcp_config", "mcp_config_path", "skills_dir", "workspace_sources"}


def written(config: Path | None, environ: dict[str, str]) -> FileSettings:
    return read(config, environ, Limits(), PATHS)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not toml", "cannot be read: "),
        (b"\xff", "cannot be read: "),
        (b'url = "a\\u0000b"', "contains a NUL character in url"),
    ],
)
def test_a_named_file_that_is_wrong_stops_the_start(here: Path, data: bytes, why: str) -> None:
    (here / "mine.toml").write_bytes(data)
    with pytest.raises(Misconfigured, match=why):
        written(here / "mine.toml", {})


def test_a_named_file_that_cannot_be_read_stops_the_start(here: Path) -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        written(here / "mine.toml", {})
    with pytest.raises(Misconfigured, match="cannot be read: Is a directory"):
        written(here, {})


def test_paths_in_a_file_begin_beside_it_also_in_lists_and_tables(here: Path) -> None:
    (here / "mine.toml").write_text('workspace_sources = ["a", "/b"]\nhome = 7\n[tools]\nskills_dir = "s"\n')
    values = written(Path("mine.toml"), {}).values
    assert values == {"workspace_sources": [str(here / "a"), "/b"], "home": 7, "tools": {"skills_dir": str(here / "s")}}


def test_in_a_directory_that_was_removed_only_the_users_own_file_counts(here: Path, environ: dict[str, str]) -> None:
    own = configuration_folder(environ)
    own.mkdir(parents=True)
    (own / "deputize.toml").write_text("port = 1")
    here.rmdir()
    assert written(None, environ) == FileSettings({"port": 1})


def test_the_users_own_file_counts_whole_where_its_directory_is_the_working_one(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = configuration_folder(environ)
    own.mkdir(parents=True)
    (own / "deputize.toml").write_text("port = 1")
    monkeypatch.chdir(own)
    assert written(None, environ) == FileSettings({"port": 1})
    assert caplog.messages == []


def test_a_found_file_may_say_how_large_the_models_window_is(here: Path, environ: dict[str, str]) -> None:
    (here / "deputize.toml").write_text("context_tokens = 5000\nport = 1\n")
    assert written(None, environ).values == {"context_tokens": 5000}


@pytest.mark.parametrize(
    ("text", "servers", "skills"),
    [
        ("", "mcp.json", "skills"),
        ('mcp_config = "other.json"\nskills_dir = "other"', "other.json", "other"),
        ('[tools]\nmcp_config_path = "other.json"\nskills_dir = "other"', None, None),
        ('tools = "wrong"', "mcp.json", "skills"),
    ],
)
def test_servers_and_skills_beside_a_trusted_file_count_unless_it_names_others(
    here: Path, environ: dict[str, str], text: str, servers: str | None, skills: str | None
) -> None:
    (here / "deputize.toml").write_text(text)
    (here / "mcp.json").write_text(json.dumps({"mcpServers": {}}))
    (here / "skills").mkdir()
    (here / "skills/SKILL.md").write_text("---\n")
    TrustRecords(configuration_folder(environ)).record(here, covered(here))
    found = written(None, environ)
    assert found.trusted == here
    named = [found.values.get("mcp_config"), found.values.get("skills_dir")]
    assert named == [name and str(here / name) for name in (servers, skills)]


def test_a_trusted_file_needs_neither_servers_nor_skills(here: Path, environ: dict[str, str]) -> None:
    (here / "deputize.toml").write_text("port = 1")
    TrustRecords(configuration_folder(environ)).record(here, covered(here))
    assert written(None, environ) == FileSettings({"port": 1}, here)
