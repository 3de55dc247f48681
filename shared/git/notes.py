"""Notes of delivered commits at their repository. Each delegation has a ref of its own, and waits for no other."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ..ids import moment_of
from ..settings import Settings
from .command import RECEIVE_PACK
from .own import OwnRepository, Patience
from .remote import remote_of

REF = "refs/notes/deputize"
_OPTIONS = "--porcelain", "--no-verify", "--no-signed", f"--receive-pack={RECEIVE_PACK}"


def attach_note(settings: Settings, url: str, commit: str, id: str, note: bytes, patience: Patience) -> None:
    """Pushes a note of a commit, in place of an earlier one of this delegation. Blocks.

    `git notes --ref refs/notes/deputize/ID show COMMIT` prints it, once that ref is fetched.

    Raises RepositoryFailed with its kind, Invalid where the settings do not allow it, and GitStopped.
    """
    remote = remote_of(url, settings)
    patience.url = remote.url
    name, _, address = settings.git_author.rstrip(">").rpartition(" <")
    who = {"NAME": name, "EMAIL": address, "DATE": f"@{int(moment_of(id))} +0000"}
    variables = {f"GIT_{role}_{field}": text for role in ("AUTHOR", "COMMITTER") for field, text in who.items()}
    with TemporaryDirectory(prefix="deputize-note.") as folder:
        own = OwnRepository(Path(folder) / "objects.git", patience, {**remote.variables, **variables})
        own.make()
        blob = own.run("hash-object", "-w", "--stdin", input=note).decode().strip()
        tree = own.run("mktree", input=f"100644 blob {blob}\t{commit}\n".encode()).decode().strip()
        made = own.run("commit-tree", tree, input=f"Proof of {id}\n".encode()).decode().strip()
        own.run("push", *_OPTIONS, remote.address, f"+{made}:{REF}/{id}")
