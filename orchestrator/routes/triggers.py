"""The endpoint for deliveries of other services. It asks for no token of the service, but for their signatures."""

from __future__ import annotations

import asyncio
from functools import cache
from secrets import token_bytes
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from ...shared.errors import Misconfigured, Refused, Unavailable
from ...shared.log import log
from ...shared.settings import Settings
from ...shared.settings.triggers import TriggerSettings
from ..access_tokens import RequestNote, Tokens, caller_of, name_of_caller
from ..delegations import Delegations
from ..dependencies import MAX_VALUES, Note, check_shape, read_body
from ..problems import problem_responses
from ..scopes import Scope
from ..trigger_signatures import check_signature, delivery_id, unauthorized
from ..triggers import Delivery, Triggered, carry_out, parsed
from .handlers import open_router

MAX_DELIVERY_BYTES = 1024 * 1024
MOST_DELIVERIES, MOST_OF_ADDRESS = 128, 32
"""Deliveries that are read at the same time, in all and of one address: their senders are not verified yet."""
PATH = "/v1/triggers/{name}"
_BEARER = "bearer "

router = open_router("triggers")
Name = Annotated[str, Path(description="The name of the trigger in the settings.", examples=["fix-issues"])]
_DONE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Nothing new began: the delivery is a repeated one, or `reason` states why",
        "model": Triggered,
    }
}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


@cache
def _unknown() -> tuple[TriggerSettings, list[bytes]]:
    """Returns what a delivery for no trigger is verified with, so that the answer takes as long."""
    table = TriggerSettings.model_construct(scheme="github", secret_file=None)
    return table, [token_bytes(32)]


@router.post(
    PATH,
    status_code=202,
    responses={**_DONE, **problem_responses(400, 401, 408, 409, 413, 415, 422, 429)},
    openapi_extra=_BODY,
)
async def receive_delivery(name: Name, http: Request, response: Response, note: Note) -> Triggered:
    """Takes a signed webhook of another service, and begins the work that the trigger's settings describe.

    200 where nothing new began: for a repeated delivery, with the same id, and for one that begins no work.
    """
    note.route = PATH
    settings: Settings = http.app.state.settings
    service: Delegations = http.app.state.service
    try:
        with http.app.state.trigger_slots.acquire(name_of_caller(http.scope)):
            body = await read_body(http, MAX_DELIVERY_BYTES)
    except Unavailable:
        raise Unavailable("many deliveries arrive at this moment; send it again in a moment") from None
    trigger, secrets = _trigger(settings, name)
    _verify(trigger, secrets, http, body, note)
    note.token = note.token or f"trigger:{name}"
    id = delivery_id(trigger, http.headers)
    await check_shape(body, MAX_VALUES)
    delivery = Delivery(name, trigger, id, await asyncio.to_thread(parsed, body))
    done = await carry_out(service, settings, delivery)
    note.ids += [done.delegation_id] if done.delegation_id else []
    note.reason = done.reason
    if done.replayed or done.outcome == "nothing":
        response.status_code = 200
    return done


def _trigger(settings: Settings, name: str) -> tuple[TriggerSettings, list[bytes]]:
    trigger = settings.triggers.get(name)
    if trigger is None:
        return _unknown()
    try:
        return trigger, trigger.secrets(name)
    except Misconfigured as error:
        log.error("%s", error)
        raise Unavailable("the service cannot read its secrets for now; its log has the reason") from None


def _verify(trigger: TriggerSettings, secrets: list[bytes], http: Request, body: bytes, note: RequestNote) -> None:
    """Raises Unauthorized for a delivery that is not from the one whom the trigger is for."""
    if trigger.scheme != "token":
        check_signature(trigger, secrets, http.headers, body)
        return
    tokens: Tokens = http.app.state.tokens
    given = http.headers.getlist("authorization")
    try:
        if len(given) != 1 or not given[0].lower().startswith(_BEARER):
            raise unauthorized()
        caller_of(tokens, given[0][len(_BEARER) :].strip().encode("latin-1"), note).check({Scope.SUBMIT})
    except Refused as refusal:
        raise unauthorized() from refusal
