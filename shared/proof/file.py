"""The file of a proof: the signed statement beside what it states by digest, so that anyone can repeat the checks."""

from __future__ import annotations

import json
from typing import Any, Self

from pydantic import Field

from ..checks import CommandCheck, VerifyItem
from ..delegation import Delegation
from ..errors import Conflict
from ..wire import Wire
from .statement import why_none

NO_KEY = "no key signed it when it ended; `deputize keys new` makes one where its worker runs"


class Proof(Wire):
    """The signed statement of a verified result, with the patch, the words of the task and the checks."""

    envelope: dict[str, Any]
    """An in-toto Statement v1 in an envelope of DSSE v1: `payload`, `payloadType` and `signatures`."""
    patch: str
    """The unified diff in git's format. Like all that follows, the statement has its digest."""
    task: str
    """As it was requested."""
    context: str = ""
    """As it was requested."""
    expected_outcome: str = ""
    """As it was requested."""
    verify: list[VerifyItem | None] = Field(default_factory=list)
    """The checks as they were requested. Null: one with `hidden: true`."""

    @classmethod
    def of(cls, delegation: Delegation, patch: str, envelope: str | None) -> Self:
        """Raises Conflict where the delegation has no envelope, with the reason."""
        if envelope is None:
            raise Conflict(f"there is no proof of {delegation.id}: {_why_none(delegation, patch)}")
        asked = delegation.request
        return cls(
            envelope=json.loads(envelope),
            patch=patch,
            task=asked.task,
            context=asked.context,
            expected_outcome=asked.expected_outcome,
            verify=[None if isinstance(each, CommandCheck) and each.hidden else each for each in asked.verify],
        )


def _why_none(delegation: Delegation, patch: str) -> str:
    if delegation.result is None:
        return f"it is {delegation.status}, and only ended ones are proved"
    return why_none(delegation.result, patch) or NO_KEY
