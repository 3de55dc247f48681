"""Merges: what can be found out of one without running anything, and the request of the one that is carried out."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..shared.errors import Conflict
from ..shared.facts import MergeConflict
from ..shared.patch_format import printable_path
from ..shared.patches.directory import Directory
from ..shared.patches.siblings import Side, merged, results_of
from ..shared.request import DelegationRequest, Limits, MergeRequest
from ..shared.runs.record import files_gone
from ..shared.runs.store import RunStore
from ..shared.settings import Settings
from ..shared.workspaces import BASE
from .service import MergeReport


async def planned(
    store: RunStore, settings: Settings, wanted: MergeRequest
) -> tuple[MergeReport, DelegationRequest | None]:
    """Returns what the merge would be, and the request that carries it out, unless there are conflicts.

    Raises NotFound and Conflict as ``results_of`` does, and Conflict where the files are out of this service's reach.
    """
    (first, *_), sides = await results_of(store, wanted.distinct)
    report = await asyncio.to_thread(_planned, settings.workspaces / first.id, sides)
    return report, None if report.conflicts or wanted.dry_run else merge_request(first.request, wanted)


def _planned(folder: Path, sides: list[Side]) -> MergeReport:
    try:
        base = Directory(folder / BASE)
    except OSError:
        raise Conflict(files_gone(folder.name)) from None
    with base:
        plan, conflicts = merged(base, sides)
    return MergeReport(conflicts=conflicts, files=sorted(map(printable_path, plan.states)))


def merge_request(first: DelegationRequest, wanted: MergeRequest) -> DelegationRequest:
    """Returns the request of the delegation that carries the merge out, in the sandbox of the ``first`` one."""
    ids = wanted.distinct
    return DelegationRequest(
        task=f"Merge {', '.join(ids)}",
        agent=first.agent,
        workspace=first.workspace,
        merges=ids,
        verify=wanted.verify,
        protect=wanted.protect,
        limits=Limits(timeout_seconds=wanted.timeout_seconds),
        idempotency_key=wanted.idempotency_key,
    )


def without_texts(report: MergeReport, instead: str) -> MergeReport:
    """Returns the report for those who may not read what delegations changed: which of them exclude each other."""
    conflicts = [
        MergeConflict(path=instead, sides=[side.model_copy(update={"text": ""}) for side in each.sides])
        for each in report.conflicts
    ]
    return MergeReport(conflicts=conflicts, files=[], delegation=report.delegation)
