"""What a result has of the instructions of a project."""

from __future__ import annotations

from .wire import Wire


class InstructionFile(Wire):
    """A file of the project whose words the model has read as instructions."""

    path: str
    """Relative to the workspace."""
    sha256: str
    """Of its content before the run, of a longer file of its first 32 KiB."""
