"""Delegations: hand over, look at, list, cancel, prune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from fastapi import Depends, Header, Path, Query
from pydantic import ConfigDict, Field, field_validator, model_validator
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from ...shared.compound_requests import Batch, MergeRequest
from ...shared.delegation import Delegation, Status
from ...shared.disk_usage import Pruned
from ...shared.errors import Conflict, Invalid, TooLarge
from ...shared.limits import Limits
from ...shared.message import MAX_MESSAGE_BYTES, MessageRequest, SentMessage
from ...shared.request import MAX_ENTRIES, MAX_REQUEST_BYTES, DelegationRequest, Deliver
from ...shared.text import count
from ...shared.webhooks import Webhook
from ...shared.wire import Request
from ..access_tokens import RequestNote, name_of_caller
from ..dependencies import MAX_BATCH_VALUES, Note, Service, body_of, document, one_key
from ..operations import AcceptedDelegation, Items, MergeReport, PageOf
from ..parameters import Bytes, Cursor, DelegationId, Key, Name, PageSize, Positive, Seconds
from ..scopes import Scope
from ..sse import until_disconnect
from .handlers import Id, handles, may_read, shown

MAX_BATCH_BYTES = 64 * 1024 * 1024
MAX_WAIT_SECONDS = 60.0
MAX_PRUNE_BYTES = 4096
MAX_MESSAGE_BODY_BYTES = 6 * MAX_MESSAGE_BYTES + 1024
"""In JSON a byte may take six."""

REPLAYED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Accepted before, with the same key and body", "model": Delegation}
}

_KEY = "A repeated request with the same key returns the first delegation instead of a second one."
KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255, description=_KEY)]


class Filter(Request):
    """Base class of query parameters: FastAPI reads their descriptions from their docstrings."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class DelegationFilter(Filter):
    """What to list, newest first."""

    status: Status | None = None
    """Only those with this status."""
    session: Name | None = None
    """Only those that were submitted with this ``sessionId``."""
    parent: DelegationId | None = None
    """Only those that were submitted with this ``parentId``, as long as the record of that one is kept."""
    label: list[str] = Field(default_factory=list, max_length=MAX_ENTRIES)
    """``key:value``; given more than once, all must match."""
    limit: PageSize = 50
    """The most delegations of a page."""
    cursor: Cursor | None = None
    """The ``nextCursor`` of the previous page."""
    for_review: bool = False
    """Only those that ended with changed files, in the order in which they are worth a review."""

    @field_validator("label")
    @classmethod
    def _pairs(cls, labels: list[str]) -> list[str]:
        for label in labels:
            if ":" not in label:
                raise ValueError(f"{label!r} is not key:value")
        return labels

    @model_validator(mode="after")
    def _one_page_for_review(self) -> Self:
        if self.for_review and self.cursor:
            raise ValueError("a list for a review has one page; leave out forReview or the cursor")
        return self


class Prune(Request):
    """What to remove: finished delegations of an age, or as many as it takes to keep only so many bytes of files."""

    older_than_seconds: Seconds | None = None
    """Only those that ended this many seconds ago. Null: with `keepBytes` all, else the service's setting."""
    keep_bytes: Bytes | None = None
    """Only as many of them, those that ended first, as it takes until the files of the others take no more bytes than
    this on disk. Null: all of them."""
    dry_run: bool = False
    """Whether it is only reported what would be removed."""


@handles("create", responses=REPLAYED, openapi_extra=document(DelegationRequest))
async def create_delegation(
    service: Service,
    request: Annotated[DelegationRequest, Depends(body_of(DelegationRequest, MAX_REQUEST_BYTES))],
    response: Response,
    note: Note,
    header: KeyHeader = None,
) -> Delegation:
    """Submits a task. The same Idempotency-Key with the same body returns the first delegation again."""
    key = one_key(request.idempotency_key, header)
    if key != request.idempotency_key:
        request = request.model_copy(update={"idempotency_key": key})
    _check_after([request], note)
    return located(await service.create(request), response, note)


def _check_after(requests: Sequence[DelegationRequest], note: RequestNote) -> None:
    """Raises ScopeMissing where a request would read the results of others, and its token may not."""
    if note.caller and any(request.after for request in requests):
        note.caller.check({Scope.READ})


