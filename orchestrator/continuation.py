"""Requests that follow a finished delegation: one that continues it, and one that repeats it."""

from __future__ import annotations

from collections.abc import Mapping

from deputize.shared.delegation import Delegation
from deputize.shared.errors import Conflict, Invalid
from deputize.shared.request import DelegationRequest, Limits
from deputize.shared.runs.record import files_gone, nothing_to_continue
from deputize.shared.runs.store import RunStore
from deputize.shared.settings import Settings


def continued_request(earlier: Delegation, text: str, limits: Limits | None = None) -> DelegationRequest:
    """Returns the request to go on with a delegation: its own fields, but for the task and, if given, the limits.

    Raises Conflict while it is not finished, and Invalid for a blank text.
    """
    _check_finished(earlier, "continued")
    if not text.strip():
        detail = "the text is blank; say in words what is to be done now"
        raise Invalid(detail, [{"pointer": "/text", "detail": detail}])
    asked = {"task": text, "context": "", "expected_outcome": "", "continues": earlier.id, "retry_of": None}
    return _standalone(earlier.request, asked | ({"limits": limits} if limits else {}))


def repeated_request(earlier: Delegation) -> DelegationRequest:
    """Returns the request to do a delegation's task again. Raises Conflict while it is not finished."""
    _check_finished(earlier, "retried")
    return _standalone(earlier.request, {"retry_of": earlier.id})


async def check_continued(store: RunStore, request: DelegationRequest, settings: Settings) -> None:
    """Raises NotFound, Conflict or Invalid where the delegation that the request continues cannot be continued."""
    if request.continues is None:
        return
    earlier = await store.get(request.continues)
    _check_finished(earlier, "continued")
    for name in ("model", "tool_call_style"):
        if getattr(request, name) != getattr(earlier.request, name):
            pointer = f"/{DelegationRequest.model_fields[name].alias}"
            detail = f"differs from that of {earlier.id}, whose conversation only the same one can continue"
            raise Invalid(f"{pointer}: {detail}", [{"pointer": pointer, "detail": detail}])
    if not (await store.conversation(earlier.id))[0]:
        raise Conflict(nothing_to_continue(earlier.id))
    if settings.local and not (settings.workspaces / earlier.id).exists():
        raise Conflict(files_gone(earlier.id))


def _standalone(request: DelegationRequest, changed: Mapping[str, object]) -> DelegationRequest:
    """Returns the request with these changes, outside a parent's run and without the key of the first one."""
    return request.model_copy(update={"parent_id": None, "idempotency_key": None, **changed})


def _check_finished(earlier: Delegation, what: str) -> None:
    if not earlier.status.finished:
        raise Conflict(
            f"{earlier.id} is {earlier.status}, so it cannot be {what} yet; wait for its end "
            f"(`deputize watch {earlier.id}`) or cancel it"
        )
