"""A repository of one commit for a ground, so that commands which ask git for a version or for changes can do so.

The run's own ``.git`` is not in a ground, because the run may have written to it. This one is made outside of every
sandbox from nothing but the ground's files, and is the same for the same files: what a command generates shows in
``git diff``, and ``git describe`` and version tools find a commit and a tag.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ....shared.errors import RepositoryFailed
from ....shared.git.own import OwnRepository, Patience
from ....shared.log import log
from ...sandbox.environment import owner

SECONDS = 120.0
TAG = "v0.0.0"
_WHO = "deputize <deputize@localhost>"
_WHEN = "1700000000 +0000"
_ALWAYS = {
    "GIT_AUTHOR_NAME": "deputize",
    "GIT_AUTHOR_EMAIL": "deputize@localhost",
    "GIT_AUTHOR_DATE": _WHEN,
    "GIT_COMMITTER_NAME": "deputize",
    "GIT_COMMITTER_EMAIL": "deputize@localhost",
    "GIT_COMMITTER_DATE": _WHEN,
}
"""The same each time, so that the commit's name is that of its files."""
_BRANCH = "main"


def lay_repository(ground: Path) -> None:
    """Makes the ground a repository with all of its files in one commit; leaves it as it is where git cannot.

    Blocks. The ground must have no ``.git``.
    """
    made = ground.with_name(f"repository-{secrets.token_hex(4)}")
    try:
        _commit(OwnRepository(made, Patience(str(ground), seconds=SECONDS), {**_ALWAYS, "GIT_WORK_TREE": str(ground)}))
    except RepositoryFailed as error:
        log.warning("a check runs without a repository: %s", error)
        return
    if uid_gid := owner():
        for folder, _, names in os.walk(made):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                os.chown(path, *uid_gid, follow_symlinks=False)
    made.rename(ground / ".git")


def _commit(repository: OwnRepository) -> None:
    repository.make(bare=False)
    repository.run("add", "--all")
    tree = repository.run("write-tree").decode().strip()
    commit = repository.run("commit-tree", tree, "-m", "The files before this command").decode().strip()
    text = f"object {commit}\ntype commit\ntag {TAG}\ntagger {_WHO} {_WHEN}\n\n{TAG}\n"
    tag = repository.run("mktag", input=text.encode()).decode().strip()
    for path, id in ((f"refs/heads/{_BRANCH}", commit), (f"refs/tags/{TAG}", tag)):
        file = repository.directory / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{id}\n")
    (repository.directory / "HEAD").write_text(f"ref: refs/heads/{_BRANCH}\n")
