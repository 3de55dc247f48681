"""How large a request may be, whoever hands it over: a caller, or a run that delegates further."""

from __future__ import annotations

from shared.delegation import MAX_REQUEST_BYTES, MAX_TEXT_BYTES, DelegationRequest
from shared.errors import TooLarge


def check_sizes(request: DelegationRequest) -> None:
    """Raises ``TooLarge`` for a request over one of the caps (UTF-8 bytes)."""
    text = len(request.task.encode()) + len(request.context.encode())
    if text > MAX_TEXT_BYTES:
        raise TooLarge(f"task and context are {text:,} bytes together; the cap is {MAX_TEXT_BYTES:,}")
    whole = len(request.to_json().encode())
    if whole > MAX_REQUEST_BYTES:
        raise TooLarge(f"the request is {whole:,} bytes; the cap is {MAX_REQUEST_BYTES:,}")