def located(accepted: AcceptedDelegation, response: Response, note: RequestNote) -> Delegation:
    """Returns the delegation; the headers of the response show where it is and whether it was accepted before."""
    response.headers["Location"] = f"/v1/delegations/{accepted.delegation.id}"
    if accepted.replayed:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return shown(accepted.delegation, note)


@handles("create_many", openapi_extra=document(Batch))
async def create_delegations(
    service: Service,
    batch: Annotated[Batch, Depends(body_of(Batch, MAX_BATCH_BYTES, MAX_BATCH_VALUES))],
    note: Note,
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", include_in_schema=False)] = None,
) -> Items:
    """Submits up to 1,000 tasks; all are accepted or none."""
    if idempotency_key is not None:
        raise Invalid("a batch has no Idempotency-Key; give each request in it its own idempotencyKey")
    requests = batch.each()
    _check_after(requests, note)
    # A shared context is sent once but kept with each request.
    if (whole := sum(len(request.context) for request in requests)) > MAX_BATCH_BYTES:
        raise TooLarge(f"with sharedContext in each, the contexts have {whole:,} characters, over {MAX_BATCH_BYTES:,}")
    return Items(items=[shown(each, note) for each in await service.create_many(requests)])


@handles("prune", openapi_extra=document(Prune))
async def prune_delegations(
    service: Service, wanted: Annotated[Prune, Depends(body_of(Prune, MAX_PRUNE_BYTES))], note: Note
) -> Pruned:
    """Removes the records of finished delegations, and asks the workers to remove their files. Others stay."""
    pruned = await service.prune(wanted.older_than_seconds, wanted.keep_bytes, dry_run=wanted.dry_run)
    note.ids += [] if wanted.dry_run else pruned.ids
    return pruned


@handles("list")
async def list_delegations(service: Service, wanted: Annotated[DelegationFilter, Query()]) -> PageOf:
    """Lists delegations, newest first, long texts cut. ``nextCursor`` is the next page's cursor, null on the last.

    With ``forReview`` those that ended with changed files, of the newest 500 that succeeded and the newest 500 that
    failed: by verdict and number of warnings, then by changed lines. ``reasons`` names the warnings; there is one page.
    """
    return await service.list(
        status=wanted.status,
        session=wanted.session,
        parent=wanted.parent,
        labels=dict(label.split(":", 1) for label in wanted.label),
        limit=wanted.limit,
        cursor=wanted.cursor,
        for_review=wanted.for_review,
    )


@handles("get")
async def get_delegation(
    service: Service,
    id: Id,
    http: HttpRequest,
    wait: Annotated[Seconds, Query(description="Seconds to wait for its end, at most 60 count.")] = 0,
) -> Delegation:
    """Returns the delegation; with ``wait`` as soon as it is finished, or after that many seconds (at most 60)."""
    if not wait:
        return await service.get(id)
    with http.app.state.slots.acquire(name_of_caller(http.scope)):
        return await until_disconnect(http.receive, service.get(id, min(wait, MAX_WAIT_SECONDS)))


@handles("send", openapi_extra=document(MessageRequest))
async def send_message(
    service: Service,
    id: Id,
    message: Annotated[MessageRequest, Depends(body_of(MessageRequest, MAX_MESSAGE_BODY_BYTES))],
    note: Note,
) -> SentMessage:
    """Sends a message to a delegation, which its model reads before its next turn, once; `message_read` is the receipt.

    With the mode `wrapUp` the work ends: no further tool calls, and one last turn for the report; a second request is
    without effect. 409 where the work has ended, 429 where 20 messages are unread.
    """
    note.ids.append(id)
    return await service.send(id, message.text, message.mode, by=note.token)


class PatchResponse(Response):
    media_type = "text/x-diff"


@handles("patch", response_class=PatchResponse)
async def get_patch(service: Service, id: Id) -> PatchResponse:
    """Returns the changes in the workspace as a unified diff in git's format."""
    return PatchResponse(await service.patch(id))


@handles("artifact", response_class=PlainTextResponse)
async def get_artifact(
    service: Service,
    id: Id,
    name: Annotated[str, Path(description="The name of the artifact.", examples=["report.md"])],
    version: Annotated[Positive | None, Query(description="Null: the latest one.")] = None,
) -> PlainTextResponse:
    """Returns an artifact of the run, by default its latest version."""
    return PlainTextResponse(await service.artifact(id, name, version))


