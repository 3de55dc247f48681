"""`deputize permissions`, `approve` and `deny`: the calls that wait for a person, and the answers to them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from ...shared.lines import seconds, short_id
from . import formatting, output
from .connect import NEWEST, connect, full_id, load_settings, unfinished
from .errors import Exit
from .event_lines import in_task, question_lines, short_ids

if TYPE_CHECKING:
    from ...shared.permission import PermissionRequest
    from ...shared.settings import Settings
    from ..client import Client

ID_PREFIX = "prm_"
ID_LENGTH = 39
OUTCOMES = {"always": "proceed_always", "tool": "proceed_always_tool", "server": "proceed_always_server"}


class Arguments(click.ParamType[dict[str, Any]]):
    """The arguments of a call, as a JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"it is not valid JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("it is not a JSON object with all arguments of the call", param, ctx)
        return found


@click.command()
@click.argument("id", required=False, metavar="[ID]")
@click.option("--delegation", metavar="ID", help="Only those of this delegation and of its children.")
@click.option("--json", "as_json", is_flag=True, help="Each request as one JSON object a line.")
@click.pass_context
def permissions(ctx: click.Context, id: str | None, delegation: str | None, as_json: bool) -> Exit:
    """List the calls that wait for a person, the oldest first; with an ID one of them with all its details.

    An ID may be shortened to its beginning or its end; @last is the newest one.
    """
    found, titles = asyncio.run(_permissions(load_settings(ctx), id, delegation))
    if as_json:
        for request in found:
            output.json_line(request.to_json())
    elif id:
        for line in question_lines(found[0], titles[found[0].delegation_id]):
            output.line(line)
    elif found:
        for row in formatting.columns(_table(found, titles), left=(0, 1, 3)):
            output.line(row)
    else:
        output.line("no call waits for permission", err=True)
    return Exit.SUCCEEDED


def _table(found: list[PermissionRequest], titles: dict[str, str]) -> list[tuple[str, ...]]:
    from ...shared.wire import now

    rows = [("id", "delegation", "expires", "call")]
    for short, request in zip(short_ids([each.permission_id for each in found]), found, strict=True):
        left = max(0.0, (request.expires_at - now()).total_seconds())
        call = in_task(request, titles[request.delegation_id])
        rows.append((short, short_id(request.delegation_id), seconds(left), call))
    return rows


async def _permissions(
    settings: Settings, id: str | None, delegation: str | None
) -> tuple[list[PermissionRequest], dict[str, str]]:
    """Returns the requests, and the titles of the delegations that ask."""
    async with connect(settings) as service:
        of = await full_id(service.client, delegation) if delegation else None
        found = await service.client.permissions(of)
        if id is not None:
            named = full_permission_id([each.permission_id for each in found], id)
            found = [each for each in found if each.permission_id == named]
        titles = {each.delegation_id: each.delegation_id for each in found}
        if found:
            titles |= {each.id: each.request.title async for each in unfinished(service.client)}
        return found, titles


@click.command()
@click.argument("id")
@click.option("--always", "remember", flag_value="always", help="Also similar calls of this run and of its children.")
@click.option("--tool", "remember", flag_value="tool", help="Also every other call of this tool, there.")
@click.option("--server", "remember", flag_value="server", help="Also every other call of this MCP server, there.")
@click.option("--arguments", type=Arguments(), metavar="JSON", help="With these arguments in place of the model's.")
@click.pass_context
def approve(ctx: click.Context, id: str, remember: str | None, arguments: dict[str, Any] | None) -> Exit:
    """Approve a call that waits. What `deputize permissions ID` lists as always is what the options would approve, too.

    An ID may be shortened to its beginning or its end; @last is the newest one.
    """
    if remember and arguments is not None:
        raise click.UsageError(f"--{remember} has no meaning with --arguments, which are for this call alone")
    outcome = OUTCOMES[remember] if remember else "proceed_once" if arguments is None else "modify"
    return _answer(load_settings(ctx), id, outcome, arguments=arguments)


@click.command()
@click.argument("id")
@click.option("--reason", metavar="TEXT", help="For the model, which goes on without the call.")
@click.pass_context
def deny(ctx: click.Context, id: str, reason: str | None) -> Exit:
    """Refuse a call that waits; its run goes on.

    An ID may be shortened to its beginning or its end; @last is the newest one.
    """
    return _answer(load_settings(ctx), id, "cancel", reason=reason)


def _answer(settings: Settings, given: str, outcome: str, **fields: Any) -> Exit:
    id = asyncio.run(_send(settings, given, outcome, fields))
    output.line(f"{id}  {outcome}")
    return Exit.SUCCEEDED


async def _send(settings: Settings, given: str, outcome: str, fields: dict[str, Any]) -> str:
    async with connect(settings) as service:
        id = await _found_id(service.client, given)
        await service.client.answer_permission(id, outcome, **fields)
        return id


async def _found_id(client: Client, given: str) -> str:
    if given.startswith(ID_PREFIX) and len(given) == ID_LENGTH:
        return given  # also one that waits no more: the service knows who answered it
    return full_permission_id([each.permission_id for each in await client.permissions()], given)


def full_permission_id(waiting: list[str], given: str) -> str:
    """Returns the only id that begins or ends with ``given``; for ``@last`` the newest. Raises NotFound, Invalid."""
    from ...shared.errors import Invalid, NotFound

    if given == NEWEST and waiting:
        return waiting[-1]
    bare = given.removeprefix(ID_PREFIX)
    found = [id for id in waiting if id.startswith(ID_PREFIX + bare) or (bare == given and id.endswith(bare))]
    if not bare or not found:
        what = "no call waits for permission" if not waiting else f"no call that waits has an id like {given[:100]}"
        raise NotFound(f"{what}; `deputize permissions` lists them")
    if len(found) > 1:
        raise Invalid(f"{given} stands for {len(found)} requests; give more of it: {', '.join(found[:5])}")
    return found[0]
