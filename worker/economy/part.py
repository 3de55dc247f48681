"""The economy of one run: a model whose replies come from message batches, until the time gets short."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ...shared.connection import retried
from ...shared.delegation import Usage
from ...shared.errors import DeputizeError, Fenced, ModelUnavailable
from ...shared.events import ModelRetried, ProgressMade
from ..core.conversation import current_entries
from ..core.limits import LimitReached
from ..core.model_calls import ModelCalls
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..core.run_context import RunContext
from ..fleet.admission.keys import KeyedModel
from ..fleet.inbox import Inbox
from ..models.anthropic import AnthropicModel, in_batch
from ..models.base import Model, Price, Prompt, Reply
from ..models.base import Part as ReplyPart
from ..models.caching import FIVE_MINUTES, shared_prefixes
from ..models.retry import Failure, classify_error
from ..models.stream import BYTES_PER_TOKEN, ReplyAssembler
from ..models.thinking import without_thinking
from .senders import BatchSenders
from .turns import Placed, Turns

MOST_TRIES = 3
"""How often one turn is sent in a batch, where batches expire or their results are errors."""
LEAST_SECONDS = 300.0
"""A batch is not waited for any longer where less time is left until the deadline."""
FRESH_SECONDS = FIVE_MINUTES * 0.8
"""Where batches take longer, the entries of the whole conversation are kept for an hour."""


@dataclass(slots=True)
class Economy(Part):
    """One run whose turns go through message batches. It is the run's model, too: that of each reply decides how.

    ``of`` takes the model that is asked, by batches or directly.
    """

    must_settle = True  # a request would stay queued, and be paid for
    run: RunContext
    senders: BatchSenders
    inbox: Inbox
    open: Callable[[], Awaitable[Model]]
    reserve: Callable[[int, int], Awaitable[int]]
    """Reserves money for the call under way once more: returns how many output tokens it may have."""
    endpoint_id = None
    """Batches have a quota of their own, and no wait for a shared prefix helps them."""
    _asked: AnthropicModel | None = None
    _turns: Turns | None = None
    _calls: ModelCalls | None = None
    _direct: str = ""
    """Why the model is called directly; "" while batches are used."""
    _final: bool = False
    """Whether the turn is the final one."""
    _names: list[str] = field(default_factory=list[str])
    """Those that this attempt has given to turns."""
    _come: set[str] = field(default_factory=set[str])
    """Turns whose results were read, and are counted."""
    _reasons: list[str] = field(default_factory=list[str])
    """What is still to be reported of it."""

    def of(self, model: Model) -> Model:
        """Returns the model of the run: this one, or that model itself where it cannot be asked in batches.

        Of several keys a run tree has one, in each attempt: a batch can be read only with the key that created it.
        """
        if isinstance(model, KeyedModel):
            model = model.belonging_to(self.run.claim.path[0])
        if not isinstance(model, AnthropicModel):
            self._go_direct(f"{model.name} has no endpoint")
            return model
        self._asked, self._turns = model, self.senders.turns(model.account)
        if model.is_signed:
            self._go_direct("the platform of this endpoint has no message batches here")
        elif reason := self.senders.without.get(model.account):
            self._go_direct(reason)
        return self

    @property
    def _model(self) -> AnthropicModel:
        assert self._asked, "the model is not open"
        return self._asked

    @property
    def name(self) -> str:
        return self._model.name

    def price(self) -> Price | None:
        price = self._model.price()
        return price if self._direct or price is None else in_batch(price)

    def window(self) -> int:
        return self._model.window()

    async def begin(self, work: Work) -> RunOutcome | None:
        self._calls = work.loop.model_calls if work.loop else None
        self._report()
        return None

    async def before_turn(self, limit: LimitReached | None) -> None:
        """Lets no new message into the request of a turn that an earlier attempt has sent: it would be paid twice."""
        self._final = limit is not None
        if self._turns and self._calls and not self.run.claim.is_first:
            there = len(self._calls.conversation.messages)
            waiting = await self._turns.waiting(self.run.claim.id)
            if waiting and waiting[1] in (there, there + 1):  # one more: the request for a summary
                self.inbox.hold()

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        """Withdraws what is queued, and books what is on its way or has come and was not read."""
        if self._turns is None and not self.run.claim.is_first:  # it ended before its model was opened
            with suppress(DeputizeError):
                self.of(await self.open())
                self.run.meter.price = self.price() if self._turns else None
        if self._turns is None:
            return outcome
        await self.run.emit.settled()  # the last reply is stored before its turn is forgotten
        await self._withdraw(self._turns)
        return outcome

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart, None]:
        """Yields the reply of a batch; the parts of a direct one where batches are not used any more."""
        if not self._direct:
            self._check_time(await self._margin())
        if not self._direct or await self._has_come(prompt):
            if reply := await self._batched(prompt):
                yield reply
                return
        elif self._turns:
            await self._withdraw(self._turns)
        self._report()
        async with aclosing(self._directly(prompt)) as parts:
            async for part in parts:
                yield part

    async def _directly(self, prompt: Prompt) -> AsyncGenerator[ReplyPart, None]:
        """Yields the parts of a direct reply, admitted to its endpoint as those of other runs."""
        calls, model = self._calls, self._model
        assert calls
        if self.run.meter.price != model.price():
            prompt = await self._reserved(prompt)
        find = partial(shared_prefixes, model.endpoint_id, model.name, prompt)
        cache, hour = model.endpoint_id if calls.cached else None, prompt.cached_for_an_hour
        async with AsyncExitStack() as admitted:
            await admitted.enter_async_context(calls.shared.request(cache, find, model.price(), hour=hour))
            await admitted.enter_async_context(calls.wait.call(model.endpoint_id, lambda: None))
            calls.shared.sends()
            parts = await admitted.enter_async_context(aclosing(model.reply(prompt)))
            async for part in parts:
                yield part

    async def _reserved(self, prompt: Prompt) -> Prompt:
        """Returns the prompt as the limits allow it at the full price: what is reserved is that of a batch."""
        meter, tokens = self.run.meter, len(self._body(prompt)) // BYTES_PER_TOKEN
        meter.price = self._model.price()
        most = await self.reserve(tokens, meter.output_allowance(tokens, prompt.max_output_tokens))
        return replace(prompt, max_output_tokens=min(most, prompt.max_output_tokens))

    async def _batched(self, prompt: Prompt) -> Reply | None:
        """Returns the reply of a batch; None where the model is to be called directly. Raises ModelUnavailable."""
        given = prompt = await self._kept_for(self._model.fitted(prompt))
        key, again = self._key(prompt), ""
        while True:
            body = self._body(prompt, streamed=False)
            placed = await self._place(key, prompt, body, again)
            result = await self._result(placed.name)
            if result is None:
                return None
            self._come.add(placed.name)
            again = placed.name
            try:
                return replace(self._read(result, body), refused_thinking=prompt.messages is not given.messages)
            except Failure as failure:
                if other := self._model.with_other_options(prompt, failure):
                    prompt = other
                    continue
                if not failure.retryable:
                    raise self._model.refusal(failure, body) from None
                if placed.tries >= MOST_TRIES:
                    raise ModelUnavailable(
                        f"model {self.name} did not answer in {placed.tries} message batches; the last one: {failure}",
                        may_pass=True,
                    ) from None
                self.run.emit.emit(ModelRetried(turn=self.run.steps.turn, error=str(failure), delay_seconds=0.0))

    async def _kept_for(self, prompt: Prompt) -> Prompt:
        """Returns the prompt: what runs share is cached for an hour, and all of it where batches are slow."""
        assert self._turns
        took = await self._turns.took()
        is_slow = took is not None and took > FRESH_SECONDS
        return replace(prompt, only_shared_for_an_hour=not is_slow)

    async def _place(self, key: str, prompt: Prompt, body: bytes, again: str) -> Placed:
        """Queues the turn, or finds it where an earlier attempt did. Raises Fenced."""
        assert self._turns
        claim = self.run.claim
        await self.run.emit.settled()  # another attempt makes the same request only of what is stored
        attempt, _, token = claim.fence.partition(":")
        name = f"{claim.id}-{self.run.steps.turn}-{attempt}-{token[:8]}-{len(self._names) + 1}"
        self._names.append(name)
        about = {"key": key, "messages": len(prompt.messages), "tokens": len(body) // BYTES_PER_TOKEN, "body": body}
        placed = await retried(partial(self._turns.place, claim.id, claim.fence, name, again=again, **about))
        if placed is None:
            raise Fenced
        if placed.left:
            self._book_left(placed.left)
        return placed

    def _key(self, prompt: Prompt) -> str:
        """Returns what identifies a request in any attempt of this try: what is stored of it decides, nothing else."""
        retries, whole = self.run.claim.past.retries, len(prompt.messages) > 1
        if self._final:
            return f"{retries} final {whole}"
        digest = hashlib.sha256(repr((prompt.allow_tools, prompt.only_tool)).encode())
        for message in prompt.messages:
            digest.update(without_thinking(message))
        return f"{retries} {digest.hexdigest()[:32]}"

    def _body(self, prompt: Prompt, *, streamed: bool = True) -> bytes:
        return self._model.body(prompt, self._model.endpoint(), streamed=streamed)

    async def _result(self, name: str) -> Mapping[str, Any] | None:
        """Waits for the result of a turn, without slot and clock; None where the model is to be called directly."""
        assert self._turns
        id, turns = self.run.claim.id, self._turns
        if (result := await turns.result(id, name)) is None:
            detail = "the reply is in a message batch, at half the price"
            with self.run.waits.reported("batch", detail), self.senders.waiting(self._model):
                result = await self._awaited(id, name)
        if result and result["type"] == "unsupported":
            reason = f"the endpoint has no message batches (HTTP {result['status']})"
            self.senders.without[self._model.account] = reason
            self._go_direct(reason)
            return None
        return result

    async def _awaited(self, id: str, name: str) -> Mapping[str, Any] | None:
        assert self._turns
        try:
            while (result := await self._turns.result(id, name)) is None:
                if await self._is_late(id):
                    return None
                await asyncio.sleep(self.senders.pace.reply)
        except asyncio.CancelledError:
            if self._calls and self.run.emit.handed_over:  # the next attempt gets the reply, and books it
                self._calls.spending.under_way = False
            raise
        return result

    async def _is_late(self, id: str) -> bool:
        """Decides whether the reply is still waited for; gives up a turn that is not."""
        assert self._turns
        if self._seconds_left() > await self._margin():
            return False
        waiting = await self._turns.waiting(id)
        if waiting and waiting[2] in ("sending", "sent") and self._seconds_left() > LEAST_SECONDS:
            return False  # it is paid for, and may come at any moment
        await self._withdraw(self._turns)
        self._check_time(float("inf"))
        return True

    async def _has_come(self, prompt: Prompt) -> bool:
        """Returns whether the reply is there that an earlier attempt has asked for."""
        if self._turns is None or self.run.claim.is_first:
            return False
        waiting = await self._turns.waiting(self.run.claim.id)
        return waiting is not None and (waiting[0], waiting[2]) == (self._key(prompt), "done")

    async def _withdraw(self, turns: Turns) -> None:
        """Gives up the run's turn; what it costs nevertheless is counted."""
        state, *rest = await retried(partial(turns.withdraw, self.run.claim.id))
        if state in ("sending", "sent"):
            self._book_left(int(rest[1]))
        elif state == "done" and rest[0] not in self._come:
            self._book_unread(int(rest[2]), json.loads(rest[3]))

    def _seconds_left(self) -> float:
        """Returns the seconds until the deadline."""
        deadline = self.run.claim.request.deadline
        return (deadline - datetime.now(UTC)).total_seconds() if deadline else float("inf")

    async def _margin(self) -> float:
        """Returns how long before the deadline no batch is begun any more: as long as one of the last ones took."""
        assert self._turns
        return max(await self._turns.took() or 0.0, LEAST_SECONDS) if self.run.claim.request.deadline else 0.0

    def _check_time(self, margin: float) -> None:
        if self.run.meter.wraps_up:
            self._go_direct("its caller waits for the report")
        elif (left := self._seconds_left()) <= margin:
            self._go_direct(f"{max(left, 0):.0f} s are left until its deadline")

    def _read(self, result: Mapping[str, Any], body: bytes) -> Reply:
        """Returns the reply of a result. Raises Failure for one that has none."""
        match result["type"]:
            case "succeeded":
                return reply_of(result.get("message"), self.price(), len(body) // BYTES_PER_TOKEN)
            case "errored":
                raise classify_error(result.get("error"), "in a message batch", unknown_passes=True)
            case "refused":
                facts = {"reason": result["reason"], "status": result["status"], "too_long": result["too_long"]}
                raise Failure(result["message"], retryable=False, **facts)
            case kind:
                why = {"expired": "expired", "canceled": "was cancelled"}.get(kind, "was lost")
                raise Failure(f"the request {why} in its message batch", retryable=True)

    def _go_direct(self, why: str) -> None:
        if not self._direct:
            self._direct = why
            self._reasons.append(f"economy: the model is called directly, at the full price: {why}")

    def _report(self) -> None:
        while self._reasons:
            self.run.emit.emit(ProgressMade(message=self._reasons.pop(0)))

    def _book_left(self, tokens: int) -> None:
        """Books the prompt of a request that is not waited for any more: it is billed, and more is not known."""
        usage = Usage(input_tokens=tokens, batch_tokens=tokens)
        self.run.meter.spend(usage, wasted=True)
        message = f"economy: a request is left in its message batch; about {tokens:,} tokens are counted for it"
        self.run.emit.emit(ProgressMade(message=message))

    def _book_unread(self, messages: int, result: Mapping[str, Any]) -> None:
        """Books a reply that came while no attempt was there to read it, unless one has stored it."""
        if len(current_entries(self.run.claim.history)) <= messages and result["type"] == "succeeded":
            with suppress(Failure):
                self.run.meter.spend(reply_of(result.get("message"), None, 0).usage, wasted=True)


def reply_of(message: Any, price: Price | None, prompt_tokens: int) -> Reply:
    """Returns the reply of a whole message, as if it had been streamed. Raises Failure."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        raise Failure("the result of a message batch has no message", retryable=True)
    details = {"stop_reason": message.get("stop_reason"), "stop_details": message.get("stop_details")}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(message["content"]):
        events.append({"type": "content_block_start", "index": index, "content_block": dict(block)})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": details, "usage": message.get("usage")})
    assembler = ReplyAssembler(price, prompt_tokens)
    assembler.feed([*events, {"type": "message_stop"}])
    assembler.end()
    reply = assembler.finish()
    return replace(reply, usage=reply.usage.model_copy(update={"batch_tokens": reply.usage.total}))
