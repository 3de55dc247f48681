"""The delivery of a run's changes over a git repository at its end, where the request asks for it.

It happens before the result is written. A later attempt makes the same commit of the same changes, and finds it there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Event

from ...shared.delegation import TerminationReason, ToolAgentResult, shortfall_of
from ...shared.errors import Invalid, RepositoryFailed
from ...shared.facts import GitFacts
from ...shared.git.delivery import SECONDS, Delivery
from ...shared.git.evidence import RunNotes
from ...shared.git.own import Patience
from ...shared.log import log
from ...shared.request import DelegationRequest
from ...shared.settings import Settings
from ..threads import release_slot, run_in_thread
from .cloned import Cloned
from .patches import Facts


async def deliver_changes(
    request: DelegationRequest,
    settings: Settings,
    result: ToolAgentResult,
    facts: Facts | None,
    notes: RunNotes,
    *,
    mask: Callable[[str], str],
    report: Callable[[str, str], None],
    note: Callable[[str], None],
    check_fence: Callable[[], Awaitable[None]],
) -> GitFacts | None:
    """Returns the result's facts about the repository; None where nothing was cloned from it.

    What prevents a delivery is reported with its kind, and changes nothing else of the result. ``note`` is called where
    nothing was changed. ``mask`` hides secrets in the patch. ``check_fence`` raises for an attempt that is too late.
    """
    id, wanted = result.delegation_id, request.deliver
    try:
        base = (await run_in_thread(Cloned.read, settings.workspaces / id)).commit
    except FileNotFoundError:
        return None
    known = [GitFacts(base=base)]
    if wanted is None or facts is None or result.termination_reason is not TerminationReason.COMPLETED:
        return known[-1]
    if why := shortfall_of(request, result):
        report(f"nothing was delivered: {why}", "delivery")
        return known[-1]
    await check_fence()
    delivery = Delivery.of(result, request, wanted, base, mask(facts.patch), facts.left_out, facts.changes, notes, mask)
    try:
        done = await run_in_thread(_deliver, settings, delivery, Event(), known.append)
        if done.commit is None:
            note(f"nothing was delivered: {delivery.nothing}")
        return done
    except (RepositoryFailed, Invalid, OSError) as error:
        log.warning("the changes were not delivered: %s", error)
        kind = error.kind if isinstance(error, RepositoryFailed) else "delivery"
        report(f"{error}; the work is kept, and {_then(kind, id)}", kind)
        return known[-1]


def _then(kind: str, id: str) -> str:
    """Returns what a later delivery does: only a host that did not answer may answer by itself."""
    if kind == "delivery_workflow":
        return f"`deputize deliver {id} --workflows` delivers it"
    then = "tries it again" if kind == "repository_unreachable" else "delivers it when that is mended"
    return f"`deputize deliver {id}` {then}"


def _deliver(settings: Settings, delivery: Delivery, stop: Event, pushed: Callable[[GitFacts], None]) -> GitFacts:
    release_slot()
    return delivery.run(settings, Patience(stop=stop, seconds=SECONDS), pushed)
