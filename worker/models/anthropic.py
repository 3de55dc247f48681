"""Models behind an endpoint of the Messages API: streamed replies, retries, prices and context windows."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Self

import aiohttp
import httpx2

from ...shared.errors import ContextFull, ModelUnavailable
from ...shared.settings import ModelPrice, Settings
from ...shared.text import visible
from ..web.dial import trust_store
from .base import Part, Price, Prompt, Retrying, undated
from .caching import encode_prefix, with_breakpoints
from .credentials import HEADERS, Credentials, Names
from .endpoint import Body, Endpoint, drain, endpoint_of
from .rate_limits import RateLimits, limits_in
from .retry import (
    Failure,
    RetryPolicy,
    RetryState,
    SpendLimitReached,
    classify_error,
    classify_response,
    error_in,
    output_maximum,
    with_full_stop,
)
from .stream import BYTES_PER_TOKEN, EventDecoder, ReplyAssembler
from .thinking import has_thinking, without_thinking

ADAPTIVE_THINKING = re.compile(r"claude-(fable|mythos|opus|sonnet|haiku)-5\b")
"""Models that think by default but omit it from the reply unless it is requested, with the text between calls."""
_OF_BEDROCK = re.compile(r"\A([a-z]+\.)?anthropic\.")
"""How Amazon Bedrock's names of the models begin."""
_WINDOWS = (
    (re.compile(r"claude-(fable|mythos|opus|sonnet|haiku)-5(-|$)"), 1_000_000),
    (re.compile(r"claude-"), 200_000),
)
MAX_ERROR_BYTES = 1024 * 1024
"""Bytes of the text of an error that are read: an endpoint may never end it."""
SENT = ("cache_control", "thinking")
"""What requests ask for that not every endpoint knows, by the names of ``lacks`` and of the fields."""
DEFAULT_WINDOW = 128_000
"""Tokens, for unknown models: an estimate that is too low costs a summary, one too high a rejected request."""


