"""Verdicts of the other attempts at a task: equal changes are checked once, and not again until they pass by chance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from ...shared.connection import retried
from ...shared.events import ProgressMade
from ...shared.facts import Verification
from ...shared.request import DelegationRequest
from ...shared.runs.cost import fields_of_records
from ...shared.runs.store import RunStore, call_key, children_of
from ..core.run_context import RunContext

CHECKED = "checked"
"""The field of the record with the changes that were checked last, and the result of the checks."""


def attempt_key(parent: str, number: int) -> str:
    """Returns the key of an attempt, from 1, by which its run finds it again; no call of a model has it."""
    return call_key(parent, 0, f"attempt-{number}")


def is_attempt(request: DelegationRequest) -> bool:
    """Whether it is one of several attempts at a task."""
    key, parent = request.idempotency_key or "", request.parent_id
    return parent is not None and key.startswith(attempt_key(parent, 0)[:-1])


@dataclass(frozen=True, slots=True)
class KnownVerdicts:
    """The results of the checks of one attempt and of those beside it, by the fingerprint of the changes."""

    run: RunContext
    store: RunStore

    async def of(self, fingerprint: str) -> Verification | None:
        """Returns the result of the same checks of the same changes, where another attempt has made them."""
        own, parent = self.run.claim.request, self.run.claim.request.parent_id
        others = await retried(partial(children_of, self.store, parent or ""))
        ids = [each.id for each in others.values() if is_attempt(each.request) and each.request.verify == own.verify]
        for id, (kept,) in zip(ids, await fields_of_records(self.store.redis, ids, CHECKED), strict=True):
            checked, verification = json.loads(kept) if kept and id != self.run.claim.id else ("", None)
            if checked == fingerprint:
                self.run.emit.emit(ProgressMade(message=f"{id} has the same changes: its verdict is taken"))
                return Verification.model_validate(verification)
        return None

    def note(self, fingerprint: str, verification: Verification) -> None:
        if len(verification.checks) == len(self.run.claim.request.verify):  # else they were not completed
            kept = json.dumps([fingerprint, verification.to_dict()], ensure_ascii=False)
            self.run.emit.set({CHECKED: self.run.emit.mask.json(kept)})
