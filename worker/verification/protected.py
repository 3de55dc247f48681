"""Protected paths: what a check sees as it was before the run, because it decides what the check does."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from typing import Any

from ..search.glob_pattern import GlobPattern

ALWAYS = (
    *("__pycache__", "*.pyc", "*.pyo", "*.pth", "sitecustomize.py", "usercustomize.py"),
    *("/.venv", "/venv", "node_modules", ".git", ".gitattributes"),
)
"""Whatever the caller protects: no result of work, and loaded or executed before the code that is checked."""
DEFAULT = (
    *("tests", "test", "testing", "__tests__", "spec", "specs", "e2e", "__snapshots__", "snapshots"),
    *("testdata", "golden", "goldens", "*.snap", "*.golden", "*.approved.*"),
    *("test_*.py", "*_test.py", "tests.py", "*_test.go", "*.test.*", "*.spec.*", "conftest.py"),
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml", "noxfile.py", ".coveragerc"),
    *("jest.config.*", "jest.setup.*", "vitest.config.*", "vitest.workspace.*", "vitest.setup.*", ".mocharc*"),
    *("karma.conf.*", "playwright.config.*", "cypress.config.*", "babel.config.*", ".babelrc*"),
    *("Makefile", "makefile", "GNUmakefile", "*.mk", "justfile", "Justfile", "Taskfile.*"),
    *(".github/workflows", ".gitlab-ci.yml", ".circleci", ".cargo", ".npmrc", ".config/nextest.toml", "nextest.toml"),
    *("*.lock", "*-lock.json", "pnpm-lock.yaml", "go.sum", "npm-shrinkwrap.json", "requirements*.txt"),
)
"""What is protected where the caller names nothing: tests, what they compare with, the configuration of their runners,
and lock files.
"""
_PYTHON_TOOLS = ("pytest", "tox", "nox", "coverage", "hatch", "poe", "taskipy", "pdm")
_INI_SECTIONS = ("pytest", "tool:pytest", "aliases", "unittest", "nosetests")
_NODE_PARTS = ("jest", "vitest", "mocha", "ava", "tap", "nyc", "c8")


class Globs:
    """Patterns as in .gitignore: one without a slash is for names at any depth, and one for a directory is for all
    that is below.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [GlobPattern(_anchored(pattern)) for pattern in patterns]
        self._known: dict[str, bool] = {"": False}

    def match(self, path: str) -> bool:
        """Whether a pattern matches the path, or a directory that it is in."""
        folder = path.rpartition("/")[0]
        if folder not in self._known:
            self._known[folder] = self.match(folder)
        return self._known[folder] or any(pattern.matches(path) for pattern in self._patterns)


def _anchored(pattern: str) -> str:
    bare = pattern.strip("/").removesuffix("/**").removesuffix("/")
    is_anchored = "/" in pattern.rstrip("/")
    return bare if is_anchored else f"**/{bare}"


class Protection:
    """Decides which changes a check does not see. ``asked``: the caller's patterns, or None for the default."""

    def __init__(self, asked: Sequence[str] | None) -> None:
        self._globs = Globs((*ALWAYS, *(DEFAULT if asked is None else asked)))
        self._mixed: Mapping[str, Callable[[bytes, bytes], bool]] = MIXED if asked is None else {}

    def holds(self, path: str, contents: Callable[[], tuple[bytes, bytes]]) -> bool:
        """Whether the change of this path is not seen. ``contents`` reads what it holds before and after."""
        if self._globs.match(path):
            return True
        steers = self._mixed.get(path.rpartition("/")[2])
        return steers is not None and steers(*contents())


def _differs(part: Callable[[bytes, bytes], Any]) -> Callable[[bytes, bytes], bool]:
    """Returns whether a part of a file, read from it and the file before, is another one; so is what is unreadable."""

    def steers(before: bytes, after: bytes) -> bool:
        try:
            return part(before, before) != part(after, before)
        except (ValueError, ConfigError, AttributeError, TypeError, RecursionError):
            return True

    return steers


def _of_pyproject(data: bytes, _: bytes) -> Any:
    tools = tomllib.loads(data.decode()).get("tool", {})
    return {name: tools[name] for name in _PYTHON_TOOLS if name in tools}


def _of_ini(data: bytes, _: bytes) -> Any:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.read_string(data.decode())
    wanted = [name for name in parser.sections() if name in _INI_SECTIONS or name.startswith("coverage")]
    return {name: dict(parser[name]) for name in wanted}


def _of_package(data: bytes, before: bytes) -> Any:
    """Scripts may be added, but for those that npm runs before and after others."""
    package, earlier = (json.loads(text or b"{}") for text in (data, before))
    scripts, known = package.get("scripts", {}), earlier.get("scripts", {})
    kept = {name: text for name, text in scripts.items() if name in known or name.startswith(("pre", "post", "test"))}
    return [kept, *(package.get(name) for name in _NODE_PARTS)]


MIXED = {
    "pyproject.toml": _differs(_of_pyproject),
    "setup.cfg": _differs(_of_ini),
    "package.json": _differs(_of_package),
}
"""Files that are as much a part of the work as of the configuration: protected where their part about tests changed."""
