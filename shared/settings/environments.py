"""``[environments.NAME]``: what the commands of a run need, prepared before the run and shown below its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..errors import Misconfigured
from ..text import did_you_mean
from .files import secret_bytes
from .sandbox import HostPatterns
from .variables import AbsolutePath

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = ("HOME", "PATH", "TMPDIR")
_LEAST_SECRET = 8
"""Characters: a shorter value cannot be masked, as it may be a part of any text."""
LOCK_FILES = (
    *("pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "requirements*.lock", "uv.lock", "poetry.lock"),
    *("Pipfile", "Pipfile.lock", "pylock.toml", ".python-version", "package.json", "package-lock.json"),
    *("npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock", ".yarnrc.yml", ".npmrc", ".nvmrc"),
    *("Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "go.mod", "go.sum", "pom.xml", "build.gradle*"),
    *("settings.gradle*", "gradle.lockfile", "Gemfile", "Gemfile.lock", ".ruby-version", "composer.json"),
    *("composer.lock", ".tool-versions"),
)
"""The default of ``inputs``: what package managers read, at the top of the repository."""


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"{name[:100]!r} cannot be set: letters, digits and _, and not HOME, PATH, TMPDIR")
    return name


def _input(pattern: str) -> str:
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern:
        raise ValueError(f"{pattern[:100]!r} is not a pattern of files in the repository, such as uv.lock or **/go.sum")
    return pattern


def _once(names: list[str]) -> list[str]:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{twice[:100]!r} is listed twice")
    return names


VariableName = Annotated[str, AfterValidator(_variable)]


class EnvironmentSettings(BaseModel):
    """One environment. Its set-up sees the files that ``inputs`` names, and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    match: list[str] = []
    """Patterns of the URLs or directories whose runs have it, as ``https://git.example.org/team/*``; of several
    environments the first one that fits. Requests can name any one."""
    setup: str = Field(min_length=1)
    """A script for bash, run at the path of the workspace. What it makes there and in its home is kept."""
    setup_hosts: HostPatterns = []
    """Hosts that the script may reach, as in ``sandbox.setup_hosts``."""
    setup_seconds: float = Field(default=1800, gt=0)
    """How long the script may take."""
    inputs: list[Annotated[str, AfterValidator(_input)]] = [*LOCK_FILES]
    """Patterns of the files that the script sees. While they are the same, it is not run again. ``**`` is all files."""
    services: Annotated[list[str], AfterValidator(_once)] = []
    """Names of tables ``services.NAME``: programs that run beside the commands of each run and check."""
    maintenance: str = ""
    """A script that is run without a network before each run, and before each execution of a check."""
    show: list[AbsolutePath] = []
    """Further directories or files of the machine that the script and commands may read, as ``sandbox.show``."""
    variables: dict[VariableName, str] = {}
    """Variables of the script and of all commands."""
    secrets: dict[VariableName, AbsolutePath] = {}
    """Variables of the script alone: each is the content of a file that only its user may read."""
    max_bytes: int = Field(default=8 << 30, ge=1 << 20)
    """How much one preparation may take, and all that are kept of this environment together."""
    keep: int = Field(default=14 * 24 * 3600, ge=0)
    """Seconds after its last use for which a preparation is kept."""

    def secret_values(self, name: str) -> dict[str, str]:
        """Returns the values of the secrets.

        Raises Misconfigured where a file is missing, others may read it, or its content is not text or too short.
        """
        found = dict[str, str]()
        for variable, path in self.secrets.items():
            place = f"environments.{name}.secrets.{variable}"
            try:
                value = secret_bytes(path, place).decode().strip()
            except UnicodeDecodeError:
                raise Misconfigured(f"{place}: {path} is not text (UTF-8)") from None
            if len(value) < _LEAST_SECRET or "\0" in value:
                raise Misconfigured(f"{place}: {path} needs a text of at least {_LEAST_SECRET} characters")
            found[variable] = value
        return found


Environments = Mapping[str, EnvironmentSettings]


def unknown_environment(name: str | None, tables: Environments) -> str | None:
    """Returns what is wrong with the name of an environment, or None."""
    if name is None or name in tables:
        return None
    hint = did_you_mean(name[:100], tables) or (f"there are {', '.join(tables)}" if tables else "")
    return f"there is no environment {name[:100]!r}; {hint or 'the settings define none ([environments.NAME])'}"


def matching(tables: Environments, place: str | None) -> str | None:
    """Returns the name of the first environment that a URL or directory fits; None for none."""
    places = {place, place.removesuffix(".git")} if place else set[str]()
    fits = (name for name, table in tables.items() if any(fnmatchcase(p, m) for p in places for m in table.match))
    return next(fits, None)


def secret_paths(tables: Environments) -> Iterator[Path]:
    """Yields the files of secrets."""
    for table in tables.values():
        yield from table.secrets.values()
