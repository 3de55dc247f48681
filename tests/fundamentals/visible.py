"""What a caller sees of an answer, all of it, without what differs from run to run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import Envelope

DIFFERS = {"delegationId", "executionTimeMs", "usage", "trust", "baseHash", "newHash"}
"""``usage`` and ``trust`` have tests of their own; everything else is an id, a time or a hash."""


def visible(result: ToolAgentResult) -> dict[str, Any]:
    """A result as it is sent. What is empty (no errors, no files) is left out, so that what stands there is all.

    ``details`` repeats what ``errors`` and the steps have, a line each; one test shows it. The counts of failed and of
    denied calls are those of ``errors`` (tests/worker/test_permission_answers.py).
    """
    sent: dict[str, Any] = _without(result.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    for counted in ("details", "failedCallCount", "deniedCallCount"):
        sent.pop(counted, None)
    for changed in sent.get("fileChanges", ()):
        changed.pop("size", None)  # the lines say as much here
    return sent


def types(events: Iterable[Envelope]) -> list[str]:
    return [envelope.event.type for envelope in events]


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(each) for name, each in value.items() if name not in DIFFERS}
    return [_without(each) for each in value] if isinstance(value, list) else value
