"""The rows of `show --usage`: tokens and cost of each model call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...shared.wording import dollars, share

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, Usage
    from ...shared.events import Envelope, Replied

HEAD = ("turn", "input", "read", "written", "output", "cached", "cost", "saved", "why missed")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """``kind`` is ``call`` (of a turn), ``other`` (failed tries and summaries), ``children``, ``retried`` or ``total``.

    ``retried`` is the part of the calls that belongs to tries of the run that were done again from the start."""

    kind: str
    usage: Usage
    turn: int | None = None
    cache_miss: str | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        usage = self.usage
        counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
        return (
            self.kind if self.turn is None else str(self.turn),
            *(f"{tokens:,}" for tokens in counts),
            share(usage.cached_share),
            dollars(usage.cost_usd),
            dollars(usage.cache_saved_usd),
            self.cache_miss or "",
        )

    def to_json(self) -> str:
        fields: dict[str, Any] = {"kind": self.kind, "usage": self.usage.to_dict()}
        if self.turn is not None:
            fields |= {"turn": self.turn, "cacheMiss": self.cache_miss}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def usage_rows(
    delegation: Delegation, events: Iterable[Envelope], children: Sequence[Delegation]
) -> tuple[UsageRow, ...]:
    """Returns a row for each reply, and the total last. Until the end it has only what is known from its parts."""
    from ...shared.delegation import Usage

    replies: list[Replied] = []
    retried = 0
    for envelope in events:
        if envelope.event.type == "replied":
            replies.append(envelope.event)
        elif envelope.event.type == "run_retried":
            retried = len(replies)
    rows = [UsageRow("call", event.usage, event.turn, event.cache_miss) for event in replies]
    if children:
        used = [child.result.usage for child in children if child.result]
        rows.append(UsageRow("children", sum(used, Usage())))
    known = sum((row.usage for row in rows), Usage())
    whole = delegation.result.usage if delegation.result else known
    if whole.total > known.total:
        rows.insert(len(replies), UsageRow("other", whole - known))
    if retried:
        rows.append(UsageRow("retried", sum((row.usage for row in rows[:retried]), Usage())))
    return (*rows, UsageRow("total", whole))
