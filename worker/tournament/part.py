"""A run that does its task several times, without a model: each attempt is a child delegation over the same files.

The first verified attempt ends the others. The files of the best one become those of the run, and its verdict, summary
and conversation those of the result, so that whatever acts on a result acts on it. A later attempt of the worker finds
the children again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from hashlib import sha256

from ...shared.connection import retried
from ...shared.delegation import Delegation, Status, TerminationReason, ToolAgentResult, Usage
from ...shared.errors import Conflict, KeyReused, NotFound
from ...shared.events import ProgressMade
from ...shared.facts import VERDICTS, AttemptFacts, TournamentFacts
from ...shared.ids import new_id
from ...shared.limits import Limits
from ...shared.patch_format import parse_patch
from ...shared.patches.siblings import Side, lacking_in_patch
from ...shared.request import Attempts, DelegationRequest, DirectoryWorkspace, GitWorkspace
from ...shared.request_rules import request_of_attempt
from ...shared.runs.record import TOOLS, FilesOf
from ...shared.wire import now
from ..attempts import Attempt
from ..core.limits import LimitReached
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..core.without_model import done_within
from ..subagents.children import Children
from ..threads import run_in_thread
from ..verification.known_verdicts import attempt_key
from ..verification.rounds import with_verdict
from ..workspace.cloned import Cloned
from ..workspace.generation import restore
from ..workspace.laid_out import lay_out
from ..workspace.tree_copy import CopyTally
from ..workspace.workspace import Workspace


class TournamentPart(Part):
    """Does the task of one run several times, in place of a model."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._tournament: Tournament | None = None
        self._taken: Delegation | None = None

    async def begin(self, work: Work) -> RunOutcome:
        return await done_within(self._attempt.context, work, self._play(), "attempts were made")

    async def _play(self) -> RunOutcome:
        run = self._attempt.context
        asked = run.claim.request.attempts
        assert asked
        children = Children(run, self._attempt.services)
        self._tournament = tournament = Tournament(self._attempt, asked, children)
        await children.recall()
        attempt = self._attempt  # what is prepared for this run's files is prepared for those of all attempts
        await attempt.offer.project_tools(run.claim, attempt.workspace, attempt.report_progress)
        with run.waits.without_clock("subagent"):
            await tournament.play()
        for id in await children.end():
            run.report_error(f"attempt {id} was cancelled, and has not reported its usage yet", "subagent")
        if not tournament.ended:
            why = tournament.obstacle or LimitReached(TerminationReason.ERROR, "no attempt was made", None)
            run.report_error(str(why), "limit")
            return RunOutcome(why.reason, f"No attempt has ended by itself: {why}.")
        if tournament.obstacle:
            run.emit.emit(ProgressMade(message=f"not all attempts were made: {tournament.obstacle}"))
        return await self._take(min(tournament.ended, key=rank))

    async def _take(self, best: Delegation) -> RunOutcome:
        """Makes an attempt's files, verdict and words those of this run."""
        run, result = self._attempt.context, best.result
        assert result
        if lacks := lacking_in_patch(result):
            raise Conflict(f"attempt {best.id} is the best one, and its patch is not complete: {lacks}")
        patch, workspace = await retried(partial(self._attempt.services.store.patch, best.id)), self._attempt.workspace
        earlier = await run_in_thread(workspace.changed)  # where a worker was lost while it laid them out
        paths = {part.path for each in earlier.differences for part in each.apart()}
        if await lay_out(workspace, [Side(best.id, parse_patch(patch))], paths):
            raise Conflict(f"attempt {best.id} is the best one, and it began with other files than {run.claim.id}")
        await workspace.note_changes()
        self._taken, self._attempt.verification = best, result.verification
        self._attempt.reading.add(result.trust.read_from(best.id).plus(result.trust))
        for error in () if result.success else result.errors:
            run.report_error(error, "attempt")
        return RunOutcome(result.termination_reason, result.summary, may_pass=False)

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        result = with_verdict(result, self._attempt)
        if self._tournament is None:
            return result
        taken = self._taken.result if self._taken else None
        facts = await self._tournament.facts(taken)
        if taken is None:
            return result.model_copy(update={"tournament": facts})
        await self._keep_conversation(taken.delegation_id)
        of_model = ("output", "output_status", "instructions", "denied_call_count", "only_denied")
        same = {name: getattr(taken, name) for name in of_model}
        return result.model_copy(update={"tournament": facts, **same})

    async def _keep_conversation(self, id: str) -> None:
        """Stores the conversation as that of this run, which a continuation goes on with."""
        emit, claim = self._attempt.context.emit, self._attempt.context.claim
        entries, tools = await retried(partial(self._attempt.services.store.conversation, id))
        if not claim.history:
            for entry in entries:
                emit.store_message(entry.encode())
            emit.set({TOOLS: tools} if tools else {})


