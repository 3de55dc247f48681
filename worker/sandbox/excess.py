"""The sentences about limits of the sandbox for which a command was killed: what was exceeded, and by which setting."""

from __future__ import annotations

from ...shared.settings import SandboxSettings


def size(count: float) -> str:
    """Returns bytes as text."""
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"


def of_memory(used: int | None, limits: SandboxSettings) -> str:
    """``used``: None where the kernel has killed it."""
    took = "wanted more memory together than the limit" if used is None else f"used {size(used)} of memory together"
    most = size(limits.memory_bytes)
    return f"the processes of this run {took}, and the limit is {most} (sandbox.memory_bytes); this one had the most"


def of_processes(number: int, most: int) -> str:
    return f"this run had {number} processes and threads, and may have {most} (four times sandbox.processes)"


def of_disk(used: int, most: int, setting: str) -> str:
    return f"the files of this run and its /tmp take {size(used)}, and the limit is {size(most)} ({setting})"


def of_shared_memory(used: int | None, most: int) -> str:
    """The limit of all runs of a worker."""
    took = "wanted more memory" if used is None else f"used {size(used)} of memory"
    may = f"may have {size(most)} (sandbox.share)"
    return f"the commands of all runs of this worker {took}, and {may}; this one had the most"


def of_shared_disk(used: int, free: int) -> str:
    """The limit of all runs of a worker."""
    return (
        f"the runs of this worker have added {size(used)} to their files, and {size(free)} of the disk are left, less "
        "than sandbox.share leaves to others; this run has added the most"
    )
