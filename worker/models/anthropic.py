"""Any endpoint that speaks the Messages API: streamed, with retries of our own, at a fraction of the SDK's cost."""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Self

import anthropic
import httpx2
from pydantic import SecretStr

from shared.errors import ContextFull, ModelUnavailable
from shared.settings import Settings
from worker.models.base import Part, Price, Prompt, Retrying, ToolSpec
from worker.models.endpoint import Credentials, Endpoint, endpoint
from worker.models.facts import price_of, window_of
from worker.models.retry import Failure, Outage, RetryPolicy, classify_response, classify_transport_error, sentence
from worker.models.stream import EventDecoder, ReplyAssembler
from worker.web.tls import trust_store

ADAPTIVE = re.compile(r"claude-(fable|mythos|opus|sonnet|haiku)-5\b")
"""Models that think by default but hide it unless asked; what they say between tool calls would be hidden too."""
MAX_PREFIXES = 512
"""Encoded prefixes kept, one a run at work."""


class AnthropicModel:
    """One model behind one endpoint. ``variables`` are the SDK's own (``ANTHROPIC_API_KEY``, …), already read.

    Shared by all runs of a process, on any of its loops; connections are shared by all models of an endpoint.
    """

    def __init__(self, name: str, variables: Mapping[str, SecretStr], retry_policy: RetryPolicy | None = None) -> None:
        self._name = name
        self._patience = retry_policy or RetryPolicy()
        self._access = Credentials.of(variables, self._patience)
        self._prefixes: OrderedDict[tuple[int, int], tuple[str, tuple[ToolSpec, ...], bytes]] = OrderedDict()

    @classmethod
    def open(cls, name: str, settings: Settings) -> Self:
        """The model of that name at the endpoint the settings say. Slow the first time, so open it in a thread."""
        trust_store()
        return cls(name, settings.model_endpoint, RetryPolicy(seconds=settings.model_retry_seconds))

    @property
    def name(self) -> str:
        return self._name

    def price(self) -> Price | None:
        """US dollars per million tokens as of today, or None for a model the price table does not know."""
        return price_of(self._name)

    def window(self) -> int:
        return window_of(self._name)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part, None]:
        """Deltas in order, then exactly one Reply. Passing failures are retried inside, each one a Retrying.

        Raises ModelUnavailable when trying again is of no use, or was of none for too long. Closing the iterator, or
        cancelling the task that reads it, closes the HTTP stream at once.
        """
        there = self._endpoint()
        body = self._body(prompt)
        outage = Outage(self._patience)
        while True:
            outage.begin_try()
            assembly = ReplyAssembler(self.price())
            failure: Failure | None = None
            try:
                async with there.ask(body) as answer:
                    await _check(answer.response, self._name, there.url)
                    decoder = EventDecoder()
                    async for chunk in answer.chunks:
                        for part in assembly.take(decoder.feed(chunk)):
                            yield part
                        if assembly.failure:
                            raise assembly.failure
                        if assembly.done:
                            await answer.drain()
                            break
            except (Failure, httpx2.HTTPError, anthropic.AnthropicError) as error:
                failure = self._understood(error, there.url)
            if assembly.done:
                yield assembly.finish()
                return
            failure = failure or Failure("the stream was cut before the message's end", retryable=True)
            delay = outage.next_delay(failure, replied=assembly.begun)
            if delay is None:
                kind = ContextFull if failure.too_long else ModelUnavailable
                raise kind(self._last_words(failure, outage, there.url))
            yield Retrying(self._access.masked(str(failure)), delay, assembly.usage)
            await asyncio.sleep(delay)

    def _endpoint(self) -> Endpoint:
        try:
            there = endpoint(self._access)
        except (anthropic.AnthropicError, httpx2.InvalidURL, ValueError, TypeError) as error:
            said = self._access.masked(str(error))
            raise ModelUnavailable(f"the model's endpoint is not set up right: {said}") from None
        if not there.has_credentials:
            raise ModelUnavailable(
                f"no credentials for {there.url}. Set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), or "
                "ANTHROPIC_BASE_URL for an endpoint that needs none; DEPUTIZE_MODEL=scripted needs no endpoint."
            )
        return there

    def _understood(self, error: Failure | httpx2.HTTPError | anthropic.AnthropicError, url: str) -> Failure:
        match error:
            case Failure():
                return error
            case httpx2.HTTPError():
                return classify_transport_error(error, url, self._patience)
            case _:  # from the SDK only credentials come here: profiles and identity tokens are its business
                return Failure(f"no credentials for {url}: {error}", retryable=False)

    def _last_words(self, failure: Failure, outage: Outage, url: str) -> str:
        said = self._access.masked(str(failure))
        if not failure.retryable:
            return f"model {self._name} cannot be used: {said}"
        return (
            f"model {self._name} at {url} did not answer for {outage.lasted:.0f} s, after {outage.tries} "
            f"{'try' if outage.tries == 1 else 'tries'}; the last one: {sentence(said)} Check that the endpoint is up "
            "and ANTHROPIC_BASE_URL is right, or try again later. DEPUTIZE_MODEL_RETRY_SECONDS "
            f"({self._patience.seconds:g}) says how long failures are borne."
        )

    def _body(self, prompt: Prompt) -> bytes:
        """The request, joined from bytes that were each encoded once."""
        options = b"" if prompt.allow_tools or not prompt.tools else b'"tool_choice":{"type":"none"},'
        head = b'"max_tokens":%d,%b"messages":[' % (prompt.max_output_tokens, options)
        return b"".join((self._prefix(prompt), head, b",".join(prompt.messages), b"]}"))

    def _prefix(self, prompt: Prompt) -> bytes:
        """Model, system and tools. Kept by identity: a run's prompts share these two objects, and hashing is dear."""
        key = (id(prompt.system), id(prompt.tools))
        known = self._prefixes.get(key)
        if known is None:
            # The entry holds both objects, so that their ids cannot be given to others while it lives.
            known = self._prefixes[key] = (prompt.system, prompt.tools, _encode_prefix(self._name, prompt))
            if len(self._prefixes) > MAX_PREFIXES:
                self._prefixes.popitem(last=False)
        else:
            self._prefixes.move_to_end(key)
        return known[2]


def _encode_prefix(model: str, prompt: Prompt) -> bytes:
    fields: dict[str, Any] = {"model": model, "stream": True, "cache_control": {"type": "ephemeral"}}
    if ADAPTIVE.match(model):
        fields["thinking"] = {"type": "adaptive", "display": "summarized"}
    if prompt.system:
        fields["system"] = prompt.system
    if prompt.tools:
        fields["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in prompt.tools
        ]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()[:-1] + b","


async def _check(response: httpx2.Response, model: str, url: str) -> None:
    """Raises Failure unless the answer is an event stream."""
    kind = response.headers.get("content-type", "text/event-stream")
    if response.status_code == 200 and kind.startswith("text/event-stream"):
        return
    body = await response.aread()
    if response.status_code != 200:
        raise classify_response(response.status_code, response.headers, body, model, url)
    raise Failure(
        f"{url} answered with {kind} instead of an event stream, so it is no Messages API. Check ANTHROPIC_BASE_URL.",
        retryable=False,
    )