MAX_RETRY_BYTES = 4096


class Continue(Request):
    """A further task, in the conversation and the files of a finished delegation."""

    text: str = Field(min_length=1)
    """The further task."""
    limits: Limits | None = None
    """Null: those that the finished delegation was given."""
    idempotency_key: Key | None = None
    """A repeated request with the same key returns the first delegation instead of a second one."""


class Retry(Request):
    """How a finished delegation is done again."""

    from_turn: Positive | None = None
    """The turn of its run to begin with; conversation and files are as they were before it. Null: from the start."""
    idempotency_key: Key | None = None
    """A repeated request with the same key returns the first delegation instead of a second one."""


@handles("continue_", responses=REPLAYED, openapi_extra=document(Continue))
async def continue_delegation(
    service: Service,
    id: Id,
    wanted: Annotated[Continue, Depends(body_of(Continue, MAX_REQUEST_BYTES))],
    response: Response,
    note: Note,
    header: KeyHeader = None,
) -> Delegation:
    """Submits a new delegation that goes on with a finished one: its conversation, its files, limits of its own.

    409 while the earlier one is not finished, and where its conversation or its files are gone.
    """
    key = one_key(wanted.idempotency_key, header)
    return located(await service.continue_(id, wanted.text, wanted.limits, idempotency_key=key), response, note)


@handles("retry", responses=REPLAYED, openapi_extra=document(Retry, required=False))
async def retry_delegation(
    service: Service,
    id: Id,
    wanted: Annotated[Retry, Depends(body_of(Retry, MAX_RETRY_BYTES, required=False))],
    response: Response,
    note: Note,
    header: KeyHeader = None,
) -> Delegation:
    """Submits the request of a finished delegation again, as a new one, from the start or from a turn of its run.

    409 while it is not finished, and where its files from before that turn are not kept.
    """
    key = one_key(wanted.idempotency_key, header)
    return located(await service.retry(id, from_turn=wanted.from_turn, idempotency_key=key), response, note)


@handles("deliver", openapi_extra=document(Deliver, required=False))
async def deliver_delegation(
    service: Service,
    id: Id,
    wanted: Annotated[Deliver, Depends(body_of(Deliver, MAX_REQUEST_BYTES, required=False))],
    note: Note,
) -> Delegation:
    """Pushes the changes of a finished delegation as a new branch to the repository that it was cloned from.

    Without fields as its request asks. At most once: what is delivered already is returned as it is. 409 where nothing
    can be delivered, or it is delivered as another branch.
    """
    return shown(await service.deliver(id, wanted if wanted.model_fields_set else None), note)


ONLY_REPORTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "A dry run, or there are conflicts", "model": MergeReport}
}


@handles("merge", responses=ONLY_REPORTED, openapi_extra=document(MergeRequest))
async def merge_delegations(
    service: Service,
    wanted: Annotated[MergeRequest, Depends(body_of(MergeRequest, MAX_REQUEST_BYTES))],
    response: Response,
    note: Note,
    header: KeyHeader = None,
) -> MergeReport:
    """Merges the results of finished delegations over the same files, all or none, as a delegation without a model.

    Where two exclude each other, the conflicts are returned, and nothing is merged. 409 where one is not finished,
    began with other files or is not complete, and where the files that it began with are gone.
    """
    key = one_key(wanted.idempotency_key, header)
    report = await service.merge(wanted.model_copy(update={"idempotency_key": key}))
    note.ids += wanted.ids
    made = report.delegation and located(AcceptedDelegation(report.delegation, replayed=False), response, note)
    response.status_code = 202 if made else 200
    if may_read(note):
        return report.model_copy(update={"delegation": made})
    if report.conflicts:
        conflicts = count(len(report.conflicts), "conflict")
        raise Conflict(f"nothing was merged: {conflicts}; a token with the scope read can list them")
    return MergeReport(conflicts=[], files=[], delegation=made)


@handles("try_webhook", openapi_extra=document(Webhook))
async def test_webhook(
    service: Service, webhook: Annotated[Webhook, Depends(body_of(Webhook, MAX_REQUEST_BYTES))], note: Note
) -> Delegation:
    """Notifies a webhook of the end of a new delegation, which is cancelled before it begins."""
    return shown(await service.try_webhook(webhook), note)
