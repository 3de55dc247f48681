"""`deputize continue` and `deputize retry`: what follows a finished delegation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from .apply import take_over_or_hint
from .connect import connect, full_id, load_settings
from .errors import Exit
from .live import display
from .values import Finite, StrictCommand, Text, denied_option
from .watcher import Watcher, note_if_queued, note_lowered_limits, print_result

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.settings import Settings
    from ..client import Client

FollowUp = Callable[["Client", "Delegation"], Awaitable["Delegation"]]
_WAIT = click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds; the work goes on.")
_KEY = click.option("--idempotency-key", metavar="KEY", help="Sent twice with the same key it is one delegation.")
_JSON = click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")


@click.command("continue", cls=StrictCommand)
@click.argument("id")
@click.argument("text", type=Text(), metavar="TEXT|@FILE|-")
@click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Turns of the model, at most.")
@click.option("--max-tool-calls", type=click.IntRange(0), metavar="N", help="Tool calls, at most.")
@click.option("--timeout", type=Finite(0, min_open=True), metavar="S", help="Seconds of work, at most.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens, at most.")
@click.option("--max-cost", type=Finite(0, min_open=True), metavar="USD", help="US dollars, at most.")
@_KEY
@_WAIT
@denied_option
@_JSON
@click.pass_context
def continue_(
    ctx: click.Context,
    id: str,
    text: str,
    idempotency_key: str | None,
    wait: float | None,
    as_json: bool,
    **limits: Any,
) -> Exit:
    """Go on with a finished delegation: TEXT is what is to be done now, in its conversation and its files.

    It is a new delegation with limits and a result of its own, whose patch has the changes of the whole conversation;
    limits that are not given are those of the finished one. An ID may be shortened to its beginning or its end; @last
    is the newest one without a parent.
    """

    async def submit(client: Client, earlier: Delegation) -> Delegation:
        names = {"timeout": "timeout_seconds", "max_cost": "max_cost_usd"}
        given = {names.get(name, name): value for name, value in limits.items() if value is not None}
        own = earlier.request.limits.model_copy(update=given) if given else None
        return await client.continue_(earlier.id, text, own, idempotency_key=idempotency_key)

    return asyncio.run(_follow_up(load_settings(ctx), id, submit, wait, as_json))


@click.command(cls=StrictCommand)
@click.argument("id")
@click.option("--from-turn", type=click.IntRange(1), metavar="N", help="Begin with this turn of its run.")
@_KEY
@_WAIT
@denied_option
@_JSON
@click.pass_context
def retry(
    ctx: click.Context,
    id: str,
    from_turn: int | None,
    idempotency_key: str | None,
    wait: float | None,
    as_json: bool,
) -> Exit:
    """Hand the task of a finished delegation over again, with the same request, from the start.

    With --from-turn the conversation and the files from before that turn are kept. Only the files from its start and
    its end exist, so it is a turn before the first change of a file, or after the last one.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """

    async def submit(client: Client, earlier: Delegation) -> Delegation:
        return await client.retry(earlier.id, from_turn=from_turn, idempotency_key=idempotency_key)

    return asyncio.run(_follow_up(load_settings(ctx), id, submit, wait, as_json))


async def _follow_up(settings: Settings, given: str, submit: FollowUp, wait: float | None, as_json: bool) -> Exit:
    needs_model = not settings.model.startswith("scripted")
    async with connect(settings, workers=1, needs_model=needs_model) as service:
        earlier = await service.client.get(await full_id(service.client, given))
        delegation = await submit(service.client, earlier)
        with display() as shown:
            shown.note(delegation.id)
            note_lowered_limits(delegation, shown.note)
            if not service.own:
                await note_if_queued(service.client, shown.note)
            watched = await Watcher(service, shown, wait, prints_results=not as_json).all([delegation])
        for result in watched.results.values():
            print_result(delegation, result, json=as_json)
            await take_over_or_hint(settings, service.client, result)
    return watched.code
