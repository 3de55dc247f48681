"""Requests about several delegations: a batch of new ones, and the merge of finished ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .checks import Glob, VerifyItems
from .request import MAX_BATCH, MAX_ENTRIES, MAX_NAME, DelegationRequest
from .request_options import Require
from .wire import Request


class Batch(Request):
    """Many requests, accepted all or none."""

    requests: list[DelegationRequest] = Field(min_length=1, max_length=MAX_BATCH)
    """The tasks, each with the fields of a request."""
    shared_context: str = ""
    """Background that every one of them needs; it precedes the context of each."""

    def each(self) -> list[DelegationRequest]:
        """Returns the requests, each with the shared context in its own."""
        if not self.shared_context:
            return self.requests
        length = len(self.shared_context.lstrip())
        return [
            request.model_copy(
                update={
                    "context": f"{self.shared_context}\n\n{request.context}".strip(),
                    "shared_context_length": length if request.context else 0,
                }
            )
            for request in self.requests
        ]


class MergeRequest(Request):
    """Finished delegations over the same files, whose changes become one result, unless there are conflicts."""

    ids: list[Annotated[str, Field(max_length=MAX_NAME)]] = Field(min_length=1, max_length=MAX_ENTRIES)
    """In this order."""
    dry_run: bool = False
    """Whether it is only found out what excludes each other."""
    verify: VerifyItems = Field(default_factory=list)
    """Checks of the merged files; where they fail, it is found out which results fail together."""
    protect: list[Glob] | None = Field(default=None, max_length=MAX_ENTRIES)
    """As in the request of a delegation."""
    require: Require = "passed"
    """The verdict on the merged files that makes the merge a success."""
    with_protected: bool = False
    """Whether changed protected paths are merged, too, which the checks of these delegations have put back."""
    timeout_seconds: float = Field(default=3600, gt=0, allow_inf_nan=False)
    """Seconds for all checks together."""
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=255)
    """A repeated request with the same key returns the first delegation instead of a second one."""

    @property
    def distinct(self) -> list[str]:
        """The ids, each once."""
        return [*dict.fromkeys(self.ids)]
