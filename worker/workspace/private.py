"""Our own directory inside a workspace: where it is, and how its files are written."""

from __future__ import annotations

from worker.workspace.files import Files

PRIVATE_DIR = ".deputize"
"""Our own directory inside a workspace. It is no part of the work: manifests, patches and searches leave it out."""


def is_private(path: str) -> bool:
    """Whether a path relative to the workspace leads into our own directory."""
    return path == PRIVATE_DIR or path.startswith(PRIVATE_DIR + "/")


def private_path(files: Files, path: str) -> str:
    """Where in the workspace a path of our own directory is; the directory is there, and git leaves it alone."""
    files.write(f"{PRIVATE_DIR}/.gitignore", b"*\n")
    return f"{PRIVATE_DIR}/{path}"


def write_private(files: Files, path: str, data: bytes) -> str:
    """Writes a file of our own directory; gives its path in the workspace."""
    full = private_path(files, path)
    files.write(full, data)
    return full