@dataclass(slots=True)
class Tournament:
    """The attempts of one run, as far as they have come."""

    attempt: Attempt
    asked: Attempts
    children: Children
    ended: list[Delegation] = field(default_factory=list[Delegation])
    """In the order of their ends."""
    obstacle: LimitReached | None = None
    """Why a further attempt did not begin."""

    async def play(self) -> None:
        """Makes attempts until one is verified, where that suffices, all have ended, or the deadline is reached."""
        waiting, running = deque(range(self.asked.count)), set[asyncio.Task[None]]()
        try:
            while (waiting or running) and not self._is_decided and (left := self._seconds_left) > 0:
                while waiting and len(running) < self.asked.concurrency:
                    running.add(asyncio.create_task(self._try(waiting.popleft())))
                done, running = await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if (waiting or running) and not self._is_decided:
            await self._stop_at_deadline()

    @property
    def _is_decided(self) -> bool:
        results = [each.result for each in self.ended if each.result]
        is_verified = any(each.success and each.verification.verdict == "verified" for each in results)
        return is_verified and self.asked.stop == "verified"

    @property
    def _seconds_left(self) -> float:
        """By the wall clock, so that the time in the queue counts."""
        deadline = self.attempt.context.claim.request.deadline
        return (deadline - now()).total_seconds() if deadline else float("inf")

    async def _stop_at_deadline(self) -> None:
        """Notes the deadline as the obstacle, and attempts that ended while no worker carried this run out."""
        deadline = self.attempt.context.claim.request.deadline
        assert deadline
        self.obstacle = LimitReached(TerminationReason.TIMEOUT, "deadline", f"{deadline.astimezone(UTC):%FT%TZ}")
        known = {each.id for each in self.ended}
        found = await retried(partial(self.attempt.services.store.many, sorted(self.children.known.values())))
        self.ended += [each for each in found if each.status.finished and each.id not in known]

    async def _try(self, number: int) -> None:
        """Begins an attempt, unless that was done, and returns when it has ended."""
        run, known = self.attempt.context, self.children.known
        key = attempt_key(run.claim.id, number + 1)
        try:
            if key not in known:
                await self._begin(number, key)
            if (id := known[key]) in run.meter.lent:
                await self.children.send(id, run.claim.request.title)
            child = await self.children.wait(id, lambda step: None)
        except LimitReached as limit:
            self.obstacle = limit
        except (KeyReused, NotFound):  # its record was removed: it is not made a second time
            run.meter.book(known.get(key, ""), Usage())
        else:
            assert child.result
            run.meter.book(id, child.result.usage)
            self.ended.append(child)
            words = f"attempt {number + 1} of {self.asked.count} ({id}): {child.result.ending}"
            run.emit.emit(ProgressMade(message=words))
        finally:
            self.children.permissions.close(known.get(key, ""))

    async def _begin(self, number: int, key: str) -> None:
        """Hands an attempt over, with a copy of the files as they are. Raises ``LimitReached``."""
        request, id = await self._request(number, key), new_id()
        limits = self._lend(id)
        self.children.known[key] = id  # nothing is awaited since its limits were lent: the shares are right
        root = self.attempt.services.settings.workspaces
        copy = partial(restore, root, FilesOf(self.attempt.context.claim.id), tally=CopyTally())
        (await Workspace.create(request.workspace, id, root, attempt=0, restore=copy)).close()
        await self.children.submit(id, request, limits, self.attempt.trace_of(""))

    async def _request(self, number: int, key: str) -> DelegationRequest:
        claim, workspace = self.attempt.context.claim, self.attempt.workspace
        request = request_of_attempt(claim.request, number, self.attempt.services.settings)
        spec = request.workspace
        if isinstance(spec, DirectoryWorkspace):  # on a machine that does not share this copy it is not another one
            spec = DirectoryWorkspace(kind="directory", path=str(workspace.path), ignored=True)
        elif isinstance(spec, GitWorkspace):
            folder = self.attempt.services.settings.workspaces / claim.id
            spec = spec.model_copy(update={"ref": (await run_in_thread(Cloned.read, folder)).commit})
        return request.model_copy(update={"workspace": spec, "parent_id": claim.id, "idempotency_key": key})

    def _lend(self, id: str) -> Limits:
        """Lends an attempt its limits, of tokens and money an equal share of what is left."""
        meter, left = self.attempt.context.meter, self.asked.count - len(self.children.known)
        tokens, money = meter.tokens_left, meter.money_left
        share = {
            "max_tokens": None if tokens is None else tokens // left,
            "max_cost_usd": None if money is None else money / left,
        }
        lent = meter.lend(id, meter.limits.model_copy(update=share), 1)
        return lent.model_copy(update={"timeout_seconds": meter.limits.timeout_seconds})

    async def facts(self, taken: ToolAgentResult | None) -> TournamentFacts:
        """Returns what became of all attempts that have begun."""
        store = self.attempt.services.store
        found = await retried(partial(store.many, sorted(self.children.known.values())))
        patches = [await retried(partial(store.patch, each.id)) for each in found]
        by_themselves = [each.result for each in found if each.result and each.status is not Status.CANCELLED]
        return TournamentFacts(
            attempts=[facts_of(each, patch) for each, patch in zip(found, patches, strict=True)],
            taken=taken.delegation_id if taken else None,
            winner=taken.delegation_id if taken and taken.success else None,
            passed=sum(each.success for each in by_themselves),
            of=len(by_themselves),
        )


def rank(attempt: Delegation) -> tuple[bool, int, int, int, float, str]:
    """Returns what attempts are ordered by: verdict, protected paths, lines of the changes, cost, and the begin."""
    facts, result = facts_of(attempt, ""), attempt.result
    lines, cost = facts.added_lines + facts.removed_lines, facts.cost_usd
    return (
        not (result and result.success),
        VERDICTS.index(facts.verdict),
        facts.protected,
        lines,
        float("inf") if cost is None else cost,
        attempt.id,
    )


def facts_of(attempt: Delegation, patch: str) -> AttemptFacts:
    request, result = attempt.request, attempt.result
    found, changes = (result.verification, result.file_changes) if result else (None, [])
    return AttemptFacts(
        id=attempt.id,
        model=request.model,
        effort=request.effort,
        verdict=found.verdict if found else "unverified",
        ending=result.ending if result else attempt.status.value,
        patch=sha256(patch.encode()).hexdigest(),
        protected=len(found.restored) + len(found.released) if found else 0,
        added_lines=sum(each.added_lines for each in changes),
        removed_lines=sum(each.removed_lines for each in changes),
        cost_usd=result.usage.cost_usd if result else None,
    )
