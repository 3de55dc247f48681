"""Model calls: the maximum cost of each is reserved before it is made, its actual cost is counted after."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from functools import partial

from deputize.shared.delegation import TerminationReason, Usage
from deputize.shared.errors import ModelUnavailable
from deputize.shared.events import TextDelta, ThinkingDelta
from deputize.worker.conversation import Conversation, user_message
from deputize.worker.emit import Emitter
from deputize.worker.fleet.endpoint_wait import EndpointWait
from deputize.worker.fleet.shared_prefix import PrefixWait
from deputize.worker.limits import Meter
from deputize.worker.models.base import Model, Prompt, Reply, ReplyStarted, Retrying, TextPart, ThinkingPart, ToolSpec
from deputize.worker.models.caching import Retention, shared_prefixes
from deputize.worker.prompt import ask_for_report, ask_for_summary
from deputize.worker.spending import Spending

MAX_OUTPUT_TOKENS = 16_000
SUMMARY_TOKENS = 8_000


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """The model calls of one run. All have the same system prompt and tools: caches and signatures bind to them.

    Every method raises ``LimitReached`` (budget), ``ContextFull`` and ``ModelUnavailable``.
    """

    model: Model
    system: str
    tools: tuple[ToolSpec, ...]
    conversation: Conversation
    meter: Meter
    emit: Emitter
    wait: EndpointWait
    shared: PrefixWait
    retention: Retention
    checkpoint: Callable[[], None]
    """Stores the meter's counts, so that the usage owed survives this worker."""
    count: Callable[[Usage], None]
    """Called with the usage of every reply."""
    spending: Spending | None = None
    """None where the day's spending is not capped."""

    async def reply(self, turn: int) -> Reply:
        """Returns the reply of a turn, with keys for its calls; its text is published as it arrives."""
        reply = await self._reply(self._prompt(), turn)
        return reply.with_call_keys(turn, self.conversation.retries)

    async def final_reply(self, turn: int) -> Reply:
        """Returns a reply without tool calls, which does not count as a turn."""
        reply = await self._reply(self._prompt(allow_tools=False), turn, counted=False)
        return reply.without_calls()

    async def summary(self) -> str:
        """Returns the model's summary of the conversation, which itself stays as it is."""
        prompt = self._prompt(user_message(ask_for_summary()), allow_tools=False)
        prompt = replace(prompt, max_output_tokens=SUMMARY_TOKENS)
        return (await self._reply(prompt, self.meter.turns, counted=False, stream=False)).text.strip()

    def _prompt(self, *further: bytes, allow_tools: bool = True) -> Prompt:
        messages = [*self.conversation.messages, *further] if further else self.conversation.messages
        return Prompt(
            self.system,
            self.tools,
            messages,
            MAX_OUTPUT_TOKENS,
            allow_tools,
            self.conversation.reply_id,
            shared_end=self.conversation.shared_end,
            sent=self.conversation.sent,
            cached_for_an_hour=self.retention.hour(),
        )

    def _admitted(self, prompt: Prompt) -> AbstractAsyncContextManager[None]:
        """Waits, where that is worth it, until the prefix that other delegations share is in the prompt cache."""
        endpoint = self.model.endpoint_id
        find = partial(shared_prefixes, endpoint or "", self.model.name, prompt)
        return self.shared.request(endpoint, find, self.model.price(), hour=prompt.cached_for_an_hour)

    async def _reply(self, prompt: Prompt, turn: int, *, counted: bool = True, stream: bool = True) -> Reply:
        """Returns one reply with its price; ``prompt.max_output_tokens`` is lowered to what the budget allows.

        ``counted``: the reply counts as a turn. ``stream``: text deltas are published.
        """
        self.meter.hour_writes = prompt.cached_for_an_hour
        bounded = self.meter.has_budget or self.spending
        tokens = await self.conversation.tokens_at_most(prompt) if bounded else 0
        async with (
            self._admitted(prompt),
            self.wait.call(
                self.model.endpoint_id, partial(self._begin, Usage(), counted), lambda: self.meter.time_for_summary
            ),
        ):
            while True:
                allowance = self.meter.output_allowance(tokens, prompt.max_output_tokens)
                if self.spending:
                    allowance = await self.spending.allowance(tokens, allowance)
                allowed = replace(prompt, max_output_tokens=allowance)
                if reply := await self._stream(allowed, tokens, turn, counted=counted, stream=stream):
                    usage = self.meter.spend(reply.usage)
                    self.count(usage)
                    if self.spending:
                        await self.spending.settle()
                    return replace(reply, usage=usage)

    def _begin(self, usage: Usage, counted: bool) -> None:
        """Stores what is owed for the reply under way, and that its turn is not yet complete."""
        self.meter.begin_reply(usage, counted=counted)
        self.checkpoint()

    async def _stream(self, prompt: Prompt, tokens: int, turn: int, *, counted: bool, stream: bool) -> Reply | None:
        """Returns None where failed tries used so much that the prompt must be sent again with a smaller allowance."""
        begun = False
        self.shared.sends()
        async with aclosing(self.model.reply(prompt)) as parts:
            async for part in parts:
                match part:
                    case ReplyStarted(usage):
                        begun = True
                        self.wait.works()
                        self.shared.works(usage)
                        self._begin(usage, counted)
                    case TextPart(text) if stream:
                        self.emit.delta(TextDelta, turn, text)
                    case ThinkingPart(text) if stream:
                        self.emit.delta(ThinkingDelta, turn, text)
                    case Retrying():
                        self.meter.spend(part.wasted, wasted=True)
                        self.shared.failed()
                        fits = self.meter.output_allowance(tokens, prompt.max_output_tokens) >= prompt.max_output_tokens
                        await self.wait.retry(turn, part, begun=begun)
                        if not fits:
                            return None
                        begun = False
                    case Reply():
                        self.retention.note_reply()
                        return part
                    case _:
                        pass
        raise AssertionError("a model's stream ends with a Reply or an error")


def report_requested(conversation: Conversation, reply: Reply) -> bool:
    """Asks the model for a report where its final reply is empty; returns whether it did.

    Raises ``ModelUnavailable`` where the reply to that is empty as well.
    """
    if not reply.is_empty or reply.termination_reason is not TerminationReason.COMPLETED:
        return False
    question = ask_for_report()
    if len(conversation.messages) > 1 and conversation.messages[-2] == user_message(question):
        raise ModelUnavailable(
            "the model ended its work with an empty reply, and again when it was asked for a report. What was done is "
            "in the steps and the files; whether the task is done is not known",
            may_pass=True,
        )
    conversation.ask(question)
    return True
