"""The workspace of a run over a git repository: a copy of the clone that the runs of this machine have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from ...shared.errors import Invalid
from ...shared.git.clones import Clone, Wanted, clone_of
from ...shared.git.own import Patience
from ...shared.git.remote import remote_of
from ...shared.ids import moment_of
from ...shared.listed import is_copied
from ...shared.request import GitWorkspace
from ...shared.settings import Settings
from ..sandbox.environment import owner
from ..threads import release_slot
from .source import KeptRules, open_folder
from .tree_copy import CopyTally, SourceTooLarge, TreeCopy
from .workspace import NOT_COPIED

_CLONED = "cloned.json"


@dataclass(frozen=True, slots=True)
class Cloned:
    """What a workspace was cloned from: recorded beside it, also for the delegations that go on with its files."""

    commit: str
    branch: str | None

    @classmethod
    def read(cls, folder: Path) -> Cloned:
        """Raises FileNotFoundError for the folder of another workspace."""
        return cls(**json.loads((folder / _CLONED).read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class GitSource:
    """Fills a new workspace from a repository. ``id`` is the delegation; its ref is read after it was accepted."""

    spec: GitWorkspace
    id: str
    settings: Settings
    max_bytes: int
    tally: CopyTally

    def fill(self, folder: Path, stop: Event) -> None:
        """Fills the folder, whose directories are empty.

        Raises Invalid, Misconfigured, RepositoryFailed and GitStopped.
        """
        remote = remote_of(self.spec.url, self.settings)
        wanted = Wanted(remote, self.spec.ref, self.spec.depth, moment_of(self.id), self.max_bytes)
        release_slot()
        with clone_of(self.settings.repositories, wanted, Patience(remote.url, stop)) as clone:
            self._copy(clone, folder, stop)

    def _copy(self, clone: Clone, folder: Path, stop: Event) -> None:
        with (
            open_folder(clone.files) as source,
            open_folder(folder / "files") as files,
            open_folder(folder / "base") as base,
        ):
            include = partial(is_copied, None)
            copy = TreeCopy(source, files, include, owner(), stop=stop, max_bytes=self.max_bytes, tally=self.tally)
            try:
                copy.run()
            except SourceTooLarge as error:
                most = f"{self.max_bytes / (1 << 30):.3g} GiB (raise sandbox.disk_bytes for more)"
                detail = f"{self.spec.url} is too large to be copied: with {error.path} it has more than {most}"
                raise Invalid.at("/workspace/url", detail) from None
            TreeCopy(files, base, lambda path, _: path.rpartition("/")[2] != ".git", stop=stop).run()
        KeptRules(cloned=True).write(folder)
        (folder / NOT_COPIED).write_text(json.dumps(clone.not_copied), "ascii")
        (folder / _CLONED).write_text(json.dumps({"commit": clone.commit, "branch": clone.branch}), "utf-8")
