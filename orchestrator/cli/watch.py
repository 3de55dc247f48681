"""`deputize watch`: follow some delegations, or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import click

from ...shared.errors import Unavailable
from .connect import connect, full_id, load_settings, unfinished
from .errors import Exit
from .live import Display, JsonLines, display
from .questions import Questions
from .values import Finite, denied_option, stream_option
from .watcher import Watcher, interrupts, print_result

if TYPE_CHECKING:
    from ...shared.settings import Settings
    from ..client import Client


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds, at most.")
@denied_option
@stream_option
@click.option("--json", "as_json", is_flag=True, help="Each event as one JSON object a line.")
@click.pass_context
def watch(ctx: click.Context, ids: tuple[str, ...], wait: float | None, stream: bool, as_json: bool) -> Exit:
    """Follow delegations until they are finished; without an ID everything that happens, until Ctrl-C.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    if stream and as_json:
        raise click.UsageError("--stream has no meaning with --json, which shows every event")
    settings = load_settings(ctx)
    show = JsonLines if as_json else partial(display, stream=stream)
    return asyncio.run(_watch(settings, ids, wait, show) if ids else _watch_all(settings, wait, show))


async def _watch(settings: Settings, ids: tuple[str, ...], wait: float | None, show: Callable[[], Display]) -> Exit:
    as_json = show is JsonLines
    async with connect(settings) as service:
        client = service.client
        delegations = [await client.get(await full_id(client, id)) for id in ids]
        if not service.has_workers and any(not each.status.finished for each in delegations):
            raise _no_service_error([each.id for each in delegations if not each.status.finished])
        with show() as shown:
            watcher = Watcher(service, shown, wait, may_act=False, prints_results=not as_json)
            watched = await watcher.all(delegations)
    if not as_json:
        for delegation in delegations:
            if (result := watched.results.get(delegation.id)) is not None:
                print_result(delegation, result, json=False)
    return watched.code


def _no_service_error(paused: list[str]) -> Unavailable:
    names = ", ".join(paused[:3]) + (", …" if len(paused) > 3 else "")
    what = f"; paused: {names}, which `deputize resume` goes on with" if paused else "; start one with `deputize up`"
    return Unavailable(f"no service runs on this machine, so nothing goes on{what}")


async def _watch_all(settings: Settings, wait: float | None, show: Callable[[], Display]) -> Exit:
    async with connect(settings) as service, interrupts() as presses:
        if not service.has_workers:
            raise _no_service_error([each.id async for each in unfinished(service.client)])
        with show() as shown:
            showing = asyncio.create_task(_show_all(service.client, shown))
            pressed = asyncio.create_task(presses.get())
            await asyncio.wait({showing, pressed}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            interrupted = pressed.done()
            for task in (showing, pressed):
                task.cancel()
            ended = (await asyncio.gather(showing, pressed, return_exceptions=True))[0]
    if isinstance(ended, Exception):
        raise ended
    return Exit.INTERRUPTED if interrupted else Exit.WAITED


async def _show_all(client: Client, shown: Display) -> None:
    """Shows unfinished delegations, then all new events."""
    known: set[str] = set()
    questions = Questions(client, shown)
    # The stream is opened before the list is read: a delegation that starts in between is seen twice, not missed.
    async with aclosing(client.follow_all()) as events:
        listening = asyncio.ensure_future(anext(events))
        try:
            async for delegation in unfinished(client):
                known.add(delegation.id)
                shown.add(delegation)
            while True:
                envelope = await listening
                if envelope.delegation_id not in known:
                    known.add(envelope.delegation_id)
                    shown.add(await client.get(envelope.delegation_id))
                shown.event(envelope)
                questions.hear(envelope)
                listening = asyncio.ensure_future(anext(events))
        finally:
            listening.cancel()
            await asyncio.gather(listening, questions.end(), return_exceptions=True)
