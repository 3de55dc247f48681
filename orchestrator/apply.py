"""Applies the patch of a delegation: it is merged into a directory of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..shared.errors import Conflict, Invalid, NotFound, Refused

if TYPE_CHECKING:
    from ..shared.delegation import Delegation
    from ..shared.patch_format import PatchPart
    from ..shared.patches.merge import MergePlan
    from .operations import Service

MAX_MERGED_BYTES = 16 * 1024 * 1024
"""Bytes of one file that is fetched for a merge; a patch holds none that is larger."""


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options beside writing the changes of the patch."""

    check: bool = False
    reverse: bool = False
    with_ignored: bool = False
    with_protected: bool = False
    """Also what the checks have put back."""


NO_OPTIONS = ApplyOptions()


def directory_here(path: str | Path) -> Path:
    """Returns the absolute path. Raises Invalid unless it is a directory of this machine."""
    if not (folder := Path(path).absolute()).is_dir():
        raise Invalid(f"{folder} is not a directory on this machine")
    return folder


async def take_over(
    service: Service, delegation: Delegation, folder: Path, how: ApplyOptions = NO_OPTIONS
) -> MergePlan:
    """Applies the patch of a finished delegation to the directory, unless it is only a check or a file is refused."""
    from ..shared.patch_format import blob_id, parse_patch, without
    from ..shared.patches.directory import Directory as Target
    from ..shared.patches.merge import MergePlan, content_in_git

    if delegation.result is None:
        raise Conflict(f"{delegation.id} is not finished yet ({delegation.status}); `deputize watch` waits for it")
    left_out = left_behind(delegation, how)
    parts = parse_patch(without(await service.patch(delegation.id), left_out))
    if how.with_ignored:
        parts += await _ignored_parts(service, delegation.id, delegation.result.ignored_files)
    if how.reverse:
        parts = [part.reversed() for part in reversed(parts)]
    with Target(folder) as target:
        known: dict[str, bytes] = {}
        plan = MergePlan(target, lambda blob: known[blob] if blob in known else content_in_git(folder, blob))
        for path, old in plan.unknown_contents(parts):
            if (data := await _content(service, delegation.id, path, base=old is not how.reverse)) is not None:
                known[blob_id(data)] = data
        plan.add(parts, () if how.reverse else await _earlier_parts(service, delegation, parts, left_out))
        if not how.check and not plan.refused and plan.applied:
            plan.write()
    return plan


def left_behind(delegation: Delegation, how: ApplyOptions) -> list[str]:
    """Returns the changed paths that are not taken over, as the checks have put them back."""
    return [] if how.with_protected or delegation.result is None else delegation.result.verification.restored


async def _earlier_parts(
    service: Service, delegation: Delegation, parts: Sequence[PatchPart], left_out: Sequence[str]
) -> list[PatchPart]:
    """Returns the parts of the patches that the delegation's patch contains or replaces, the last one first."""
    from ..shared.patch_format import parse_patch, without

    found: list[PatchPart] = []
    paths = {part.path for part in parts}
    while earlier := delegation.request.builds_on:
        repeats = delegation.request.from_turn
        try:
            delegation, patch = await service.get(earlier), await service.patch(earlier)
        except NotFound:
            break  # it was pruned
        found += [part for part in reversed(parse_patch(without(patch, left_out))) if not repeats or part.path in paths]
    return found


async def _ignored_parts(service: Service, id: str, paths: Sequence[str]) -> list[PatchPart]:
    """Returns the new ignored files as parts of a patch, but those that are out of reach: links and very large ones."""
    from ..shared.patch_format import check_path, created_part

    files = {file.path: file for file in (await service.files(id)).items if file.kind == "file"}
    found: list[PatchPart] = []
    for path in paths:
        file = files.get(path)
        check_path(file.name if file else path)
        if file is not None and (data := await _content(service, id, file.name, base=False)) is not None:
            found.append(created_part(file.name, data, executable=file.executable))
    return found


async def _content(service: Service, id: str, path: str, *, base: bool) -> bytes | None:
    """Returns the content of a file of the run, from its start or its end; None where it is out of reach."""
    data = bytearray()
    try:
        async with aclosing(service.file(id, path, base=base)) as chunks:
            async for chunk in chunks:
                data += chunk
                if len(data) > MAX_MERGED_BYTES:
                    return None
    except (Refused, UnicodeEncodeError):
        return None
    return bytes(data)
