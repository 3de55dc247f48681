"""A body for each operation that needs one; ``{id}`` stands for a delegation."""

from __future__ import annotations

from typing import Any

BODIES: dict[str, Any] = {
    "/v1/delegations": {"task": "SECRET"},
    "/v1/delegations:batch": {"requests": [{"task": "SECRET"}, {"task": "two"}]},
    "/v1/delegations:prune": {"olderThanSeconds": 0},
    "/v1/delegations/{id}/continue": {"text": "SECRET"},
    "/v1/delegations/{id}/messages": {"text": "SECRET"},
    "/v1/merges": {"ids": ["{id}"]},
    "/v1/webhooks:test": {"url": "https://example.org/done"},
}