class AnthropicModel:
    """One model of one endpoint. ``lacks``: what that cannot do, so that it is not asked for it.

    Shared by all runs of a process, on any event loop; connections are shared by all models of an endpoint.
    """

    def __init__(
        self,
        name: str,
        credentials: Credentials,
        retry_policy: RetryPolicy | None = None,
        *,
        prices: Mapping[str, ModelPrice] | None = None,
        cache_diagnostics: bool | None = None,
        lacks: Collection[str] = (),
        window: int | None = None,
    ) -> None:
        self.name = name
        self._known_name = _OF_BEDROCK.sub("", name)
        self._lacks = lacks
        self._window = window
        self._prices = prices or {}
        self._cache_diagnostics = cache_diagnostics
        self._most_output = sys.maxsize
        """The model's maximum of output tokens, as far as the endpoint has named it when it refused a request."""
        self._retry_policy = retry_policy or RetryPolicy()
        self._credentials = credentials
        self.endpoint_id = self._credentials.digest(name)
        self.report_limits: Callable[[RateLimits], None] = lambda _: None
        """Called with the rate limits that a response states."""
        self.key: int | None = None
        """Which of several keys it has, from 1; None where there is one."""
        self.of_keys: Sequence[Self] = [self]
        """The same model with each of its keys."""

    @classmethod
    def open(cls, name: str, settings: Settings) -> Self:
        """Returns the model of that table, with its first key, or of that name at the configured endpoint.

        The first call blocks; run it in a thread. Raises Misconfigured for a table that cannot be used.
        """
        count = len(settings.table_of(name).keys)
        models = [cls._open(name, settings, place) for place in range(max(count, 1))]
        for number, model in enumerate(models, 1):
            model.key, model.of_keys = number if count > 1 else None, models
        return models[0]

    @classmethod
    def _open(cls, name: str, settings: Settings, place: int) -> Self:
        trust_store()
        table, credentials = settings.table_of(name), Credentials.of(settings, name, place)
        if credentials.uses_sdk:
            from .platforms import prepare

            prepare(credentials)
        model = table.model or name
        return cls(
            model,
            credentials,
            RetryPolicy(seconds=settings.model_retry_seconds),
            prices={**settings.prices, **({model: table.price} if table.price else {})},
            cache_diagnostics=settings.cache_diagnostics,
            lacks=table.lacks,
            window=table.context_window or settings.context_tokens,
        )

    def price(self) -> Price | None:
        """Returns the price of the settings, else today's; None for a model that is in neither price table."""
        return _price_set(self._prices, self.name) or price_of(self.name)

    def window(self) -> int:
        """Returns the context window in tokens, replies included: that of the settings, else by the model's name."""
        by_name = (tokens for name, tokens in _WINDOWS if name.match(self._known_name))
        return self._window or next(by_name, DEFAULT_WINDOW)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part, None]:
        """Yields deltas in order, then exactly one Reply; a Retrying for each temporary failure that is retried.

        Raises ModelUnavailable for a permanent failure, and where retries did not succeed in time. Closing the
        iterator, or cancelling the task that reads it, closes the HTTP stream immediately.
        """
        endpoint, given = self.endpoint(), prompt
        prompt = self.fitted(prompt)
        retries = RetryState(self._retry_policy)
        while True:
            body = self.body(prompt, endpoint)
            retries.begin_try()
            assembler = ReplyAssembler(self.price(), len(body) // BYTES_PER_TOKEN, self.names.url)
            failure = Failure("the stream was cut before the message's end", retryable=True)
            try:
                async with endpoint.post(body) as response:
                    await self._check(response, endpoint)
                    decoder, stream, chunk = EventDecoder(), Body(response, self._retry_policy.end_timeout), b"-"
                    while chunk and not (assembler.done or assembler.failure):
                        chunk = await stream.read(is_complete=bool(assembler.stop_reason))
                        for part in assembler.feed(decoder.feed(chunk) if chunk else decoder.end()):
                            yield part
                    if assembler.done:
                        await drain(response)
                    assembler.end()
            except Failure as error:
                failure = error
            if assembler.done or assembler.stop_reason:
                # An error after the stop reason does not belong to the reply.
                yield replace(assembler.finish(), refused_thinking=prompt.messages is not given.messages)
                return
            if other := self.with_other_options(prompt, failure):
                prompt = other
                continue
            delay = retries.next_delay(failure, replied=assembler.started)
            if delay is None:
                raise self._final_error(failure, retries, endpoint.url, body)
            masked, asked = self._credentials.masked(str(failure)), failure.retry_after
            yield Retrying(masked, delay, assembler.usage, asked, most=retries.left, refused=failure.is_of_rate)

    def fitted(self, prompt: Prompt) -> Prompt:
        """Returns the prompt with no more output tokens than the model has, as far as its endpoint has named that."""
        most = self._most_output
        return replace(prompt, max_output_tokens=most) if prompt.max_output_tokens > most else prompt

    async def _check(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        """Reports the limits that the response states. Raises Failure unless it is an event stream."""
        if limits := limits_in(response.headers):
            self.report_limits(limits)
        await check_response(response, self.name, endpoint.url, self.names)

    def with_other_options(self, prompt: Prompt, failure: Failure) -> Prompt | None:
        """Returns the prompt with fewer output tokens, where it was refused because of them; notes the maximum.

        Returns it without the thinking in its messages where that is refused: its signature is that of another model,
        or a gateway has lost it. Where it forced a tool, returns it without: not every endpoint and model can.
        """
        if failure.is_of_thinking and any(map(has_thinking, prompt.messages)):
            return replace(prompt, messages=[*map(without_thinking, prompt.messages)])
        allowed = None if failure.retryable else output_maximum(failure.reason, prompt.max_output_tokens)
        if allowed is None:
            may_be_choice = prompt.only_tool and not (failure.retryable or failure.too_long)
            return replace(prompt, only_tool=None) if may_be_choice else None
        most, lasting = allowed
        self._most_output = most if lasting else self._most_output
        return replace(prompt, max_output_tokens=most)

    @property
    def names(self) -> Names:
        return self._credentials.names

    @property
    def account(self) -> str:
        """Identifies endpoint and credentials without naming them: what one message batch may hold."""
        return self._credentials.id

    @property
    def is_signed(self) -> bool:
        """Whether the SDK of a cloud platform signs its requests."""
        return self._credentials.platform != "anthropic"

    @property
    def thinks(self) -> bool:
        """Whether it is asked to think."""
        return "thinking" not in self._lacks and ADAPTIVE_THINKING.match(self._known_name) is not None

    def endpoint(self) -> Endpoint:
        """Returns the running event loop's client. Raises ModelUnavailable where it cannot be used."""
        try:
            endpoint = endpoint_of(self._credentials, self._retry_policy)
        except (httpx2.InvalidURL, ValueError) as error:
            reason = self._credentials.masked(str(error))
            of = f" of {self.names.table}" if self.names.table else ""
            raise ModelUnavailable(f"the model's endpoint{of} is misconfigured: {reason}") from None
        if not endpoint.has_credentials:
            raise ModelUnavailable(
                f"no credentials for {endpoint.url}. Set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), or "
                "ANTHROPIC_BASE_URL for an endpoint that needs none; DEPUTIZE_MODEL=scripted needs no endpoint."
                + self.names.others
            )
        return endpoint

    def _final_error(self, failure: Failure, retries: RetryState, url: str, body: bytes) -> ModelUnavailable:
        if not failure.retryable:
            return self.refusal(failure, body)
        reason, advice = self._credentials.masked(str(failure)), ""
        if (seconds := self._retry_policy.seconds) is not None:
            advice = f" DEPUTIZE_MODEL_RETRY_SECONDS ({seconds:g}) is how long failures are retried."
        return ModelUnavailable(
            f"model {self.name} at {url} did not answer for {retries.failed_seconds:.0f} s, after {retries.tries} "
            f"{'try' if retries.tries == 1 else 'tries'}; the last one: {with_full_stop(reason)} Check that the "
            f"endpoint is up and {self.names.url} is right, or try again later.{advice}",
            may_pass=True,
        )

    def refusal(self, failure: Failure, body: bytes) -> ModelUnavailable:
        """Returns the error for a request that the endpoint refuses, however often it is sent."""
        reason = self._credentials.masked(str(failure))
        if failure.is_spent:
            return SpendLimitReached(f"model {self.name} cannot be used: {reason}")
        reason = f"{with_full_stop(reason)} {advice}" if (advice := self._lack_in(failure, body)) else reason
        # A long conversation is shortened once: its length may be what an unknown refusal is about.
        may_be_long = failure.is_of_request and not advice and len(body) > self.window() // 2 * BYTES_PER_TOKEN
        error_class = ContextFull if failure.too_long or may_be_long else ModelUnavailable
        return error_class(f"model {self.name} cannot be used: {reason}")

    def _lack_in(self, failure: Failure, body: bytes) -> str:
        """Returns the setting by which runs do without what the endpoint has refused; "" where it is something else."""
        if not failure.is_of_request:
            return ""
        reason, table = failure.reason.lower(), self.names.table or f"[models.{json.dumps(self.name)}]"
        lack = next((each for each in SENT if each in reason and b'"%b"' % each.encode() in body), None)
        if lack is None and failure.is_of_thinking and self.thinks:
            lack = "thinking"
        if lack:
            return f'Set lacks = ["{lack}"] in {table}: runs then do without it (deputize doctor --model finds it).'
        if re.search("output_config|effort", reason) and b'"output_config"' in body:
            return (
                f'Leave effort out, or ask for another one. With lacks = ["effort"] in {table} it is refused at once.'
            )
        if "diagnostics" in reason and b'"diagnostics"' in body:
            return "Set DEPUTIZE_CACHE_DIAGNOSTICS=false: runs then do without it."
        return f"Check {HEADERS}: it has the header." if "beta" in reason and self._credentials.get(HEADERS) else ""

    def body(self, prompt: Prompt, endpoint: Endpoint, *, streamed: bool = True) -> bytes:
        """Returns the request body, joined from bytes that were each encoded once."""
        diagnosed = endpoint.is_anthropic if self._cache_diagnostics is None else self._cache_diagnostics
        forced = prompt.only_tool if prompt.tools else None
        options = b"" if prompt.allow_tools or not prompt.tools else b'"tool_choice":{"type":"none"},'
        if forced:
            options = b'"tool_choice":{"type":"tool","name":%b},' % json.dumps(forced).encode()
        if prompt.effort and not (forced and self.thinks):  # not every effort is allowed where thinking is disabled
            options += b'"output_config":{"effort":"%b"},' % prompt.effort.encode()
        if diagnosed:
            previous = json.dumps(prompt.previous_reply).encode()
            options += b'"diagnostics":{"previous_message_id":%b},' % previous
        head = b'"max_tokens":%d,%b"messages":[' % (prompt.max_output_tokens, options)
        cached = "cache_control" not in self._lacks
        prefix = encode_prefix(
            self.name,
            prompt.system,
            prompt.tools,
            # An endpoint refuses to force a tool where the model thinks.
            thinking=("disabled" if forced else "adaptive") if self.thinks else "",
            for_an_hour=prompt.cached_for_an_hour,
            only_shared=prompt.only_shared_for_an_hour,
            cached=cached,
        )
        messages = with_breakpoints(self._known_name, prompt, prefix) if cached else prompt.messages
        prefix = prefix if streamed else prefix.replace(b'"stream":true,', b"", 1)
        return b"".join((prefix, head, b",".join(messages), b"]}"))


async def check_response(response: aiohttp.ClientResponse, model: str, url: str, names: Names) -> None:
    """Raises Failure unless the response is an event stream."""
    kind = response.headers.get("content-type", "text/event-stream")
    if response.status == 200 and kind.startswith("text/event-stream"):
        return
    sent = response.request_info.headers.get("authorization", "").rpartition(" ")[2]
    body = await _beginning(response)
    body = body.replace(sent.encode(), b"***") if sent else body  # also a token that no setting has
    if response.status != 200:
        raise classify_response(response.status, response.headers, body, model, url, names)
    if (error := error_in(body)).get("message"):
        raise classify_error(error, f"from {url}, with status 200", unknown_passes=False)
    raise Failure(
        f"{url} answered with {kind} instead of an event stream, so it is not a Messages API. Check "
        f"{names.url}. The answer begins: {visible(body[:100].decode('utf-8', 'replace'))}",
        retryable=False,
    )


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ERROR_BYTES:
            break
    return bytes(body[:MAX_ERROR_BYTES])


def _price_set(prices: Mapping[str, ModelPrice], model: str) -> Price | None:
    price = prices.get(model) or prices.get(undated(model))
    if price is None:
        return None
    cache_read, cache_write = (price.input if each is None else each for each in (price.cache_read, price.cache_write))
    return Price(price.input, price.output, cache_read, cache_write, write_1h=price.cache_write_1h)


def in_batch(price: Price) -> Price:
    """Returns the price of the same tokens in a message batch."""
    factor: float = _price_file()["batch"]["factor"]
    rates = {name: getattr(price, name) * factor for name in ("input", "output", "cache_read", "cache_write")}
    return replace(price, **rates, above=price.above and in_batch(price.above), write_1h=price.cache_write_1h * factor)


def price_of(model: str, day: date | None = None) -> Price | None:
    """Returns the price on a day (default: today, UTC), or None where it is unknown.

    A model name with a date suffix has the price of the model.
    """
    return _price_on(day or datetime.now(UTC).date(), model)


@cache  # the package may be upgraded under a running worker
def _price_file() -> dict[str, Any]:
    return json.loads(files(__package__ or "").joinpath("prices.json").read_text("utf-8"))


@lru_cache(maxsize=64)
def _price_on(day: date, model: str) -> Price | None:
    rows: list[dict[str, Any]] = _price_file()["models"].get(undated(model), [])
    current = [row for row in rows if date.fromisoformat(row["since"]) <= day]
    if not current:
        return None
    fields = {**max(current, key=lambda row: row["since"])}
    del fields["since"]
    if "above" in fields:
        fields["above"] = Price(**fields["above"])
    return Price(**fields)
