"""Deliveries for tests: patches of a repository, and their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deputize.shared.facts import FileChange, GitFacts
from deputize.shared.git.delivery import Delivery
from deputize.shared.git.own import Patience
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import Settings
from tests.network.git_server import GitServer, git

FILES = {"app.py": "one\n", "data.bin": "\0a", "docs/guide.md": "# Guide\n"}


def changed(source: Path, text: str = "two\n") -> str:
    """The patch of some changes: text, binary, a mode, a link, a deleted file, odd names."""
    (source / "app.py").write_text(text)
    (source / "app.py").chmod(0o755)
    (source / "data.bin").write_bytes(b"\0b\xff")
    (source / "docs/guide.md").unlink()
    (source / "link").symlink_to("app.py")
    (source / 'a "b"\n.txt').write_text("x")
    git(source, "add", "-A")
    patch = git(source, "diff", "--cached", "--binary", "--full-index", "--no-renames") + "\n"
    git(source, "reset", "-q", "--hard")
    return patch


def delivery(url: str, base: str, patch: str, *, id: str | None = None, **wanted: Any) -> Delivery:
    request = DelegationRequest.model_validate(
        {"task": "Say two\nand more", "workspace": {"kind": "git", "url": url}, "deliver": wanted}
    )
    assert request.deliver is not None
    return Delivery(id or new_id(), request, request.deliver, base, patch, [])


def unpatched(*paths: str) -> list[FileChange]:
    """Changes that the patch lacks, beside one that it has."""
    made = FileChange(path="app.py", change="modified")
    return [made, *(FileChange(path=path, change="created", in_patch=False) for path in paths)]


def deliver(chosen: Settings, asked: Delivery) -> GitFacts:
    return asked.run(chosen, Patience(seconds=60))


def branches(server: GitServer) -> list[str]:
    return git(server.root / "project.git", "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def added(source: Path, *paths: str) -> str:
    """The patch that adds these files."""
    for path in paths:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text("x")
    git(source, "add", "-A", "-f")
    patch = git(source, "diff", "--cached", "--binary", "--full-index", "--no-renames") + "\n"
    git(source, "reset", "-q", "--hard")
    return patch
