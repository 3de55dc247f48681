"""The table that is proposed for a project by its lock files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.settings import Settings
from deputize.worker.promises.environment_proposal import proposed_environment


def proposed(folder: Path, files: dict[str, str]) -> dict[str, Any]:
    """The tables of the proposal, which the settings accept."""
    for name, text in files.items():
        (folder / name).write_text(text)
    values = tomllib.loads(proposed_environment(folder, "/srv/shop"))
    Settings.load(environ={}, **values)
    return values.get("environments", {})


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("uv.lock", "uv sync --frozen"),
        ("poetry.lock", "poetry install"),
        ("requirements.txt", "pip install -r requirements.txt"),
        ("package-lock.json", "npm ci"),
        ("pnpm-lock.yaml", "pnpm install"),
        ("yarn.lock", "yarn install"),
        ("Cargo.lock", "cargo fetch"),
        ("go.sum", "go mod download"),
        ("pom.xml", "mvn"),
        ("build.gradle.kts", "gradle"),
        ("Gemfile.lock", "bundle install"),
        ("composer.lock", "composer install"),
    ],
)
def test_each_package_manager_has_a_command(tmp_path: Path, name: str, command: str) -> None:
    ((_, table),) = proposed(tmp_path, {name: ""}).items()
    assert command in table["setup"]
    assert name in table["inputs"]
    assert table["match"] == ["/srv/shop"]


def test_hosts_are_those_of_the_lock_files_and_both_languages_are_set_up(tmp_path: Path) -> None:
    lock = 'resolved "https://packages.example.org/left-pad/-/left-pad-1.tgz"\nhttps://u:p@other.example.org/x'
    ((_, table),) = proposed(tmp_path, {"yarn.lock": lock, "uv.lock": "", "requirements.txt": ""}).items()
    assert table["setup_hosts"] == ["other.example.org", "packages.example.org"]
    assert table["setup"].splitlines() == ["uv sync --frozen --no-install-project", "yarn install --frozen-lockfile"]


def test_a_variable_that_keeps_commands_offline_does_not_hold_in_the_set_up(tmp_path: Path) -> None:
    ((_, table),) = proposed(tmp_path, {"Cargo.lock": ""}).items()
    assert table["variables"] == {"CARGO_NET_OFFLINE": "true"}
    assert table["setup"].startswith("export CARGO_NET_OFFLINE=false\n")


def test_without_a_lock_file_nothing_is_proposed(tmp_path: Path) -> None:
    assert proposed(tmp_path, {"README.md": "x"}) == {}
