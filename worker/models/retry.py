"""Failed requests: the reasons that endpoints give, which failures are temporary, and how long to wait."""

from __future__ import annotations

import email.utils
import json
import math
import random
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...shared.errors import ModelUnavailable
from .credentials import OF_VARIABLES, Names

RETRYABLE_STATUS = {408, 409, 425, 429}
"""HTTP statuses below 500 after which the same request may succeed."""
REFUSING_STATUS = {429, 529}
"""HTTP statuses of an endpoint that works, but takes no more requests now."""
PERMANENT_ERROR_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "billing_error",
    "request_too_large",
}
"""Error types of the API for which retrying the same request is useless; unknown types are retried."""
TEMPORARY_ERROR_TYPES = {"overloaded_error", "rate_limit_error", "api_error", "timeout_error"}
OVERFLOW_STATUS = {400, 422}
"""HTTP statuses below 500 with which endpoints refuse a conversation that is too long; 413 means nothing else."""
SPEND_LIMIT_CODE = "enforced_spend_limit_reached"
SPENT_STATUS = {400, 402, 403, 429}
_OF_SPENDING = re.compile(r"\b(spend(ing)?|credit)[ _-](limit|cap)\b", re.IGNORECASE)
"""The words for a limit on money, where no time is stated after which requests are taken again."""
TIMER_SECONDS = 0.001
"""What a timer may be early by: less retry time than that is none."""
_SUBJECT = r"\b(prompt|input|conversation|history|messages?|text|context|sequence|token count|(?<!per )tokens)\b"
_THAN = r"(longer|more|greater|larger|bigger|higher) than(?! or equal)"
_MORE = rf"\b(too (long|large|big|many)|exceed(s|ed|ing)?|{_THAN})\b"
_OVERFLOW = re.compile(
    r"context[ _-]?(window|length|limit|size|overflow)|maximum context|too many (input |prompt )?tokens"
    r"|request[ _](is )?too[ _](large|long)|range of input length|max(imum)?[ _](prompt|input)[ _](length|size|tokens)"
    r"|(model|input|prompt|max|maximum) token limit|token limit (is |was )?exceeded|max_model_len|上下文|コンテキスト"
    rf"|{_SUBJECT}[^.;]{{0,60}}{_MORE}"
    r"|\bexceed(s|ed|ing)?\b[^.;]{0,60}\b(input|prompt|context|maximum number of tokens)\b"
    r"|\breduce the (length|size|number) of (the |your )?(input|prompt|message|conversation|context|tokens)",
    re.IGNORECASE,
)
"""The words of endpoints for a conversation that is longer than the context window."""
_OF_LENGTH = re.compile(
    r"tokens?\b|\blength\b|\bwindow\b|长度|長度|長さ|トークン|토큰|longueur|jetons|longitud", re.IGNORECASE
)
"""With two numbers, such a word is about a conversation and what it may be at most, in whichever words."""
LEAST_LENGTH = 256
"""Numbers below it are not lengths of conversations, but those of names or positions."""
_OTHER_LIMIT = re.compile(
    r"per[ -](minute|hour|day|second|month)\b|\b[tr]p[md]\b|rate.?limit|\b(image|header|cookie)s?\b|\btools?[.\[]",
    re.IGNORECASE,
)
"""What is too long or too many here is not the conversation."""
_OF_INPUT = re.compile(r"\b(inputs?|prompt|messages?|conversation|context|history|text)\b", re.IGNORECASE)
_THOUGHT = "(thinking|thought|reasoning)"
_OF_THINKING = re.compile(rf"{_THOUGHT}|signature|encrypted.content|思考|思维|签名", re.IGNORECASE)
_OF_SIGNATURE = re.compile(rf"{_THOUGHT}[^;]*signature|signature[^;]*{_THOUGHT}", re.IGNORECASE)
_OF_OUTPUT = re.compile(
    r"max\w*[ _]?tokens|max_new|(output|completion) tokens|in the (output|completion)", re.IGNORECASE
)
_REQUESTED = re.compile(r"requested\D{0,12}(\d[\d,]*\d)")
_NUMBER = re.compile(r"(?<![\w.-])(?:\d{1,3}(?:,\d{3})+|\d+)(?![\w-]|\.\d)", re.ASCII)
_EXCLUSIVE = re.compile(r"\b(lower|less|smaller) than(?! or equal)|exclusive\)", re.IGNORECASE)
LEAST_OUTPUT = 256
"""Output tokens below which the conversation is shortened instead of the reply."""
MAX_REASON = 4000
"""Characters of an endpoint's reason, which may repeat what it was sent: the searches above take quadratic time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often failed requests are retried. All times are in seconds."""

    seconds: float | None = None
    """How long one turn is retried, from its first failure; 0 never retries, None has no end of its own.

    Time in which the endpoint was replying does not count, so that a long reply that was cut can be requested again.
    """
    tries: int | None = None
    """Maximum number of tries per turn. None: as many as the time allows."""
    first_delay: float = 0.5
    """Doubled at each further try, where the endpoint sends no Retry-After."""
    longest_delay: float = 30
    longest_wait: float = 60
    """Cap on a Retry-After: quotas are often raised or reset earlier. The remaining retry time is a second one."""
    read_timeout: float = 120
    """A stream without a byte for so long has stalled."""
    connect_timeout: float = 10
    end_timeout: float = 5
    """How long the end of a reply may take once its stop reason has come: some gateways never send it."""

    def delay(self, tries_made: int, retry_after: float | None) -> float:
        """Returns the seconds until the next try, with jitter, so that a fleet does not retry all at once."""
        if retry_after is not None:
            return min(retry_after * random.uniform(1, 1.1), self.longest_wait)  # noqa: S311 - not for cryptography
        doubled = self.first_delay * 2 ** min(tries_made - 1, 60)  # a float overflows at 2 ** 1024
        return min(doubled, self.longest_delay) * random.uniform(0.5, 1)  # noqa: S311


