"""The calls of recorded runs, as the policy is asked about them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...shared.errors import NotFound

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ..client import Client

PAGE = 50
"""Delegations that are read at a time."""
AT_ONCE = 8
"""Recordings that are read at once: a service limits its connections."""


class Recordings:
    """Reads the newest delegations of a service with their calls."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._depths: dict[str, int | None] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def newest(self, number: int) -> AsyncGenerator[list[dict[str, Any]]]:
        """Yields pages of at most ``number`` runs in all, for ``Replay`` (``worker/policy/explanation.py``)."""
        cursor = None
        while number > 0:
            page = await self._client.list(limit=min(PAGE, number), cursor=cursor)
            found = await asyncio.gather(*map(self._run, page.items))
            yield [run for run in found if run]
            number -= len(page.items)
            if (cursor := page.next_cursor) is None:
                return

    async def _run(self, delegation: Delegation) -> dict[str, Any] | None:
        """Returns the question about one delegation, or None where it was removed meanwhile."""
        try:
            async with self._gate:
                events = await self._client.plain_events(delegation.id)
        except NotFound:
            return None
        request = delegation.request
        calls, further = _calls(events)
        return {
            "id": delegation.id,
            "mode": request.approval_mode,
            "labels": request.labels,
            "depth": await self._depth(request.parent_id),
            "furtherTools": further,
            "calls": calls,
        }

    async def _depth(self, parent: str | None) -> int | None:
        """Returns in how many delegations a child of ``parent`` is nested; None where one of them is gone."""
        if parent is None:
            return 0
        if parent not in self._depths:
            try:
                above = (await self._client.get(parent)).request.parent_id
            except NotFound:
                self._depths[parent] = None
            else:
                self._depths[parent] = await self._depth(above)
        depth = self._depths[parent]
        return None if depth is None else depth + 1


def _calls(events: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the calls of a recording with their turns and what tainted them, and the run's further tools."""
    calls: list[dict[str, Any]] = []
    further: list[dict[str, Any]] = []
    tainted_by: Sequence[str] = []
    for event in events:
        match event["type"]:
            case "run_started":
                further = event.get("furtherTools", [])
            case "turn_started":
                tainted_by = event.get("taintedBy", [])
            case "replied":
                where = {"turn": event["turn"], "taintedBy": tainted_by}
                calls += [_call(asked, where) for asked in event["toolCalls"]]
            case _:
                pass
    return calls, further


def _call(asked: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
    return {**where, "call": asked["id"], "name": asked["name"], "arguments": asked["arguments"]}
