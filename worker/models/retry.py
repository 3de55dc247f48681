"""Which failures of a model call pass by themselves, how long to wait for that, and what to say when they do not."""

from __future__ import annotations

import email.utils
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

RETRYABLE_STATUS = {408, 409, 425, 429}
"""HTTP statuses below 500 after which the same request may succeed."""
LASTING_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "billing_error",
    "request_too_large",
}
"""Error types of the API that come again with the same request; those not known here may pass."""
TOO_LONG = re.compile(
    r"prompt is too long|context (window|length|limit)|maximum context|too many tokens", re.IGNORECASE
)
"""How endpoints of several makers say, with status 400, that the conversation is longer than the model's window."""
SPEND_LIMIT = "enforced_spend_limit_reached"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long failures are borne. All times are in seconds."""

    seconds: float = 300
    """How long the failures of one turn may last, from the first of them; 0 asks once.

    Time in which the endpoint was replying does not count, so that a long reply that is cut can be asked for again.
    """
    tries: int | None = None
    """How often one turn is asked at most. None: as often as the time allows."""
    first_delay: float = 0.5
    """Doubled at each further try, when the endpoint does not say how long to wait."""
    longest_delay: float = 30
    longest_wait: float = 300
    """Cap on what a Retry-After may ask for. The time that is left for failures is another."""
    read_timeout: float = 120
    """A stream that is silent for so long has stalled."""
    connect_timeout: float = 10

    def delay(self, tries_made: int, asked: float | None) -> float:
        """Seconds until the next try. Jittered, so that a fleet that failed together does not come back together."""
        if asked is not None:
            return min(asked * random.uniform(1, 1.1), self.longest_wait)  # noqa: S311 - no secret
        doubled = self.first_delay * 2 ** min(tries_made - 1, 60)  # a float ends at 2 ** 1023
        return min(doubled, self.longest_delay) * random.uniform(0.5, 1)  # noqa: S311


class Failure(Exception):
    """One try failed. ``retryable`` says whether another one makes sense, ``retry_after`` when (seconds).

    ``too_long``: the conversation does not fit into the model's window.
    """

    def __init__(
        self, message: str, *, retryable: bool, retry_after: float | None = None, too_long: bool = False
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.too_long = too_long
        self.retry_after = retry_after


class Outage:
    """The failures of one turn so far: when to try again, and when to give up. All times are in seconds."""

    def __init__(self, retry_policy: RetryPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = retry_policy
        self._clock = clock
        self._begun = clock()
        self.tries = 0
        self.lasted = 0.0
        """From the first failure, without the time in which the endpoint was replying."""

    def begin_try(self) -> None:
        self._begun = self._clock()

    def next_delay(self, failure: Failure, *, replied: bool) -> float | None:
        """Returns when to try again after this failure; None where that is of no use, or the time for it is over.

        ``replied`` says whether the try that failed had got the beginning of a reply.
        """
        if self.tries and not replied:
            self.lasted += self._clock() - self._begun
        self.tries += 1
        left = self._patience.seconds - self.lasted
        if failure.too_long or not failure.retryable or left <= 0 or self.tries == self._patience.tries:
            return None
        delay = min(self._patience.delay(self.tries, failure.retry_after), left)
        self.lasted += delay
        return delay


def classify_response(status: int, headers: Mapping[str, str], body: bytes, model: str, url: str) -> Failure:
    """What an answer that is not 200 means. The message names the variable to look at, never a secret."""
    error = _api_error(body)
    said = str(error.get("message") or body[:200].decode("utf-8", "replace").strip() or "no reason given")
    details: Any = error.get("details")
    spent = isinstance(details, dict) and details.get("error_code") == SPEND_LIMIT
    retryable = not spent and (status in RETRYABLE_STATUS or status >= 500)
    if (told := headers.get("x-should-retry")) in ("true", "false") and not spent:
        retryable = told == "true"
    advice = _SPEND_ADVICE if spent else "" if retryable else _ADVICE.get(status, _OTHER_ADVICE)
    return Failure(
        f"HTTP {status} from {url}: {sentence(said)}" + (f" {advice.format(model=model)}" if advice else ""),
        retryable=retryable,
        retry_after=asked_delay(headers),
        too_long=status == 413 or (status == 400 and TOO_LONG.search(said) is not None),
    )


def sentence(said: str) -> str:
    """The words with a full stop, so that advice can follow them."""
    return said if said.endswith((".", "!", "?")) else f"{said}."


def told_in_stream(error: Mapping[str, Any]) -> Failure:
    """What an ``error`` event means; it comes with status 200, so its type has to tell."""
    kind = str(error.get("type") or "api_error")
    said = str(error.get("message") or "no reason given")
    return Failure(f"{kind} inside the stream: {said}", retryable=kind not in LASTING_TYPES)


def classify_transport_error(error: httpx2.HTTPError, url: str, retry_policy: RetryPolicy) -> Failure:
    """What a connection's failure means. All of them may pass but those that are written into the settings."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure(
            f"the certificate of {url} is not trusted: {error}. Check ANTHROPIC_BASE_URL, or name the certificate "
            "authority in SSL_CERT_FILE.",
            retryable=False,
        )
    said = str(error) or type(error).__name__
    match error:
        case httpx2.ReadTimeout():
            said = f"the stream stalled: no byte for {retry_policy.read_timeout:g} s"
        case httpx2.ConnectTimeout():
            said = f"no connection to {url} within {retry_policy.connect_timeout:g} s"
        case httpx2.ConnectError():
            said = f"no connection to {url}: {said}"
        case httpx2.UnsupportedProtocol() | httpx2.TooManyRedirects():
            return Failure(f"{said} Check ANTHROPIC_BASE_URL ({url}).", retryable=False)
        case _:
            said = f"the connection to {url} broke: {said}"
    return Failure(said, retryable=True)


def asked_delay(headers: Mapping[str, str]) -> float | None:
    """The seconds an answer asks to wait, from ``retry-after-ms`` or ``retry-after`` (a number or a date)."""
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        pass
    asked = headers.get("retry-after", "")
    try:
        return max(0.0, float(asked))
    except ValueError:
        date = email.utils.parsedate_tz(asked)
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


_ADVICE = {
    400: "The request itself was rejected; if it names the model or a parameter, check DEPUTIZE_MODEL ({model}).",
    401: "Check ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) and that it belongs to ANTHROPIC_BASE_URL.",
    402: "The account cannot be billed; settle it in the provider's console.",
    403: "The key is known but may not do this; check its permissions for model {model}.",
    404: "Check DEPUTIZE_MODEL ({model}) and ANTHROPIC_BASE_URL: one of them does not exist there.",
    413: "The conversation is too large for the endpoint; give the task less context.",
}
_OTHER_ADVICE = "Check ANTHROPIC_BASE_URL and DEPUTIZE_MODEL ({model})."
_SPEND_ADVICE = "The spend limit is reached; raise it in the provider's console. Trying again would be refused too."


def _api_error(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError):
        return {}
    return error if isinstance(error, dict) else {"message": error}
