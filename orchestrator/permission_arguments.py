"""The check of the arguments that a person puts in place of a model's, before a worker does it with the tool itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..shared.errors import Invalid
from ..shared.fleet import Fleet
from ..shared.runs import permissions

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MAX_MISTAKES = 20


async def check_arguments(redis: Any, fleet: Fleet, id: str, arguments: Mapping[str, Any] | None) -> None:
    """Raises ``Invalid`` with each mistake in the arguments, if there are any, for the call of a permission request.

    Only tools of our own are checked: other schemas may take long to evaluate.
    """
    if arguments is None:
        return
    name = (await permissions.find(redis, id)).request.step.tool_name
    card = next((card for card in await fleet.tools() if card.name == name and card.source == "builtin"), None)
    mistakes = await asyncio.to_thread(_mistakes, card.parameters, arguments) if card else []
    if mistakes:
        raise Invalid(f"these are not arguments of {name}: {mistakes[0]['detail']}", mistakes)


def _mistakes(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    from jsonschema_rs import Draft202012Validator  # imported late: most services never need it

    found = islice(Draft202012Validator(dict(schema), offline=True).iter_errors(dict(arguments)), MAX_MISTAKES)
    return [{"pointer": f"/arguments{_pointer(error)}", "detail": error.message[:500]} for error in found]


def _pointer(error: ValidationError) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path)
