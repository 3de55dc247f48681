"""The Message Batches API of the fake model: create, list, retrieve, results and cancel."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from tests.fake_model.strict import mistake
from tests.fake_model.wire import error

PATH = "/v1/messages/batches"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MOST = 100_000
_numbers = itertools.count(1)
Trouble = Literal["cut_before", "cut_after"]
"""The connection ends before, or after a batch was created, without an answer."""
Play = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Returns the result of a request."""


@dataclass
class FakeBatch:
    id: str
    requests: Sequence[Mapping[str, Any]]
    created: datetime
    results: list[dict[str, Any]] | None = None
    """None while it is in progress."""
    ended: datetime | None = None
    cancelled: bool = False

    def shown(self, url: str) -> dict[str, Any]:
        kinds = [result["result"]["type"] for result in self.results or ()]
        counts = {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")}
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": "ended" if self.ended else "canceling" if self.cancelled else "in_progress",
            "request_counts": {"processing": 0 if self.ended else len(self.requests), **counts},
            "created_at": self.created.isoformat(),
            "ended_at": self.ended.isoformat() if self.ended else None,
            "expires_at": (self.created + timedelta(hours=24)).isoformat(),
            "results_url": f"{url}{PATH}/{self.id}/results" if self.ended else None,
        }


@dataclass
class FakeBatches:
    """``play`` returns the result of a request, and bills it. A batch ends after ``seconds``; None: with ``end``.

    ``troubles`` are those of the next creations: a status, or a cut connection. ``expire`` is how many of the next
    requests expire. ``hidden``: lists do not show what is created yet.
    """

    play: Play
    seconds: float | None = 0.0
    troubles: list[int | Trouble] = field(default_factory=list)
    expire: int = 0
    hidden: bool = False
    all: list[FakeBatch] = field(default_factory=list)
    lists: int = 0

    @property
    def requests(self) -> list[Mapping[str, Any]]:
        """The requests of all batches."""
        return [request for batch in self.all for request in batch.requests]

    def end(self, *batches: FakeBatch) -> None:
        """Ends these batches, or all of them."""
        for batch in batches or self.all:
            if batch.ended is None:
                batch.results = [
                    {"custom_id": each["custom_id"], "result": self._result(batch, each)} for each in batch.requests
                ]
                batch.ended = datetime.now(UTC)

    def create(self, body: Any) -> tuple[int, Any]:
        """Returns the answer to the creation of a batch."""
        requests = body.get("requests") if isinstance(body, dict) else None
        if not isinstance(requests, list) or not 0 < len(requests) <= MOST:
            return 400, error(400, "requests: Field required")
        names = [each.get("custom_id", "") for each in requests]
        if len({*names}) != len(names) or not all(map(NAME.fullmatch, names)):
            return 400, error(400, "requests.custom_id: must be unique, and match ^[a-zA-Z0-9_-]{1,64}$")
        if any(each.get("params", {}).get("stream") for each in requests):
            return 400, error(400, "requests.params.stream: streaming is not supported in batches")
        self.all.append(batch := FakeBatch(f"msgbatch_fake{next(_numbers):05}", requests, datetime.now(UTC)))
        return 200, batch

    def answer(self, method: str, path: str, query: Mapping[str, str], url: str) -> tuple[int, Any]:
        """Returns the answer to everything else; results are lines of JSON, as bytes."""
        for batch in self.all:
            if self.seconds is not None and (datetime.now(UTC) - batch.created).total_seconds() >= self.seconds:
                self.end(batch)
        id, _, what = path.removeprefix(PATH).strip("/").partition("/")
        if not id:
            return 200, self._list(query, url)
        batch = next((each for each in self.all if each.id == id), None)
        if batch is None:
            return 404, error(404, f"no such batch: {id}")
        if method == "POST" and what == "cancel":
            batch.cancelled = True
            self.end(batch)
        if what == "results":
            if batch.results is None:
                return 400, error(400, "its results are not available yet")
            return 200, "".join(f"{json.dumps(each)}\n" for each in batch.results).encode()
        return 200, batch.shown(url)

    def _list(self, query: Mapping[str, str], url: str) -> dict[str, Any]:
        self.lists += 1
        newest, limit = [] if self.hidden else self.all[::-1], int(query.get("limit", 20))
        if after := query.get("after_id"):
            newest = newest[[each.id for each in newest].index(after) + 1 :]
        return {"data": [each.shown(url) for each in newest[:limit]], "has_more": len(newest) > limit}

    def _result(self, batch: FakeBatch, request: Mapping[str, Any]) -> dict[str, Any]:
        if batch.cancelled:
            return {"type": "canceled"}
        if self.expire > 0:
            self.expire -= 1
            return {"type": "expired"}
        if wrong := mistake(request.get("params")):
            return {"type": "errored", "error": error(400, wrong)}
        return self.play(request["params"])
