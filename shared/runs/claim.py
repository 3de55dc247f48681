"""A claimed run: what its attempt gets to know when ``claim.lua`` has given it the fence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.delegation import DelegationRequest, Limits

KeptRun = tuple[list[str], dict[str, str], str | None, str | None]
"""What earlier attempts wrote: history, ledger, kit; and the last one whose worker's event loop stood still."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that is ours: what was asked, and how far earlier attempts came."""

    id: str
    fence: str
    attempt: int
    seq: int
    request: DelegationRequest
    limits: Limits
    history: list[bytes]
    ledger: dict[str, str]
    """What earlier attempts wrote of the calls of the turn they left open, by call id."""
    checkpoint: dict[str, Any]
    depth: int = 0
    """How many delegations this one is nested in."""
    lost: int = 0
    """How many workers were lost in a row, without a turn completed in between."""
    handed_over: bool = False
    """Whether the attempt before was given back by a worker that was stopped, and not lost."""
    cancelled: bool = False
    """Whether its end was asked for while it waited for this attempt."""
    tools: str | None = None
    """What the first attempt kept of its kit (``worker/toolkit/pinned_tools.py``); None where it kept none."""

    stalled: bool = False
    """Whether the attempt before ended because its worker's event loop stood still (``worker/standby``)."""

    @property
    def touched_files(self) -> bool:
        """Whether an earlier attempt answered calls, so that the files it worked on matter."""
        return len(self.history) > 2

    @classmethod
    def of(cls, id: str, fields: Mapping[str, Any], kept: KeptRun) -> Claim:
        """``fields`` are those of the claim script's answer, ``kept`` is what earlier attempts wrote."""
        history, ledger, tools, stalled = kept
        attempt = int(fields["attempt"])
        return cls(
            id=id,
            fence=fields["fence"],
            attempt=attempt,
            seq=int(fields["seq"]),
            request=DelegationRequest.model_validate_json(fields["request"]),
            limits=Limits.model_validate_json(fields["limits"]),
            history=[entry.encode() for entry in history],
            ledger=ledger,
            checkpoint=json.loads(fields.get("checkpoint") or "{}"),
            depth=int(fields.get("depth") or 0),
            lost=int(fields.get("lost") or 0),
            handed_over=fields.get("ended") == "handed_over",
            cancelled=bool(fields.get("cancel")),
            tools=tools,
            stalled=stalled is not None and int(stalled) == attempt - 1,
        )
