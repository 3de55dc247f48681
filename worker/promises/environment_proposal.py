"""The table of an environment that `deputize doctor --workspace` proposes, by the lock files of a directory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MOST_READ = 8 << 20
_MOST_HOSTS = 20
_EVERY_HOST = "   # every public one; name those of your package indexes"
_URL_HOST = re.compile(r"https?://(?:[^/@\s\"']{1,200}@)?([a-z0-9.-]{1,253})[:/]", re.IGNORECASE)
_LOCKS_WITH_HOSTS = (
    "uv.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "Pipfile.lock",
    "composer.lock",
)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """What sets up a project that has one of the files. ``offline`` is a variable for its commands alone."""

    files: Sequence[str]
    setup: str
    inputs: Sequence[str] = ()
    offline: str = ""


_PIP = "python3 -m venv .venv && .venv/bin/pip install -r"
_STUB = "mkdir -p src && touch src/lib.rs && "
_OF_PYTHON = (
    _Proposal(["uv.lock"], "uv sync --frozen --no-install-project", ["pyproject.toml", ".python-version"]),
    _Proposal(
        ["poetry.lock"], "POETRY_VIRTUALENVS_IN_PROJECT=1 poetry install --no-root --no-interaction", ["pyproject.toml"]
    ),
    _Proposal(["Pipfile.lock"], "PIPENV_VENV_IN_PROJECT=1 pipenv sync --dev", ["Pipfile"]),
    _Proposal(["requirements.lock"], f"{_PIP} requirements.lock"),
    _Proposal(["requirements.txt"], f"{_PIP} requirements.txt"),
)
_OF_NODE = (
    _Proposal(["pnpm-lock.yaml"], "pnpm install --frozen-lockfile", ["package.json", "pnpm-workspace.yaml", ".npmrc"]),
    _Proposal(["yarn.lock"], "yarn install --frozen-lockfile", ["package.json", ".yarnrc.yml"]),
    _Proposal(["package-lock.json", "npm-shrinkwrap.json"], "npm ci", ["package.json", ".npmrc"]),
)
_OTHERS = (
    _Proposal(
        ["Cargo.lock"], f"{_STUB}cargo fetch --locked", ["Cargo.toml", "rust-toolchain.toml"], "CARGO_NET_OFFLINE"
    ),
    _Proposal(["go.sum"], "go mod download", ["go.mod"]),
    _Proposal(["pom.xml"], "mvn --batch-mode dependency:go-offline"),
    _Proposal(
        ["gradle.lockfile", "build.gradle", "build.gradle.kts"],
        "gradle --no-daemon dependencies",
        ["settings.gradle*", "build.gradle*", "gradle.lockfile"],
    ),
    _Proposal(
        ["Gemfile.lock"], "bundle config set --local path vendor/bundle && bundle install", ["Gemfile", ".ruby-version"]
    ),
    _Proposal(["composer.lock"], "composer install --no-interaction --no-scripts", ["composer.json"]),
)


def proposed_environment(directory: Path, place: str) -> str:
    """Returns the table, as it would stand in `deputize.toml`; "" for a directory without lock files.

    ``place`` is what its runs are about: the URL of its repository, or its path.
    """
    found = [*_found(directory)]
    if not found:
        return ""
    files = [name for each in found for name in each.files if (directory / name).is_file()]
    inputs = dict.fromkeys([*files, *(name for each in found for name in each.inputs)])
    variables = [f'{each.offline} = "true"' for each in found if each.offline]
    unset = "".join(f"export {each.offline}=false\n" for each in found if each.offline)
    hosts = sorted(_hosts(directory, files))[:_MOST_HOSTS]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", directory.name).strip("-") or "project"
    lines = [
        f"[environments.{name}]",
        f"match = [{json.dumps(place)}]",
        'setup = """',
        *(unset + "\n".join(each.setup for each in found)).splitlines(),
        '"""',
        f"setup_hosts = {json.dumps(hosts or ['*'])}{'' if hosts else _EVERY_HOST}",
        f"inputs = {json.dumps([*inputs])}",
        *([f"variables = {{ {', '.join(variables)} }}"] if variables else []),
    ]
    return "\n".join(lines)


def _found(directory: Path) -> Iterator[_Proposal]:
    """Yields one for each language, and of several lock files of a language the first."""
    for family in (_OF_PYTHON, _OF_NODE, *([each] for each in _OTHERS)):
        for each in family:
            if any((directory / name).is_file() for name in each.files):
                yield each
                break


def _hosts(directory: Path, files: Sequence[str]) -> set[str]:
    """Returns the hosts that lock files name as the sources of packages."""
    hosts = set[str]()
    for name in files:
        if name in _LOCKS_WITH_HOSTS:
            with suppress(OSError), (directory / name).open("rb") as file:
                hosts.update(
                    each.lower() for each in _URL_HOST.findall(file.read(_MOST_READ).decode("utf-8", "replace"))
                )
    return hosts
