"""How the user of a client is asked for permission: the text, the form, and the answer that comes back."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ...shared.errors import Invalid
from ...shared.ids import ID
from ...shared.markup import harmless
from ...shared.permission import PermissionOutcome, PermissionReply, PermissionRequest
from ...shared.text import clip, visible
from ...shared.wording import question_of
from .call import Ask, OpenQuestion, Round

Context = ServerRequestContext[Any, Any]
STATE = re.compile(rf"([0-9]{{1,2}}) ({ID.pattern}(?: {ID.pattern})*)")
MAX_LINE = 4000
MAX_MESSAGE = 16_000
DECLINED = "the user declined"
CLOSED = "the user closed the question without an answer"


def form(request: PermissionRequest) -> types.ElicitRequest:
    """Returns the question as a client presents it. Words of the agent stand on lines that are marked, and escaped."""
    lines = [
        f"A delegation asks for permission: {request.step.title}",
        f"It is {request.delegation_id}; without an answer before {request.expires_at:%H:%M:%S} UTC it is denied.",
        *question_of(request),
    ]
    shown = "\n".join(clip(visible(harmless(line).text), MAX_LINE) for line in lines)
    # Without `modify`: a form has no field for arguments.
    outcomes = [PermissionOutcome.PROCEED_ONCE, *request.remembers, PermissionOutcome.CANCEL]
    fields: dict[str, Any] = {
        "outcome": {
            "type": "string",
            "title": "Decision",
            "description": "cancel denies it",
            "enum": [str(outcome) for outcome in outcomes],
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "For the agent, where it is denied",
            "maxLength": 2000,
        },
    }
    schema: dict[str, Any] = {"type": "object", "properties": fields, "required": ["outcome"]}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=clip(shown, MAX_MESSAGE), requested_schema=schema)
    )


def reply_of(result: object) -> PermissionReply | None:
    """Returns the answer; None where it is not one to such a form. Who declines or closes the question denies."""
    match result:
        case types.ElicitResult(action="accept", content=content):
            given = content or {}
            fields = {"outcome": given.get("outcome"), "reason": given.get("reason") or None}
        case types.ElicitResult(action="decline"):
            fields = {"outcome": "cancel", "reason": DECLINED}
        case types.ElicitResult():
            fields = {"outcome": "cancel", "reason": CLOSED}
        case _:
            return None
    try:
        return PermissionReply.model_validate(fields)
    except ValidationError:
        return None


def way_to_ask(context: Context) -> tuple[Ask | None, bool]:
    """Returns what asks the user of a request's client, if it can, and whether the result may be the question."""
    capabilities = context.session.client_capabilities
    declared = capabilities.elicitation if capabilities else None
    # A client of the first revision that has forms declares nothing in it.
    if declared is None or (declared.form is None and declared.url is not None):
        return None, False
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None, True
    return (partial(_ask, context) if context.session.can_send_request else None), False


async def _ask(context: Context, request: PermissionRequest) -> PermissionReply | None:
    params = form(request).params
    assert isinstance(params, types.ElicitRequestFormParams)
    try:
        result = await context.session.elicit_form(params.message, params.requested_schema, context.request_id)
    except (MCPError, ValidationError):  # it refused, answered nonsense, or is gone
        return None
    return reply_of(result)


def repeated(params: types.CallToolRequestParams) -> Round | None:
    """Returns what a repeated call continues.

    The state is not signed: the delegations in it are checked as are those in arguments, and so is each answer.

    Raises Invalid.
    """
    if params.request_state is None:
        return None
    found = STATE.fullmatch(params.request_state)
    if found is None:
        raise Invalid("the requestState is not one that this server has sent; call the tool again without it")
    responses = (params.input_responses or {}).items()
    replies = {id: reply for id, response in responses if (reply := reply_of(response)) is not None}
    return Round(int(found[1]), found[2].split(), replies)


def input_required(question: OpenQuestion) -> types.InputRequiredResult:
    """Returns the result that makes a client ask its user and repeat the call."""
    round, request = question.round, question.request
    return types.InputRequiredResult(
        input_requests={request.permission_id: form(request)},
        request_state=f"{round.number} {' '.join(round.ids)}",
    )
