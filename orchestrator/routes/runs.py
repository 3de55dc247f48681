"""Runs as they go: their events, resumable, what waits for permission, and files, those that runs begin with, too."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from contextlib import aclosing
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Header, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from ...shared.errors import Invalid
from ...shared.permission import PermissionReply, PermissionRequest
from ...shared.runs.notification import Notification
from ...shared.runs.permission_fields import delegation_of
from ...shared.wire import Wire
from ..dependencies import Note, Service, body_chunks, body_of, document
from ..parameters import MAX_SEQ, DelegationId, Position
from ..sse import EventStream, event_json
from ..uploads import Upload
from ..workspace_files import FileList
from .delegations import Filter
from .handlers import Id, handles

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`event:` is the type, `data:` one line of JSON; `id:` the seq, where one can resume from it",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
ENDED: dict[int | str, dict[str, Any]] = {
    204: {"description": "The run has ended, and no event follows; EventSource stops"}
}
LIST = {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}}}


async def _position(
    after: Annotated[Position, Query(description="Only events whose `seq` is above this number.")] = 0,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="The same as `after`, which it overrides.")
    ] = None,
) -> int:
    """Returns the position to resume from. A browser that reconnects repeats the old query, so the header wins."""
    if not last_event_id:
        return after
    if not (last_event_id.isdecimal() and len(last_event_id) < len(str(MAX_SEQ))):
        detail = f"{last_event_id!r} is not the id of an event; ids are numbers from 1"
        raise Invalid.at("/header/Last-Event-ID", detail)
    return int(last_event_id)


Lines = Annotated[
    bool,
    Query(
        description="Whether an event has its line for people, too, as `line`, and as `state` what it changes: the "
        "`status` of its delegation, and what that does `now`."
    ),
]


@handles(
    "events",
    response_class=EventStream,
    responses={**STREAM, **ENDED},
    openapi_extra={"responses": {"200": {"content": {"application/json": LIST}}}},
)
async def stream_events(
    service: Service, id: Id, request: Request, after: Annotated[int, Depends(_position)], lines: Lines = False
) -> Response:
    """Streams all events after ``after`` or Last-Event-ID, then live ones until ``run_finished``.

    With ``Accept: application/json`` it returns the stored events as a list.
    """
    accepted = request.headers.get("accept", "")
    if "application/json" in accepted and "text/event-stream" not in accepted:
        stored = await service.events(id, after)
        items = ",".join(event_json(envelope, lines) for envelope in stored)
        return Response(f"[{items}]", media_type="application/json")
    delegation = await service.get(id)  # raises NotFound before the status line is sent
    if after and delegation.status.finished and not await service.events(id, after):
        return Response(status_code=204)
    return EventStream(service.follow(id, after), request.app.state.slots, lines=lines)


@handles("follow_all", response_class=EventStream, responses=STREAM)
async def stream_all_events(service: Service, request: Request, lines: Lines = False) -> Response:
    """Streams new events of all delegations, without ids: the stream cannot be resumed."""
    return EventStream(service.follow_all(), request.app.state.slots, numbered=False, lines=lines)


PermissionId = Annotated[
    str,
    Path(
        alias="permissionId",
        description="The id of the permission request.",
        examples=["prm_01k9zxv3q8h4t7m2n5p6r8s9ta_0a1b2c3d"],
    ),
]
MAX_ANSWER_BYTES = 2 * 1024 * 1024


class PermissionItems(Wire):
    items: list[PermissionRequest]
    """The permission requests, the oldest first."""


class PermissionFilter(Filter):
    """Which requests to list."""

    delegation: DelegationId | None = None
    """Only those of this delegation and of those that it submitted itself."""


@handles("permissions")
async def list_permissions(service: Service, wanted: Annotated[PermissionFilter, Query()]) -> PermissionItems:
    """Lists the calls that wait for a person's answer, the oldest first."""
    return PermissionItems(items=await service.permissions(wanted.delegation))


