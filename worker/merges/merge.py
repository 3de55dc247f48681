"""A run that merges the results of others, without a model: it lays the merged files out, and checks them.

Where they fail although each result passed alone, subsets are merged and checked until it is known which ones fail
together. Each attempt begins anew: a merge of the same results is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from ...shared.delegation import Delegation, TerminationReason, ToolAgentResult
from ...shared.events import ProgressMade
from ...shared.facts import Incompatible, MergeConflict, MergeFacts, Trust, Verification
from ...shared.patches.directory import Directory
from ...shared.patches.merge import MergePlan
from ...shared.patches.siblings import Side, left_out_of, merged, results_of
from ...shared.runs.store import RunStore
from ...shared.text import count
from ...shared.wording import put_back
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..core.run_context import RunContext
from ..core.without_model import done_within
from ..policy.trust import ReadSources
from ..threads import run_in_thread
from ..toolkit.offer import RunOffer
from ..verification.own_checks import CheckKinds
from ..verification.rounds import with_verdict
from ..verification.verifier import Verifier
from ..workspace.laid_out import lay_out
from ..workspace.workspace import Workspace
from .culprits import Search
from .turned_green import TurnedGreen

_PASSING = ("evidence", "no_regression", "improved", "preexisting")


class MergePart(Part):
    """Does the work of a run that merges results, in place of a model."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._merge: Merge | None = None

    async def begin(self, work: Work) -> RunOutcome:
        run, kinds = self._attempt.context, self._attempt.services.checks
        self._merge = merge = Merge(run, self._attempt.reading, self._attempt.offer, self._attempt.workspace, kinds)
        try:
            return await done_within(run, work, merge.work(self._attempt.services.store), "results were merged")
        finally:
            self._attempt.verification = merge.verification

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        result = with_verdict(result, self._attempt)
        return result.model_copy(update={"merge": self._merge.facts}) if self._merge else result


@dataclass(slots=True)
class Merge:
    """One merge. What is known when its time is over is in ``facts`` and ``verification``."""

    run: RunContext
    reading: ReadSources
    offer: RunOffer
    workspace: Workspace
    kinds: CheckKinds
    """Kinds of checks that the worker was started with."""
    conflicts: list[MergeConflict] = field(default_factory=list[MergeConflict])
    incompatible: list[Incompatible] = field(default_factory=list[Incompatible])
    compatible: list[str] | None = None
    verification: Verification | None = None
    _sides: Mapping[str, Side] = field(default_factory=dict[str, Side])
    _paths: Collection[str] = ()
    """All paths that any of the results changes."""

    @property
    def facts(self) -> MergeFacts:
        return MergeFacts(
            conflicts=self.conflicts,
            incompatible=self.incompatible,
            compatible=self.compatible,
            left_out=left_out_of(self._sides.values()),
        )

    async def work(self, store: RunStore) -> RunOutcome:
        """Merges and checks. Raises what ``results_of`` does, and Invalid where the project cannot be set up."""
        claim = self.run.claim
        ids = [*dict.fromkeys(claim.request.merges)]
        delegations, sides = await results_of(
            store, ids, checked=bool(claim.request.verify), with_protected=claim.request.merge_with_protected
        )
        self._sides = {side.id: side for side in sides}
        read = [each.result.trust for each in delegations if each.result]
        self.reading.begin(reduce(Trust.plus, read).handed_on())
        plan, self.conflicts = await run_in_thread(self._planned, ids)
        if self.conflicts:
            why = f"nothing was merged: {count(len(self.conflicts), 'conflict')}"
            self.run.report_error(why, "merge")
            return RunOutcome(TerminationReason.REFUSED, why)
        self._paths = plan.states.keys()
        await self._lay_out(ids)
        words = f"Merged {count(len(ids), 'result')}: {count(len(self._paths), 'file')}."
        if left_out := self.facts.left_out:
            words = f"{words} Left out: {put_back(left_out)}."
        self._report(words)
        if claim.request.verify:
            await self.offer.project_tools(claim, self.workspace, self._report)
            words = f"{words} {await self._check(ids, delegations)}".strip()
        await self.workspace.note_changes()
        return RunOutcome(TerminationReason.COMPLETED, words)

    def _planned(self, ids: Collection[str]) -> tuple[MergePlan, list[MergeConflict]]:
        with Directory(self.workspace.base) as base:
            return merged(base, [self._sides[id] for id in ids])

    async def _lay_out(self, ids: Collection[str]) -> None:
        """Makes the files those of the merge of these results."""
        await lay_out(self.workspace, [self._sides[id] for id in ids], self._paths)

    async def _check(self, ids: Sequence[str], delegations: Sequence[Delegation]) -> str:
        """Checks the merge of all; where it fails, finds out why. Returns what a summary states of that."""
        async with Verifier(self.run, self.offer, self.workspace, kinds=self.kinds) as verifier:
            return await self._check_by(verifier, ids, delegations)

    async def _check_by(self, verifier: Verifier, ids: Sequence[str], delegations: Sequence[Delegation]) -> str:
        green = TurnedGreen.of(delegations)
        self.verification = green.kept_in(ids, await verifier.verify())
        if self.verification.verdict != "refuted":
            return ""
        self.run.report_error(f"the merged files fail the checks: {why_of(self.verification)}", "verification")
        try:
            await self._search(ids, verifier, delegations, green)
        finally:
            await self._lay_out(ids)
        return self._found()

    async def _search(
        self, ids: Sequence[str], verifier: Verifier, delegations: Sequence[Delegation], green: TurnedGreen
    ) -> None:
        """Finds out which results fail together, and which pass without one of each group."""
        asked, first = self.run.claim.request.verify, self.verification or Verification()
        whys = {frozenset(ids): why_of(first)}

        async def check(chosen: frozenset[str]) -> str:
            await self._lay_out([id for id in ids if id in chosen])
            found = green.kept_in(chosen, await verifier.verify())
            whys[chosen] = why_of(found)
            end = "fail" if whys[chosen] else "pass"
            self._report(f"{len(chosen)} of {count(len(ids), 'result')} together {end} the checks")
            return whys[chosen] and f"{whys[chosen]}\n{_printed(found)}"

        alone = [frozenset([each.id]) for each in delegations if each.request.verify == asked and _passed(each)]
        sides = [self._sides[id] for id in ids]
        search = Search(sides, check, [frozenset[str](), *alone], [frozenset(ids)], _printed(first))
        left = [*ids]
        async for found in search.groups():
            why = whys.get(frozenset(found), "")
            self.incompatible.append(Incompatible(ids=sorted(found, key=ids.index), checks=search.checks, why=why))
            left.remove(found[0])
        self.compatible = left

    def _found(self) -> str:
        groups = "; ".join(" with ".join(each.ids) for each in self.incompatible)
        return f"They fail the checks. Incompatible: {groups}. {len(self.compatible or ())} of them pass together."

    def _report(self, message: str) -> None:
        self.run.emit.emit(ProgressMade(message=message))


def why_of(verification: Verification) -> str:
    """Returns why the checks refute a result; nothing where they do not."""
    refuting = [check.why for check in verification.checks if check.outcome in ("refuted", "tampered")]
    return "; ".join(refuting) if verification.verdict == "refuted" else ""


def _printed(verification: Verification) -> str:
    return "\n".join(check.output_tail for check in verification.checks)


def _passed(delegation: Delegation) -> bool:
    checks = delegation.result.verification.checks if delegation.result else []
    return bool(checks) and all(check.outcome in _PASSING for check in checks)
