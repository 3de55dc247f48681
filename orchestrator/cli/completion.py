"""What the shell completes: ids, workers, models, agents, labels and sessions that the service and the settings know.

A completion starts no service, and is empty where none runs: an error would stand in the line that is typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ...shared.errors import DeputizeError
from ...shared.text import visible
from ...shared.wording import MAX_TITLE, cut

if TYPE_CHECKING:
    from ..client import Client

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Known = Iterable[tuple[str, str]]
"""Words with what helps to choose among them."""
SEARCHED = 100
"""The newest delegations whose ids, labels and sessions are completed."""
SECONDS = 3.0
"""After which a completion gives up."""


def _from_service(find: Callable[[Client], Awaitable[Known]]) -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        async def found() -> Known:
            async with _client(ctx) as client, asyncio.timeout(SECONDS):
                return await find(client)

        try:
            return _items(asyncio.run(found()), incomplete)
        except (DeputizeError, TimeoutError):
            return []

    return complete


def _items(known: Known, incomplete: str) -> list[CompletionItem]:
    """Returns those that may be meant. The shell reads lines, and what they hold may act on the terminal."""
    meant = ((word, help) for word, help in known if word.startswith(incomplete) and word.isprintable())
    return [CompletionItem(word, help=visible(help) or None) for word, help in meant]


@asynccontextmanager
async def _client(ctx: click.Context) -> AsyncGenerator[Client]:
    from ...shared.errors import Unavailable
    from ...shared.settings import Settings
    from .connect import client_at, client_at_url, stack_here, token_for

    settings = Settings.load(ctx.find_root().params.get("config"))
    stack = None if settings.url else stack_here(settings, makes_home=False)
    if settings.url is None and stack is None:
        raise Unavailable("no service runs on this machine")
    async with client_at(stack.url, token_for(settings, stack)) if stack else client_at_url(settings) as client:
        yield client


async def _delegations(client: Client) -> Known:
    page = await client.list(limit=SEARCHED)
    return [("@last", "the newest one"), *((each.id, f"{each.status}: {each.request.title}") for each in page.items)]


async def _permissions(client: Client) -> Known:
    found = await client.permissions()
    return [("@last", "the newest one"), *((each.permission_id, cut(each.step.title, MAX_TITLE)) for each in found)]


async def _workers(client: Client) -> Known:
    return [(each.name, f"{each.running} of {each.concurrency}") for each in await client.workers()]


async def _labels(client: Client) -> Known:
    page = await client.list(limit=SEARCHED)
    pairs = chain.from_iterable(each.request.labels.items() for each in page.items)
    return [(f"{name}:{value}", "") for name, value in sorted({*pairs})]


async def _sessions(client: Client) -> Known:
    page = await client.list(limit=SEARCHED)
    return [(id, "") for id in dict.fromkeys(each.request.session_id for each in page.items) if id]


def _settings(names: Callable[[Any], Iterable[str]]) -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ...shared.settings import Settings

        try:
            settings = Settings.load(ctx.find_root().params.get("config"))
        except DeputizeError:
            return []
        return _items(((name, "") for name in names(settings)), incomplete)

    return complete


delegations = _from_service(_delegations)
permissions = _from_service(_permissions)
workers = _from_service(_workers)
labels = _from_service(_labels)
sessions = _from_service(_sessions)
models = _settings(lambda settings: dict.fromkeys([*settings.models, settings.model]))
agents = _settings(lambda settings: settings.agents)

OF_FIELDS: dict[str, Complete] = {
    "--model": models,
    "--agent": agents,
    "--label": labels,
    "--session": sessions,
    "--parent": delegations,
    "--after": delegations,
    "--continues": delegations,
    "--retry-of": delegations,
}
"""By the option of a field of a request."""
