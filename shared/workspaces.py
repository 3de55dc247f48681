"""Where the files of a delegation are on disk: its worker writes them, a service on the same machine shows them."""

from __future__ import annotations

from pathlib import Path

BASE = "base"
"""The folder with a copy of the files from the run's start, without git's own."""
PRIVATE_DIR = ".deputize"
"""The worker's own directory inside a workspace."""


def generation_path(folder: Path, name: str, number: int) -> Path:
    """Returns the path of a file or directory that each attempt, which has a number, has for itself."""
    return folder / (name if number == 1 else f"{name}.{number}")


def latest_generation(folder: Path) -> int | None:
    """Returns the number of the newest attempt whose files are complete, or None if there is no workspace."""
    if not generation_path(folder, "start.json", 1).exists():
        return None
    numbers = (int(path.name.rpartition(".")[2]) for path in folder.glob("start.json.*") if path.suffix[1:].isdigit())
    return max(numbers, default=1)
