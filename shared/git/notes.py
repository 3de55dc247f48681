"""Notes of delivered commits at their repository. Each delegation has a ref of its own, and waits for no other."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ..ids import moment_of
from ..settings import Settings
from .command import PUSH
from .own import OwnRepository, Patience, written_by
from .remote import remote_of

REF = "refs/notes/deputize"


def attach_note(settings: Settings, url: str, commit: str, id: str, note: bytes, patience: Patience) -> None:
    """Pushes a note of a commit, in place of an earlier one of this delegation. Blocks.

    `git notes --ref refs/notes/deputize/ID show COMMIT` prints it, once that ref is fetched.

    Raises RepositoryFailed with its kind, Invalid where the settings do not allow it, and GitStopped.
    """
    remote = remote_of(url, settings)
    patience.url = remote.url
    variables = {**remote.variables, **written_by(settings.git_author, int(moment_of(id)))}
    with TemporaryDirectory(prefix="deputize-note.") as folder:
        own = OwnRepository(Path(folder) / "objects.git", patience, variables)
        own.make()
        blob = own.run("hash-object", "-w", "--stdin", input=note).decode().strip()
        tree = own.run("mktree", input=f"100644 blob {blob}\t{commit}\n".encode()).decode().strip()
        made = own.run("commit-tree", tree, input=f"Proof of {id}\n".encode()).decode().strip()
        own.run(*PUSH, remote.address, f"+{made}:{REF}/{id}")
