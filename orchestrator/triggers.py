"""What a verified delivery does: it starts a delegation, goes on with one, or nothing, by the template of its trigger.

Nothing but the delivery's key in Redis states whether it was carried out, and that is written in the step that accepts
the delegation or the message. So a kill at any time leaves a delivery done, or to be done by its next try.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, cast

from ..shared.errors import Conflict, KeyReused, NotFound, Refused
from ..shared.ids import ID
from ..shared.markup import harmless
from ..shared.message import MAX_MESSAGE_BYTES, Message, MessageMode
from ..shared.request import DelegationRequest
from ..shared.runs import messages
from ..shared.runs.store import kept_for
from ..shared.settings import Settings
from ..shared.settings.triggers import ANYONE, PLACE, TriggerSettings
from ..shared.text import clip
from ..shared.wire import Wire, unique_keys
from .continuation import continued_request
from .delegations import Delegations
from .guards import redis_guard

DELIVERY_SECONDS = 3 * 24 * 3600
"""How long a delivery is remembered."""
TRIGGER, KEY = "trigger", "trigger.key"
"""Labels of what a trigger starts: its name, and what the work is about."""
MAX_KEY = 300
END_SECONDS = 5.0
"""How long the end of a delegation is waited for that reads no messages any more."""


class Triggered(Wire):
    """The outcome of a delivery."""

    outcome: Literal["started", "continued", "sent", "nothing"]
    """``started`` and ``continued``: a new delegation; ``sent``: a message to one that is under way; ``nothing``: see
    ``reason``."""
    delegation_id: str | None = None
    """The delegation that is new, or that has the message."""
    replayed: bool = False
    """Whether an earlier try of the same delivery had this outcome."""
    reason: str | None = None
    """Why no work began."""


class StartsNothing(Exception):
    """The delivery is verified, and no work begins with it; the message is why."""


def parsed(body: bytes) -> Any:
    """Returns the body, with numbers as they are written. Raises Refused."""
    try:
        return json.loads(
            body.decode(), object_pairs_hook=unique_keys, parse_int=str, parse_float=str, parse_constant=str
        )
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(f"the body is not plain JSON in UTF-8: {reason[:200]}") from None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery: the trigger that it is for, its id and its body."""

    name: str
    trigger: TriggerSettings
    id: str
    body: Any

    @property
    def key(self) -> str:
        """The idempotency key of what it begins."""
        return f"trigger:{self.name}:{sha256(self.id.encode('latin-1', 'replace')).hexdigest()}"

    @property
    def begun(self) -> Literal["started", "continued"]:
        """What a delegation is that it begins."""
        return "started" if self.trigger.kind == "start" else "continued"

    @property
    def kept_under(self) -> str:
        """The key in Redis that states its outcome."""
        return kept_for(self.key, self.trigger.owner)


async def carry_out(service: Delegations, settings: Settings, delivery: Delivery) -> Triggered:
    """Does what the trigger asks, at most once. Raises the ``Refused`` tree for what is not possible."""
    trigger, body = delivery.trigger, delivery.body
    own = service.of(trigger.owner, is_confined=True)
    async with redis_guard(settings):
        if known := await _known(own, delivery):
            return known
        try:
            check_wanted(trigger, body)
            key = key_of(trigger, body)
            if trigger.kind == "start":
                return await _accepted(own, delivery, _request(delivery, key))
            return await _go_on(own, settings, delivery, key)
        except StartsNothing as reason:
            return Triggered(outcome="nothing", reason=str(reason))


async def _known(service: Delegations, delivery: Delivery) -> Triggered | None:
    """Returns the outcome of an earlier try of the delivery."""
    id, sent = await service.store.redis.hmget(delivery.kept_under, "id", "message")
    return id and Triggered(outcome="sent" if sent else delivery.begun, delegation_id=id, replayed=True)


async def _accepted(service: Delegations, delivery: Delivery, request: DelegationRequest) -> Triggered:
    try:
        accepted = await service.create(request, key_seconds=DELIVERY_SECONDS)
    except KeyReused:  # of two tries at once the other one came first, with what had changed until then
        if known := await _known(service, delivery):
            return known
        raise
    return Triggered(outcome=delivery.begun, delegation_id=accepted.delegation.id, replayed=accepted.replayed)


