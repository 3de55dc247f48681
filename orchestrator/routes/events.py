"""Events: of one delegation, resumable; of all, live."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from ...shared.errors import Invalid
from ..dependencies import Service
from ..problems import problem_responses
from ..sse import EventStream, wants_json

router = APIRouter(prefix="/v1", tags=["events"])

MAX_SEQ = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`event:` is the type, `data:` one line of JSON; `id:` the seq, where one can resume from it",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
LIST = {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}}}


async def _position(
    after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> int:
    """Returns the position to resume from. A browser that reconnects repeats the old query, so the header wins."""
    if not last_event_id:
        return after
    if not (last_event_id.isdecimal() and len(last_event_id) < len(str(MAX_SEQ))):
        detail = f"{last_event_id!r} is not the id of an event; ids are numbers from 1"
        raise Invalid(detail, [{"pointer": "/header/Last-Event-ID", "detail": detail}])
    return int(last_event_id)


@router.get(
    "/delegations/{id}/events",
    status_code=200,
    response_class=EventStream,
    responses={**STREAM, **problem_responses(404, 422)},
    openapi_extra={"responses": {"200": {"content": {"application/json": LIST}}}},
)
async def stream_events(
    service: Service, id: str, request: Request, after: Annotated[int, Depends(_position)]
) -> Response:
    """Streams all events after ``after`` or Last-Event-ID, then live ones until ``run_finished``.

    With ``Accept: application/json`` it returns the stored events as a list.
    """
    if wants_json(request):
        stored = await service.events(id, after)
        return Response(f"[{','.join(envelope.to_json() for envelope in stored)}]", media_type="application/json")
    await service.get(id)  # raises NotFound before the status line is sent
    return EventStream(service.follow(id, after), request.app.state.slots)


@router.get("/events", status_code=200, response_class=EventStream, responses={**STREAM, **problem_responses()})
async def stream_all_events(service: Service, request: Request) -> Response:
    """Streams new events of all delegations, without ids: the stream cannot be resumed."""
    return EventStream(service.follow_all(), request.app.state.slots, numbered=False)