@handles("answer_permission", openapi_extra=document(PermissionReply))
async def answer_permission(
    service: Service,
    id: PermissionId,
    reply: Annotated[PermissionReply, Depends(body_of(PermissionReply, MAX_ANSWER_BYTES))],
    note: Note,
) -> None:
    """Answers a call that waits for permission, once. 409 where it has an answer, or does not wait any more."""
    note.ids += [asker] if (asker := delegation_of(id)) else []
    await service.answer_permission(id, reply.outcome, reason=reply.reason, arguments=reply.arguments, by=note.token)


class NotificationItems(Wire):
    items: list[Notification]
    """The notifications."""


class NotificationFilter(Filter):
    """Which notifications to list."""

    delegation: DelegationId | None = None
    """All of this delegation. Null: those of all delegations that have not been delivered, at most 1,000."""


@handles("webhooks")
async def list_notifications(service: Service, wanted: Annotated[NotificationFilter, Query()]) -> NotificationItems:
    """Lists notifications of webhooks with the outcome of their last try."""
    return NotificationItems(items=await service.webhooks(wanted.delegation))


FilePath = Annotated[str, Path(description="Relative to the workspace.", examples=["src/pricing.py"])]
Base = Annotated[bool, Query(description="The files as they were when the run began.")]


class _FileConvertor(PathConvertor):
    regex = "(?s:.*)"
    """A name may hold line ends."""


register_url_convertor("file", _FileConvertor())


class FileResponse(StreamingResponse):
    media_type = "application/octet-stream"


@handles("files")
async def list_files(service: Service, id: Id, base: Base = False) -> FileList:
    """Lists the files in the workspace, at most 10,000, by path; 409 where this service cannot reach them."""
    return await service.files(id, base=base)


@handles("file", response_class=FileResponse)
async def get_file(request: Request, service: Service, id: Id, path: FilePath, base: Base = False) -> FileResponse:
    """Returns the bytes of one file, while the run goes on, too; 409 where this service cannot reach it."""
    if "\ufffd" in path and (raw := request.scope.get("raw_path")):  # of a name that is not UTF-8
        path = os.fsdecode(unquote_to_bytes(raw.partition(b"/files/")[2]))
    opened = await service.open_file(id, path, base=base)
    return FileResponse(opened.read(), headers={"Content-Length": str(opened.size)})


_DIGEST = re.compile(r"\bsha-256=:([A-Za-z0-9+/]{43}=):")
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_KNOWN: dict[int | str, dict[str, Any]] = {200: {"description": "The same content was there", "model": Upload}}


@handles("upload", responses=_KNOWN, openapi_extra=_BODY)
async def put_upload(
    service: Service,
    request: Request,
    response: Response,
    sha256: Annotated[str | None, Query(pattern="^[0-9a-f]{64}$", description="The digest of the body.")] = None,
    content_digest: Annotated[str | None, Header(description="The same in RFC 9530's form: sha-256=:BASE64:")] = None,
) -> Upload:
    """Stores the body, an archive (zip, or tar: plain, gzip, bzip2 or xz), for workspaces of the kind `archive`.

    With ``sha256``, in hexadecimal digits, or the header Content-Digest a body that arrives damaged is refused.
    """
    if "sha-256=" in (content_digest or "") and not _DIGEST.search(content_digest or ""):
        raise Invalid("the header Content-Digest is not sha-256=:BASE64:, of 32 bytes")
    for found in _DIGEST.findall(content_digest or ""):
        if sha256 not in (None, given := b64decode(found).hex()):
            raise Invalid("the parameter sha256 and the header Content-Digest differ; send one of them")
        sha256 = given
    most: int = request.app.state.settings.upload_max_bytes
    async with aclosing(body_chunks(request, most)) as content:
        accepted = await service.upload(content, sha256)
    if accepted.replayed:
        response.status_code = 200
    return accepted.upload