def check_wanted(trigger: TriggerSettings, body: Any) -> None:
    """Raises StartsNothing unless the delivery is one that the trigger is for, from an author who may begin work."""
    for pointer, wanted in trigger.when.items():
        if value_at(body, pointer) not in wanted:
            raise StartsNothing(f"the value at {pointer} is not one that the trigger is for")
    if trigger.allowed == [ANYONE]:
        return
    author = value_at(body, trigger.author) if trigger.author else None
    if author is None or author not in trigger.allowed:
        raise StartsNothing("its author is not among those who may begin work (`allowed` of the trigger)")


def value_at(body: Any, pointer: str) -> str | None:
    """Returns the text at a JSON pointer; None where nothing is there, or null. Raises StartsNothing for more."""
    value = body
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name)
        elif isinstance(value, list) and name.isascii() and name.isdecimal() and len(name) < 7:
            listed = cast("list[Any]", value)
            value = listed[int(name)] if int(name) < len(listed) else None
        else:
            return None
    if isinstance(value, dict | list):
        raise StartsNothing(f"at {pointer} there is an object or a list, and not a text")
    return str(value).lower() if isinstance(value, bool) else cast("str | None", value)


def filled(template: str, body: Any) -> str:
    """Returns a template with the texts of the body in its places; a place is empty where the body has nothing.

    In one pass, so that nothing in a text counts as a place.
    """
    return PLACE.sub(lambda found: _harmless(value_at(body, found[1]) or ""), template)


def _harmless(text: str) -> str:
    whole = text.encode("utf-8", "replace").decode()  # JSON may hold halves of a character
    return harmless(whole).text


def key_of(trigger: TriggerSettings, body: Any) -> str:
    """Returns what the work is about; "" without a template. Raises StartsNothing where the body has no such text."""
    template = trigger.key or ""
    for pointer in PLACE.findall(template):
        if not value_at(body, pointer):
            raise StartsNothing(f"there is no text at {pointer}, which is a part of the key")
    key = filled(template, body)
    if len(key) > MAX_KEY or not key.isprintable():
        raise StartsNothing(f"the key is not a line of at most {MAX_KEY} characters")
    return key


def _texts(delivery: Delivery) -> tuple[str, str]:
    """Returns task and context."""
    task, context = (filled(each, delivery.body) for each in (delivery.trigger.task, delivery.trigger.context))
    if not task.strip():
        raise StartsNothing("the task is blank")
    return task, context


def _request(delivery: Delivery, key: str) -> DelegationRequest:
    task, context = _texts(delivery)
    given = {"task": task, "context": context, "idempotencyKey": delivery.key}
    request = DelegationRequest.model_validate({**delivery.trigger.request, **given})
    labels = {**request.labels, TRIGGER: delivery.name, **({KEY: key} if key else {})}
    return request.model_copy(update={"labels": labels})


async def _go_on(service: Delegations, settings: Settings, delivery: Delivery, key: str) -> Triggered:
    """Sends a message to the delegation with the key, or continues it where it has ended."""
    id, text = await _last_with(service, key), "\n\n".join(filter(None, map(str.strip, _texts(delivery))))
    is_long = len(text.encode()) > MAX_MESSAGE_BYTES
    message = Message.new(
        clip(text, MAX_MESSAGE_BYTES // 4) if is_long else text, MessageMode.STEER, f"trigger:{delivery.name}"
    )
    once = messages.Once(delivery.kept_under, DELIVERY_SECONDS)
    try:
        sent = await messages.send(service.store.redis, id, message, settings.retention_seconds, once)
    except Conflict:  # nothing reads it any more, and the end is written in a moment
        earlier = await service.get(id, wait=END_SECONDS)
        request = continued_request(earlier, text, idempotency_key=delivery.key)
        return await _accepted(service, delivery, request.model_copy(update={"labels": {**request.labels, KEY: key}}))
    if sent != message.message_id and (known := await _known(service, delivery)):
        return known  # of two tries at once the other one came first
    return Triggered(outcome="sent", delegation_id=id)


async def _last_with(service: Delegations, key: str) -> str:
    """Returns the newest delegation with the key, else that whose id is in it, as in the branch that it delivered."""
    if found := (await service.list(labels={KEY: key}, limit=1)).items:
        return found[0].id
    if named := ID.search(key):
        with suppress(NotFound):
            return (await service.get(named[0])).id
    raise StartsNothing(f"no delegation has the key {key[:100]!r}")
