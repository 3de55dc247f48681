"""Which files of a directory git ignores: what a copy leaves out, and what a run makes without changing the project."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...shared.git import git, read_regular, repository_of, shared_state
from ...shared.settings.variables import environment
from ..search.gitignore import MAX_BYTES, GitIgnore, GitIgnoreTree
from .files import Files
from .git_state import tracked_paths

_FILE = "ignored.json"

OuterRules = Sequence[tuple[Sequence[str], str]]
"""Texts of rules from outside a directory, the deciding one first, each with the path that leads to the directory."""


@dataclass(slots=True)
class IgnoredFiles:
    """What git ignores in a directory. ``source`` is its path where a repository may track some of it all the same."""

    files: Files
    outer: OuterRules = ()
    source: Path | None = None
    _rules: GitIgnoreTree = field(init=False)
    _folders: dict[str, bool] = field(default_factory=lambda: {"": False})
    """Which directories are ignored."""
    _repositories: dict[str, frozenset[str] | None] = field(default_factory=dict[str, "frozenset[str] | None"])
    """What the repository that begins at a directory tracks; None where none does."""

    def __post_init__(self) -> None:
        self._rules = GitIgnoreTree(self.files, [(tuple(names), GitIgnore(text)) for names, text in self.outer])

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether git ignores the path; a directory that has a tracked file is not ignored."""
        folder = path.rpartition("/")[0]
        named = self._ignores_folder(folder) or self._rules.ignores(path, directory=directory)
        return named and not (self.source and self._is_tracked(path, self.source))

    def _ignores_folder(self, folder: str) -> bool:
        unknown = [folder]
        while unknown[-1] not in self._folders:
            unknown.append(unknown[-1].rpartition("/")[0])
        for each in reversed(unknown[:-1]):
            above = self._folders[each.rpartition("/")[0]]
            self._folders[each] = above or self._rules.ignores(each, directory=True)
        return self._folders[folder]

    def _is_tracked(self, path: str, source: Path) -> bool:
        """Whether a repository around the path tracks it: the source's own one, or one inside, as of a submodule."""
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder not in self._repositories:
                self._repositories[folder] = _tracked(source / folder, is_top=not folder)
            if (tracked := self._repositories[folder]) is not None and path[len(folder) :].lstrip("/") in tracked:
                return True
        return False


def _tracked(folder: Path, *, is_top: bool) -> frozenset[str] | None:
    if not is_top:
        return tracked_paths(folder) if _is_repository(folder) else None
    repository = repository_of(folder)
    if repository is None:
        return None
    prefix = "/".join(folder.relative_to(repository).parts)
    paths = tracked_paths(repository)
    if not prefix:
        return paths
    return frozenset(path[len(prefix) + 1 :] for path in paths if path.startswith(f"{prefix}/"))


def outer_rules(source: Path) -> OuterRules:
    """Returns the rules for a directory that git has from elsewhere: from folders above, ``info/exclude``, the user's.

    Where these ignore the directory itself, it was asked for by name, and none of them counts.
    """
    repository = repository_of(source)
    if repository is None:
        return ()
    names = source.relative_to(repository).parts
    above = [(names[at:], _text(Path(repository, *names[:at], ".gitignore"))) for at in range(len(names) - 1, -1, -1)]
    whole = [_text(shared_state(repository) / "info/exclude"), _text(_excludes_file(repository))]
    with Files(repository) as files:
        ignoring = IgnoredFiles(files, [((), text) for text in whole])
        if names and ignoring.ignores("/".join(names), directory=True):
            return ()
    return [(names, text) for names, text in (*above, *((names, text) for text in whole)) if text]


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git")


def _excludes_file(repository: Path) -> Path | None:
    """Returns the file that ``core.excludesFile`` names to git in this repository, or git's default one."""
    asked = "--type=path", "--get", "core.excludesFile"
    for configured in (repository, None):  # the user's part alone where git cannot read the repository's
        try:
            done = git("config", *asked, repository=configured, cwd=repository, as_user=True)
        except OSError:
            continue
        if done.returncode == 0:
            return repository / os.fsdecode(done.stdout.rstrip(b"\n"))
        if done.returncode == 1:
            break
    try:
        return Path(environment().get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "git/ignore"
    except RuntimeError:
        return None


def _text(path: Path | None) -> str:
    return read_regular(path, MAX_BYTES).decode("utf-8", "surrogateescape") if path else ""


@dataclass(frozen=True, slots=True)
class KeptRules:
    """What is recorded beside a copy: whether ignored files count as any other, and rules from elsewhere."""

    everything: bool = False
    outer: OuterRules = ()

    def write(self, folder: Path) -> None:
        (folder / _FILE).write_text(json.dumps([self.everything, self.outer]), "ascii")

    @classmethod
    def read(cls, folder: Path) -> KeptRules:
        """Reads what was recorded beside a workspace; nothing for an empty one."""
        try:
            return cls(*json.loads((folder / _FILE).read_text("ascii")))
        except FileNotFoundError:
            return cls()
