"""The merge of several results from the same start: one plan for all of them, and the pairs that exclude each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..delegation import Delegation, ToolAgentResult, shortfall_of
from ..errors import Conflict
from ..facts import MergeConflict, MergeSide
from ..patch_format import PatchPart, parse_patch, printable_path, without
from ..runs.store import RunStore
from ..text import clip
from .directory import Directory
from .merge import MergePlan, folders_of, order

MAX_CONFLICTS = 200
MAX_TEXT_CHARS = 2000
"""Of what one side did to one path."""
_CHANGES = ("deleted", "modified", "renamed", "created")


@dataclass(frozen=True, slots=True)
class Side:
    """What one delegation changed."""

    id: str
    parts: Sequence[PatchPart]
    left_out: Sequence[str] = ()
    """Changed paths that its checks put back, and that are not among the parts."""


async def results_of(
    store: RunStore, ids: Sequence[str], *, checked: bool, with_protected: bool = False
) -> tuple[list[Delegation], list[Side]]:
    """Returns finished delegations that began with the same files, and what each of them changed.

    ``checked``: whether the merged files are checked. Else the checks of each one must have found what it requires.
    ``with_protected``: also at protected paths, which their checks have put back.

    Raises NotFound, and Conflict where one is not finished, began with other files, or has an incomplete patch.
    """
    first, *others = delegations = [await store.get(id) for id in ids]
    for each in delegations:
        _check_complete(each)
        if not checked and each.result and (why := shortfall_of(each.request, each.result)):
            raise Conflict(f"{each.id} is not merged without a check: {why}; give `verify`, or leave it out")
    for each in others:
        if _start(each) != _start(first):
            raise Conflict(
                f"{each.id} and {first.id} began with different files ({_start(each)}, {_start(first)}), so there is "
                "nothing that both are changes of; give delegations over one workspace, of a repository one commit"
            )
    sides: list[Side] = []
    for each in delegations:
        left_out = each.result.verification.restored if each.result and not with_protected else []
        sides.append(Side(each.id, parse_patch(without(await store.patch(each.id), left_out)), left_out))
    return delegations, sides


def left_out_of(sides: Iterable[Side]) -> list[str]:
    """Returns the changed paths that are not among the parts of their sides."""
    return sorted({path for side in sides for path in side.left_out})


def _start(delegation: Delegation) -> str:
    git = delegation.result.git if delegation.result else None
    return git.base if git else delegation.request.workspace.to_json()


def _check_complete(delegation: Delegation) -> None:
    result = delegation.result
    if result is None:
        raise Conflict(
            f"{delegation.id} is {delegation.status}, so it cannot be merged yet; wait for its end "
            f"(`deputize watch {delegation.id}`) or leave it out"
        )
    if what := lacking_in_patch(result):
        raise Conflict(f"the patch of {delegation.id} is not complete ({what}): a merge would lose work; leave it out")


def lacking_in_patch(result: ToolAgentResult) -> str:
    """Returns changes that the patch of a result does not have; "" where it is complete."""
    changes = result.file_changes
    lost = [each.path for each in changes if not each.in_patch and each.path.rpartition("/")[2] != ".git"]
    if lost or (result.truncated and all(each.in_patch for each in changes)):
        return "; ".join((lost or result.left_out)[:5]) or "what it lacks is not known"
    return ""


def merged(base: Directory, sides: Sequence[Side]) -> tuple[MergePlan, list[MergeConflict]]:
    """Returns the plan of all changes over the files that they began with, and what excludes each other. Blocks."""
    plan = MergePlan(base)
    refused = [(part, side) for part, side in _ordered(sides) if not plan.take(part)]
    found: dict[tuple[str, ...], MergeConflict] = {}
    for part, side in refused:
        for conflict in _conflicts(base, part, side, [each for each in sides if each is not side]):
            found.setdefault((conflict.path, *sorted(each.id for each in conflict.sides)), conflict)
        if len(found) >= MAX_CONFLICTS:
            break
    return plan, [*found.values()][:MAX_CONFLICTS]


def _ordered(sides: Iterable[Side]) -> list[tuple[PatchPart, Side]]:
    return sorted(((part, side) for side in sides for part in side.parts), key=lambda each: order(each[0]))


def _conflicts(base: Directory, part: PatchPart, side: Side, others: Sequence[Side]) -> Iterator[MergeConflict]:
    """Yields a conflict for each side that alone excludes this part of ``side``, else for that which completes it."""
    mine, *theirs = [near for each in (side, *others) if (near := _near(part, each)).parts]
    path = printable_path(part.path)
    if (why := _refusal(base, [mine])) or not theirs:
        yield MergeConflict(path=path, sides=[_shown(part, mine)], why=why)
        return
    excluding = [each for each in theirs if _refusal(base, [mine, each])]
    together = (each for at, each in enumerate(theirs) if _refusal(base, [*theirs[: at + 1], mine]))
    for each in excluding or [next(together, theirs[-1])]:
        yield MergeConflict(path=path, sides=[_shown(part, mine, each.parts), _shown(part, each, mine.parts)])


def _near(part: PatchPart, side: Side) -> Side:
    """Returns the parts of a side that are about the same paths, what is in them, or what they are in."""
    return Side(side.id, [each for each in side.parts if each is part or _touch(each, part)])


def _touch(one: PatchPart, other: PatchPart) -> bool:
    return any(
        a == b or a in folders_of(b) or b in folders_of(a)
        for a in filter(None, (one.old_path, one.new_path))
        for b in filter(None, (other.old_path, other.new_path))
    )


def _refusal(base: Directory, sides: Sequence[Side]) -> str:
    plan = MergePlan(base)
    for part, _ in _ordered(sides):
        plan.take(part)
    return next(iter(plan.refused.values()), "")


def _shown(part: PatchPart, side: Side, others: Sequence[PatchPart] = ()) -> MergeSide:
    """Returns what a side did to the part's path, or to one near it; of a text that both changed only what is there."""
    did = min(side.parts, key=lambda each: (each.path != part.path, each.old_path != part.old_path))
    ranges = [(hunk.start, hunk.start + len(hunk.old)) for each in others for hunk in each.hunks]
    shared = [
        hunk for hunk in did.hunks if any(hunk.start <= end and at <= hunk.start + len(hunk.old) for at, end in ranges)
    ]
    text = b"".join(sign + line for hunk in shared or did.hunks for sign, line in hunk.lines).decode("utf-8", "replace")
    return MergeSide(id=side.id, change=_CHANGES[order(did)], text=clip(text, MAX_TEXT_CHARS))
