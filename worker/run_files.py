"""The files of a run at its begin and at its end: what a failed try left is removed, and what changed is collected."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

from ..shared.runs.record import Claim, fields_of
from ..shared.workspaces import delete
from .contracts import StopSignal
from .core.resources import RunOutputs
from .services import Services
from .threads import run_in_thread, run_short
from .workspace.artifacts import Artifacts
from .workspace.manifest import Deadline
from .workspace.patches import MAX_PATCH_BYTES, Facts, with_masked_binaries
from .workspace.workspace import Workspace

ENDING_SECONDS = 20.0
"""Seconds for the comparison of a run's files with their original state."""
HURRIED_SECONDS = 5.0
"""The same limit, from the time the run is asked to stop."""


def of_files(facts: Facts, *, known: bool = True) -> dict[str, Any]:
    """Returns the result's fields about files. ``known``: whether these could be read."""
    return {
        "files_modified": [change.path for change in facts.changes],
        "file_changes": [*facts.changes],
        "truncated": bool(facts.left_out) or not known,
        "left_out": [*facts.left_out, *facts.not_copied],
        "ignored_files": [*facts.ignored],
        "ignored_count": facts.ignored_count,
    }


async def collect_outputs(
    workspace: Workspace,
    stop: StopSignal,
    seconds: float = ENDING_SECONDS,
    *,
    hurried: float = HURRIED_SECONDS,
    restored: Collection[str] = (),
    most: int = sys.maxsize,
    mask: Callable[[str], str] = str,
) -> tuple[RunOutputs, Facts]:
    """Collects the outputs from the workspace within the time limit; a request to stop shortens it to ``hurried``.

    ``restored``: paths that checks have put back; ``most``: bytes of patch and artifacts; ``mask``: for binary files.
    """
    deadline = Deadline(seconds)

    async def hurry_when_stopped() -> None:
        await stop.wait()
        deadline.shorten(hurried)

    def collect() -> tuple[RunOutputs, Facts]:
        artifacts = Artifacts(workspace.files)
        latest = artifacts.latest_versions()
        kept = fields_of(latest, artifacts.contents(latest, most))
        facts = with_masked_binaries(workspace.compare(deadline, min(MAX_PATCH_BYTES, most), restored), mask)
        return RunOutputs(of_files(facts), facts.patch, latest, kept, workspace.disk_bytes()), facts

    hurry = asyncio.create_task(hurry_when_stopped())
    try:
        return await run_short(collect)
    finally:
        hurry.cancel()
        await asyncio.wait({hurry})


async def files_left(services: Services, claim: Claim) -> Workspace | None:
    """Opens the workspace of the earlier attempts, for an attempt that ends before it opened one itself.

    Returns None where nothing can have changed. Raises ``OSError`` where files may have changed but are unreachable.
    """
    if claim.is_first:
        return None
    try:
        return await Workspace.open(claim.id, services.settings.workspaces)
    except FileNotFoundError:
        if claim.touched_files:
            raise
        return None


async def discard_files(services: Services, claim: Claim, check_fence: Callable[[], Awaitable[None]]) -> None:
    """Deletes what the failed try left, before this one begins: its conversation knows nothing of it.

    Without a history no worker has begun it. A merge begins anew with each attempt. ``check_fence`` raises ``Fenced``
    for an attempt that comes too late.
    """
    folder = services.settings.workspaces / claim.id
    again = claim.past.retries or (claim.request.merges and not claim.is_first)
    if not again or claim.history or not await run_in_thread(folder.exists):
        return
    await check_fence()
    aside = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):  # an attempt whose claim is lost has done it
        await run_in_thread(lambda: delete(folder.rename(aside)))
