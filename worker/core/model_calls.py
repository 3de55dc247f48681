"""Model calls of a run: prompt, reservation of the cost, reply, retries and compaction; the cost is counted after."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

from ...shared.delegation import Step, TerminationReason, Usage
from ...shared.errors import ContextFull, ModelUnavailable, Refused
from ...shared.events import ProgressMade, TextDelta, ThinkingDelta
from ...shared.log import log
from ...shared.metrics import FIRST_TOKEN
from ...shared.text import clip
from ..models.base import Model, Prompt, Reply, ReplyStarted, Retrying, TextPart, ThinkingPart, ToolSpec
from ..models.caching import Retention, shared_prefixes
from ..models.endings import Ending, ending_of
from ..tools.context import SUBMIT
from .conversation import Conversation, user_message
from .limits import CapReached, LimitReached
from .prompt import (
    ASK_FOR_CALL,
    ASK_FOR_OUTPUT,
    ASK_FOR_REPORT,
    ASK_FOR_SUMMARY,
    ASK_FOR_WHOLE,
    CONTINUE_CUT_REPLY,
    CONTINUE_PAUSED_REPLY,
    continued_task,
)
from .run_context import RunContext
from .run_contracts import EndpointWait, PrefixWait, Spending

SUMMARY_TOKENS = 8_000
_NO_REPORT = (
    "the model ended its work with an empty reply, and again when it was asked for a report. Its work is in the "
    "steps and the files; whether the task is done is not known"
)
_NO_CALL = (
    "the model announced tool calls or wrote them as text, and again when it was asked for real calls: they were not "
    "executed, and the task is not done. Use a model and an endpoint that support tool calls, or toolCallStyle xml"
)
_SCRIPT_REFUSED = (
    "the scripted model cannot do this task: it plays a script, and is not a language model. For one set "
    "ANTHROPIC_API_KEY, and DEPUTIZE_MODEL or --model to its name"
)
_UNCLEAR = (
    "the endpoint ended the model's reply with {stop_reason}, and again when the whole of it was asked for: it may be "
    "incomplete, so the run is not a success. Look for a setting of the endpoint or gateway, or use another one"
)
QUESTIONS = {
    Ending.EMPTY: (ASK_FOR_REPORT, 1, _NO_REPORT),
    Ending.IMITATION: (ASK_FOR_CALL, 2, _NO_CALL),
    Ending.NO_OUTPUT: (ASK_FOR_OUTPUT, 1, "the model was asked for its output and did not hand it in"),
    Ending.UNCLEAR: (ASK_FOR_WHOLE, 2, _UNCLEAR),
}
"""What the model is asked, how often in a row at most, and why the run fails after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """The model calls of one run. All have the same system prompt and tools: caches and signatures bind to them.

    Every method raises ``LimitReached`` (budget), ``ContextFull`` and ``ModelUnavailable``.
    """

    run: RunContext
    model: Model
    system: str
    tools: tuple[ToolSpec, ...]
    tool_names: Collection[str]
    """The names of the tools, aliases included, by which a call in a text is recognized."""
    conversation: Conversation
    wait: EndpointWait
    shared: PrefixWait
    count: Callable[[Usage], None]
    """Called with the usage of every reply."""
    spending: Spending
    retention: Retention = field(default_factory=Retention)
    repeated: Callable[[], str] = str
    """Returns what a conversation that begins anew repeats: the last messages of the caller."""
    max_output_tokens: int = 16_000
    cached: bool = True
    """Whether the endpoint has a prompt cache."""
    choose: Callable[[Prompt], None] = lambda _: None  # called before a request: of several keys the model takes one

    async def reply(self, turn: int) -> Reply:
        """Returns the reply of a turn, with keys for its calls; its text is published as it arrives."""
        reply = await self._reply(self._prompt(), turn)
        self.run.check_room(len(str(reply.content)))
        return reply.with_call_keys(turn, self.conversation.retries)

    async def final_reply(self, turn: int) -> Reply:
        """Returns a reply which does not count as a turn, with no tool calls but those that hand in the output."""
        tool = SUBMIT if self.run.lacks_output else None
        reply = await self._reply(self._prompt(allow_tools=tool is not None, only_tool=tool), turn, counted=False)
        return reply.without_calls(tool).with_call_keys(turn, self.conversation.retries)

    async def summary(self) -> str:
        """Returns the model's summary of the conversation, which itself stays as it is."""
        prompt = self._prompt(user_message(ASK_FOR_SUMMARY), allow_tools=False)
        prompt = replace(prompt, max_output_tokens=min(SUMMARY_TOKENS, self.max_output_tokens))
        return (await self._reply(prompt, self.run.meter.turns, counted=False, stream=False)).text.strip()

    def ending(self, reply: Reply) -> Ending:
        ending = ending_of(reply, self.tool_names)
        ends = ending in (Ending.DONE, Ending.EMPTY, Ending.UNCLEAR)
        return Ending.NO_OUTPUT if self.run.lacks_output and ends else ending

    def ask(self, reply: Reply, ending: Ending) -> None:
        """Asks the model for what its reply lacks: the rest, a report, a real call or the output.

        Where it was asked before and did not comply: raises ``ModelUnavailable``, and for the output ``LimitReached``,
        whose final turn forces it. Raises ``Refused`` for a refusal.
        """
        match ending:
            case Ending.REFUSED:
                reason = ": ".join(filter(None, (reply.stop_reason, reply.refusal)))
                words = f" Its words: {reply.text.strip()}" if reply.text.strip() else ""
                if self.model.name.startswith("scripted"):
                    raise Refused(f"{_SCRIPT_REFUSED}.{words}")
                raise Refused(
                    f"the model refused the task ({reason}). Word it differently, or use another model.{words}"
                )
            case Ending.CUT:
                self.conversation.ask(CONTINUE_CUT_REPLY)
            case Ending.PAUSED:
                # Where a tool of the endpoint is under way, the reply must be sent as it is.
                if not any(block.get("type") == "server_tool_use" for block in reply.content):
                    self.conversation.ask(CONTINUE_PAUSED_REPLY)
            case _:
                question, most, failure = QUESTIONS[ending]
                ours = {user_message(each) for each, _, _ in QUESTIONS.values()}
                if len(list(takewhile(ours.__contains__, self.conversation.messages[-2::-2]))) >= most:
                    if ending is Ending.NO_OUTPUT:
                        raise LimitReached(TerminationReason.COMPLETED, failure, None)
                    reason = f"the unknown stop reason {reply.stop_reason[:64]!r}" if reply.stop_reason else ""
                    raise ModelUnavailable(failure.format(stop_reason=reason or "no stop reason"), may_pass=True)
                self.conversation.ask(question)

    def _prompt(self, *further: bytes, allow_tools: bool = True, only_tool: str | None = None) -> Prompt:
        messages = [*self.conversation.messages, *further] if further else self.conversation.messages
        return Prompt(
            self.system,
            self.tools,
            messages,
            self.max_output_tokens,
            allow_tools,
            self.conversation.reply_id,
            shared_end=self.conversation.shared_end,
            sent=self.conversation.sent,
            cached_for_an_hour=self.cached and self.retention.hour(),
            only_tool=only_tool,
            effort=self.run.claim.request.effort,
        )

    async def _reply(self, prompt: Prompt, turn: int, *, counted: bool = True, stream: bool = True) -> Reply:
        with self.run.waits.noted("the model's endpoint"):
            while True:
                try:
                    return await self._counted(prompt, turn, counted=counted, stream=stream)
                except (CapReached, ModelUnavailable) as error:  # only out here, where no other run waits for this call
                    await (self.spending.room() if isinstance(error, CapReached) else self.wait.may_pass(error))

    async def _counted(self, prompt: Prompt, turn: int, *, counted: bool, stream: bool) -> Reply:
        """Returns one reply with its price; ``prompt.max_output_tokens`` is lowered to what the budget allows.

        ``counted``: the reply counts as a turn. ``stream``: text deltas are published.
        """
        meter = self.run.meter
        meter.hour_writes = prompt.cached_for_an_hour
        bounded = meter.has_budget or self.spending.is_capped
        tokens = await self.conversation.tokens_at_most(prompt) if bounded else 0
        self.choose(prompt)
        begin, endpoint = partial(self._begin, Usage(), counted), self.model.endpoint_id
        find = partial(shared_prefixes, endpoint or "", self.model.name, prompt)
        cache, hour = endpoint if self.cached else None, prompt.cached_for_an_hour
        shared = self.shared.request(cache, find, self.model.price(), hour=hour)
        async with shared, self.wait.call(endpoint, begin):
            while True:
                allowance = meter.output_allowance(tokens, prompt.max_output_tokens)
                async with self.spending.reserved(tokens, allowance) as most:
                    allowed = prompt if most == prompt.max_output_tokens else replace(prompt, max_output_tokens=most)
                    if reply := await self._stream(allowed, tokens, turn, counted=counted, stream=stream):
                        if reply.estimated:
                            what = "the endpoint sent no token counts: usage and cost are estimates"
                            self.run.report_error(what, "usage")
                        usage = meter.spend(reply.usage)
                        self.count(usage)
                        return replace(reply, usage=usage)

    def _begin(self, usage: Usage, counted: bool) -> None:
        """Stores what is billed for the reply under way, and that its turn is not yet complete."""
        self.run.meter.begin_reply(usage, counted=counted)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Stores the counts, so that the billed usage survives this worker; conversation and counts are consistent."""
        self.run.checkpoint(self.conversation.checkpoint())

    async def _stream(self, prompt: Prompt, tokens: int, turn: int, *, counted: bool, stream: bool) -> Reply | None:
        """Returns None where failed tries used so much that the prompt must be sent again with a smaller allowance."""
        begun, sent, self.spending.under_way = False, time.monotonic(), True
        self.shared.sends()
        async with aclosing(self.model.reply(prompt)) as parts:
            async for part in parts:
                match part:
                    case ReplyStarted(usage):
                        begun = True
                        self.run.emit.count(FIRST_TOKEN.observed(time.monotonic() - sent, self.run.emit.model))
                        self.wait.works()
                        self.shared.works(usage)
                        self._begin(usage, counted)
                    case TextPart(text) if stream:
                        self.run.emit.delta(TextDelta, turn, text)
                    case ThinkingPart(text) if stream:
                        self.run.emit.delta(ThinkingDelta, turn, text)
                    case Retrying():
                        meter = self.run.meter
                        meter.spend(part.wasted, wasted=True)
                        self.shared.failed()
                        self.spending.under_way = False
                        fits = meter.output_allowance(tokens, prompt.max_output_tokens) >= prompt.max_output_tokens
                        await self.wait.retry(turn, part, begun=begun)
                        if not fits or (self.spending.is_capped and part.wasted.total):
                            return None
                        begun, sent, self.spending.under_way = False, time.monotonic(), True
                    case Reply():
                        self.retention.note_reply()
                        return part
                    case _:
                        pass
        raise AssertionError("a model's stream ends with a Reply or an error")


MAX_LISTED = 50
MAX_LOG_CHARS = 12_000


async def compact(calls: ModelCalls, why: str) -> None:
    """Replaces the conversation by a new one: the model's summary or, if it cannot write one, the log of the steps.

    Raises ``ModelUnavailable`` where there is nothing to leave out.
    """
    conversation, run = calls.conversation, calls.run
    messages = len(conversation.messages)
    if messages < 2:
        raise ModelUnavailable(f"{why}, and there is nothing to leave out: give the task less context")
    summary = await _summary(calls)
    read = read_files(run.steps.ended)
    conversation.restart(*continued_task(conversation.task, summary, read, calls.repeated()))
    message = f"{why}: {messages} messages became a summary of {len(summary)} characters"
    run.emit.emit(ProgressMade(message=message))
    calls.checkpoint()


async def _summary(calls: ModelCalls) -> str:
    try:
        if summary := await calls.summary():
            return summary
        why = "the model's reply was empty"
    except (ModelUnavailable, LimitReached) as error:
        why = "the conversation was too long for it" if isinstance(error, ContextFull) else str(error)
    log.warning("the model wrote no summary: %s", why)
    return _log_of_steps(calls, f"The model wrote no summary: {why}")


def _log_of_steps(calls: ModelCalls, why: str) -> str:
    done = clip(calls.run.steps.details(), MAX_LOG_CHARS) or "No step was made."
    return f"({why}. This is the log of the steps.)\n{done}\n\n{calls.conversation.last_words}".strip()


async def reply_from_log(calls: ModelCalls, note: str, turn: int) -> Reply:
    """Returns the reply of a final turn that reads the log of the steps: the conversation is too long for what is left.

    ``note`` is the request for the report. What continues the run has the conversation itself, with this reply.
    """
    conversation, run = calls.conversation, calls.run
    notes = _log_of_steps(calls, "The conversation is too long to be sent again")
    *shared, task = continued_task(conversation.task, notes, read_files(run.steps.ended), calls.repeated())
    reply = await replace(calls, conversation=conversation.apart(*shared, f"{task}\n\n{note}")).final_reply(turn)
    return replace(reply, content=[block for block in reply.content if block["type"] in ("text", "tool_use")])


def read_files(steps: Sequence[Step]) -> list[str]:
    """Returns the files that were read, each once, the last read at the end."""
    paths = [str(step.arguments.get("path") or step.arguments.get("file_path") or "") for step in steps]
    read = [path for step, path in zip(steps, paths, strict=True) if step.type == "read" and path and not step.error]
    return list(dict.fromkeys(reversed(read)))[:MAX_LISTED][::-1]