class Failure(Exception):
    """One try failed. ``retryable``: the failure is temporary. ``retry_after``: seconds the endpoint asks to wait.

    ``too_long``: the conversation exceeds the context window. ``reason``: the endpoint's own words. ``status``: that of
    HTTP, or the one that an error within a stream stands for; 0 for failures of the connection. ``is_spent``: the
    account's limit on spending is reached.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        too_long: bool = False,
        reason: str = "",
        status: int = 0,
        is_spent: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_spent = is_spent
        self.retryable, self.retry_after, self.too_long, self.reason = retryable, retry_after, too_long, reason
        self.status = status

    @property
    def is_of_request(self) -> bool:
        """Whether something in the request was refused, and not the caller or the model."""
        return not self.retryable and self.status in OVERFLOW_STATUS

    @property
    def is_of_rate(self) -> bool:
        """Whether the endpoint works, but takes no more requests now."""
        return self.retryable and self.status in REFUSING_STATUS

    @property
    def is_of_thinking(self) -> bool:
        """Whether the request may have been refused because of the thinking in it; gateways wrap that in a 500."""
        if self.status >= 500:
            return _OF_SIGNATURE.search(self.reason) is not None
        return self.is_of_request and _OF_THINKING.search(self.reason) is not None


class SpendLimitReached(ModelUnavailable):
    """The endpoint takes no requests with this key until its day ends: the account's limit on spending is reached.

    ``seconds``: how long that is; None where it is not noted yet.
    """

    seconds: float | None = None


class RetryState:
    """The failed tries of one turn: when to retry, and when to stop. All times are in seconds."""

    def __init__(self, retry_policy: RetryPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_policy = retry_policy
        self._clock = clock
        self._try_start = clock()
        self._failed_at: float | None = None
        self.tries = 0
        self.failed_seconds = 0.0
        """Time since the first failure, without the time in which the endpoint was replying."""

    @property
    def left(self) -> float | None:
        """Returns the seconds for which failures are still retried, or None where they have no end of their own."""
        whole = self._retry_policy.seconds
        return None if whole is None else max(whole - self.failed_seconds, 0.0)

    def begin_try(self) -> None:
        """Counts the wait before this try, however long it was."""
        self._try_start = self._clock()
        if self._failed_at is not None:
            self.failed_seconds += self._try_start - self._failed_at

    def next_delay(self, failure: Failure, *, replied: bool) -> float | None:
        """Returns the seconds to wait before the next try; None for a permanent failure or when the time is over.

        ``replied``: the failed try had received the beginning of a reply.
        """
        if self.tries and not replied:
            self.failed_seconds += self._clock() - self._try_start
        self.tries += 1
        self._failed_at = self._clock()
        left = math.inf if self.left is None else self.left
        is_last = self.tries == self._retry_policy.tries or left <= TIMER_SECONDS
        if failure.too_long or not failure.retryable or is_last:
            return None
        return min(self._retry_policy.delay(self.tries, failure.retry_after), left)


def classify_response(
    status: int, headers: Mapping[str, str], body: bytes, model: str, url: str, names: Names = OF_VARIABLES
) -> Failure:
    """Returns the failure for a response whose status is not 200. The message names the setting to check, no secret."""
    error = error_in(body) or {"message": body[:200].decode("utf-8", "replace").strip()}
    reason = error.get("message") or "no reason given"
    details: Any = error.get("details")
    is_coded = isinstance(details, dict) and details.get("error_code") == SPEND_LIMIT_CODE
    asked = parse_retry_after(headers)
    spent = is_coded or (status in SPENT_STATUS and asked is None and _OF_SPENDING.search(reason) is not None)
    too_long = status == 413 or ((status in OVERFLOW_STATUS or status >= 500) and is_overflow(error))
    permanent = spent or too_long
    retryable = not permanent and (status in RETRYABLE_STATUS or status >= 500)
    if (header := headers.get("x-should-retry")) in ("true", "false") and not permanent:
        retryable = header == "true"
    advice = _SPEND_ADVICE if spent else "" if retryable else _ADVICE.get(status, _OTHER_ADVICE)
    return Failure(
        f"HTTP {status} from {url}: {with_full_stop(reason)} {advice.format(model=model, names=names)}".rstrip(),
        retryable=retryable,
        retry_after=asked,
        too_long=too_long,
        reason=reason,
        status=status,
        is_spent=spent,
    )


def with_full_stop(text: str) -> str:
    """Returns the text with a full stop, so that another sentence can follow it."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def classify_error(value: Any, where: str, *, unknown_passes: bool) -> Failure:
    """Returns the failure for an error with status 200: its code decides, or its type, and others may exist."""
    error = error_of(value)
    kind, code, reason = str(error.get("type") or "error"), error.get("code"), error.get("message") or "no reason given"
    passes = kind in TEMPORARY_ERROR_TYPES or (unknown_passes and kind not in PERMANENT_ERROR_TYPES)
    status = _STATUS.get(kind, 500 if passes else 403)
    if isinstance(code, int) and code >= 400:
        status, passes = code, code in RETRYABLE_STATUS or code >= 500
    too_long = kind not in ("rate_limit_error", "overloaded_error") and is_overflow(error)
    message = f"{kind} {where}: {reason}"
    return Failure(message, retryable=passes and not too_long, too_long=too_long, reason=reason, status=status)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of a ``retry-after-ms`` or ``retry-after`` header (a number or a date), or None."""
    with suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


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
        return {"message": value[:MAX_REASON]} if isinstance(value, str) else {}
    if inner := next((value[key] for key in ("error", "errors", "detail") if value.get(key)), None):
        return error_of(inner)
    reasons = [str(value[key]) for key in ("message", "msg", "error_message") if value.get(key)][:1]
    if isinstance(metadata := value.get("metadata"), dict) and metadata.get("raw"):
        reasons.append(str(metadata["raw"]))  # a gateway's name for the reason of the provider behind it
    return {**value, "message": ": ".join(reasons)[:MAX_REASON]}


def is_overflow(error: Mapping[str, Any]) -> bool:
    """Returns whether the error is that the conversation exceeds the context window.

    Endpoints word it in too many ways for a list: two numbers and a word of length suffice, unless they are about the
    length of the reply.
    """
    reason = " ".join(str(error.get(key) or "")[:MAX_REASON] for key in ("message", "code", "type"))
    if _OTHER_LIMIT.search(reason):
        return False
    if _OVERFLOW.search(reason):
        return True
    of_reply = _OF_OUTPUT.search(reason) and not _OF_INPUT.search(reason)
    lengths = {number for number in _numbers(reason) if number >= LEAST_LENGTH}
    return len(lengths) > 1 and _OF_LENGTH.search(reason) is not None and not of_reply


def _numbers(text: str) -> set[int]:
    return {int(number.replace(",", "")) for number in _NUMBER.findall(text)}


def output_maximum(reason: str, asked: int) -> tuple[int, bool] | None:
    """Returns how many output tokens are allowed, where ``asked`` of them are too many, and whether that is lasting.

    It is lasting as the model's maximum, and not as what the prompt leaves of the context window.
    """
    if not _OF_OUTPUT.search(reason):
        return None
    numbers = _numbers(reason) - {asked, 0, 1}
    requested = _REQUESTED.search(reason)
    totals = {int(requested[1].replace(",", ""))} if requested else {number + asked for number in numbers}
    prompts = {total - asked for total in totals & numbers}
    window, *others = sorted(numbers - totals - prompts, reverse=True) or [0]
    if (_OVERFLOW.search(reason) or "inputs" in reason) and (prompts or others):
        left = window - max(prompts or others)
        return (left, False) if LEAST_OUTPUT <= left < asked else None
    most = max((number for number in numbers if number < asked), default=0) - bool(_EXCLUSIVE.search(reason))
    return (most, True) if most > 0 else None


_STATUS = {
    "invalid_request_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
"""Statuses that types of errors within a stream stand for."""
_ADVICE = {
    400: "The request itself was rejected; if it names the model or a parameter, check {names.model} ({model}), or "
    "{names.output} for the length of replies.",
    401: "Check {names.key} and that it belongs to {names.url}.",
    402: "The account cannot be billed; settle it in the provider's console.",
    403: "The key is known but may not do this; check its permissions for model {model}.",
    404: "Check {names.model} ({model}) and {names.url}: one of them does not exist there.",
    407: "The proxy of HTTP_PROXY wants a user and password: add them to its address.",
    413: "The conversation is too large for the endpoint; give the task less context.",
}
_OTHER_ADVICE = "Check {names.url} and {names.model} ({model})."
_SPEND_ADVICE = "The spend limit is reached; raise it in the provider's console. Trying again would be refused too."
