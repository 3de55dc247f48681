"""The writable mounts of a sandbox, as the kernel lists them, compared with those that it should have.

Bubblewrap makes a mount read-only in a second step, and looks its path up again for that. A background command of the
same run can exchange a link in the workspace between the two, and the mount stays writable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

_DEVICES = "/dev/"


def writable_mount_refusal(pid: int, expected: Collection[str]) -> str | None:
    """Returns why the sandbox of this process must not be used, or None.

    Args:
        pid: A process inside.
        expected: The paths of its writable mounts besides those of devices.
    """
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        return f"its mounts cannot be read: {error.strerror}"
    fields = [line.split(" ") for line in lines]
    writable = Counter(each[4] for each in fields if "ro" not in each[5].split(","))
    known = {_escaped(path) for path in expected}
    for path, number in writable.items():
        # A second mount at the same path covers the one that is expected there.
        if number > 1 or not (path in known or path.startswith(_DEVICES)):
            return f"{path} is writable and should not be; files of the workspace were exchanged meanwhile. Try again"
    return None


def _escaped(path: str) -> str:
    """Returns the path as the kernel writes it in its list."""
    return "".join(f"\\{ord(each):03o}" if each in " \t\n\\#" else each for each in path)
