"""The reasons that endpoints and gateways give for a failure: where they stand, and which of them can be mended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_SUBJECT = r"\b(prompt|input|conversation|history|messages?|text|context|token count|(?<!per )tokens)\b"
_OVERFLOW = re.compile(
    r"context[ _-]?(window|length|limit|size|overflow)|maximum context|too many (input |prompt )?tokens"
    r"|request[ _](is )?too[ _](large|long)|range of input length|max(imum)?[ _](prompt|input)[ _](length|size|tokens)"
    r"|(model|input|prompt|max|maximum) token limit|token limit (is |was )?exceeded"
    rf"|{_SUBJECT}[^.;]{{0,60}}\b(too (long|large|big|many)|exceed(s|ed|ing)?|(longer|more) than)\b"
    r"|\bexceed(s|ed|ing)?\b[^.;]{0,60}\b(input|prompt|context|maximum number of tokens)\b"
    r"|\breduce the (length|size|number) of (the |your )?(input|prompt|message|conversation|context|tokens)",
    re.IGNORECASE,
)
"""What endpoints say of a conversation that is longer than the context window."""
_OTHER_LIMIT = re.compile(
    r"per[ -](minute|hour|day|second)\b|\b[tr]p[md]\b|rate.?limit|\b(image|header|cookie)s?\b", re.IGNORECASE
)
"""What is too long or too many here is not the conversation."""
_OF_OUTPUT = re.compile(
    r"max\w*[ _]?tokens|max_new|(output|completion) tokens|in the (output|completion)", re.IGNORECASE
)
_REQUESTED = re.compile(r"requested\D{0,12}(\d[\d,]*\d)")
_NUMBER = re.compile(r"(?<![\w.-])(?:\d{1,3}(?:,\d{3})+|\d+)(?![\w-]|\.\d)")
_EXCLUSIVE = re.compile(r"\b(lower|less|smaller) than(?! or equal)|exclusive\)", re.IGNORECASE)
LEAST_OUTPUT = 256
"""Output tokens below which the conversation is shortened instead of the reply."""


def error_in(body: bytes) -> dict[str, Any]:
    """Returns the error in a response, as ``error_of``; {} where it is not JSON."""
    try:
        return error_of(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def error_of(value: Any) -> dict[str, Any]:
    """Returns an error, in whichever form it was sent, as an object whose ``message`` is a text; {} for none."""
    if isinstance(value, list):
        return error_of(value[0]) if value else {}
    if not isinstance(value, dict):
        return {"message": value} if isinstance(value, str) else {}
    if inner := next((value[key] for key in ("error", "errors", "detail") if value.get(key)), None):
        return error_of(inner)
    reasons = [str(value[key]) for key in ("message", "msg", "error_message") if value.get(key)][:1]
    if isinstance(metadata := value.get("metadata"), dict) and metadata.get("raw"):
        reasons.append(str(metadata["raw"]))  # a gateway's name for the reason of the provider behind it
    return {**value, "message": ": ".join(reasons)}


def is_overflow(error: Mapping[str, Any]) -> bool:
    """Returns whether the error is that the conversation exceeds the context window."""
    reason = " ".join(str(error.get(key) or "")[:4000] for key in ("message", "code", "type"))
    return _OVERFLOW.search(reason) is not None and not _OTHER_LIMIT.search(reason)


def output_maximum(reason: str, asked: int) -> tuple[int, bool] | None:
    """Returns how many output tokens are allowed, where ``asked`` of them are too many, and whether that is lasting.

    It is lasting as the model's maximum, and not as what the prompt leaves of the context window.
    """
    if not _OF_OUTPUT.search(reason):
        return None
    numbers = {int(number.replace(",", "")) for number in _NUMBER.findall(reason[:4000])} - {asked, 0, 1}
    requested = _REQUESTED.search(reason)
    totals = {int(requested[1].replace(",", ""))} if requested else {number + asked for number in numbers}
    prompts = {total - asked for total in totals & numbers}
    window, *others = sorted(numbers - totals - prompts, reverse=True) or [0]
    if (_OVERFLOW.search(reason) or "inputs" in reason) and (prompts or others):
        left = window - max(prompts or others)
        return (left, False) if LEAST_OUTPUT <= left < asked else None
    most = max((number for number in numbers if number < asked), default=0) - bool(_EXCLUSIVE.search(reason))
    return (most, True) if most > 0 else None
