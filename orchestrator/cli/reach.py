"""How a command gets to a service: the one that is named, the one on this machine, or one of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import output
from shared.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.home import StackInfo
    from shared.settings import Settings

ID_PREFIX = "dlg_"
ID_LENGTH = 30
ID_PART = re.compile(r"[0-9a-z]+")
NEWEST = "@last"
SEARCHED = 5000
"""A short id is looked for among that many of the newest delegations."""


@dataclass(frozen=True, slots=True)
class Service:
    client: Client
    own: bool = False
    """Started by this command, and gone with it."""


def load_settings(ctx: click.Context, **override: Any) -> Settings:
    from shared.settings import Settings

    config: Path | None = ctx.find_root().obj
    return Settings.load(config, **override)


def stack_here(settings: Settings) -> StackInfo | None:
    """The stack that runs on this machine. Raises Misconfigured where its home cannot be one."""
    from orchestrator.home import prepare_home
    from orchestrator.stack import running

    prepare_home(settings.home)
    return running(settings)


@asynccontextmanager
async def reach(
    settings: Settings, *, start: bool = False, stay: bool = False, workers: int = 1
) -> AsyncGenerator[Service]:
    """The service. With ``start`` one is started for the block where there is none; with ``stay`` it is kept up."""
    from orchestrator.client import Client

    if settings.url:
        async with Client(settings.url, settings.token.get_secret_value() if settings.token else None) as client:
            yield Service(client)
        return
    from orchestrator.stack import stack_in_use

    there = stack_here(settings)
    if there is None and not start:
        raise Unavailable("no service runs on this machine; start one with `deputize up` or set DEPUTIZE_URL")
    if there is None or start or stay:
        if there is None:
            output.line("no service runs here; starting one for this command", err=True)
        async with (
            stack_in_use(settings, workers=workers, tell=partial(output.line, err=True)) as stack,
            Client(stack.url, stack.token) as client,
        ):
            yield Service(client, own=there is None)
    else:
        async with Client(there.url, there.token) as client:
            yield Service(client)


async def full_id(client: Client, given: str) -> str:
    """The one id that begins or ends with what was given, or the newest for ``@last``. Raises NotFound, Invalid."""
    if given == NEWEST:
        newest = (await client.list(limit=1)).items
        if not newest:
            raise NotFound("there is no delegation yet")
        return newest[0].id
    bare = given.removeprefix(ID_PREFIX)
    if not ID_PART.fullmatch(bare):
        raise Invalid(f"{given!r} is not the id of a delegation; `deputize list` shows them")
    if given.startswith(ID_PREFIX) and len(given) == ID_LENGTH:
        return given
    found = [id async for id in _newest_ids(client) if _is_short_for(given, bare, id)]
    if not found:
        raise NotFound(f"there is no delegation whose id begins or ends with {given}; `deputize list` shows them")
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise Invalid(f"{given} stands for {len(found)} ids; give more of it: {some}")
    return found[0]


def _is_short_for(given: str, bare: str, id: str) -> bool:
    return id.startswith(ID_PREFIX + bare) or (bare == given and id.endswith(bare))


async def _newest_ids(client: Client) -> AsyncGenerator[str]:
    cursor, searched = None, 0
    while searched < SEARCHED:
        page = await client.list(limit=500, cursor=cursor)
        for item in page.items:
            yield item.id
        searched += len(page.items)
        if (cursor := page.next_cursor) is None:
            break
