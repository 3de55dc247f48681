"""What the endpoint of a model is able to do, asked of it in small requests (`deputize doctor --model NAME`).

Each row is what one request found. The last one is what ``lacks`` of the model's table is to be, so that runs do not
ask for what is not there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...shared.errors import ModelUnavailable
from ...shared.masking import SecretMask
from ...shared.promises import Finding
from ...shared.settings import Settings
from ..models import close_models, open_model
from ..models.anthropic import AnthropicModel, check_response
from ..models.base import Reply
from ..models.endpoint import Body, Endpoint
from ..models.retry import Failure
from ..models.stream import EventDecoder, ReplyAssembler

MAX_TOKENS = 4_000
END_SECONDS = 5.0
"""How long the end of a stream may take after the end of its reply."""
NOTHING = "no setting is needed"
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
WEATHER = {"name": "get_weather", "description": "Returns the weather of one city.", "input_schema": _CITY}
NOTE = {"name": "write_note", "description": "Keeps a text.", "input_schema": _TEXT}
LONG = "These are the rules of the house; they change nothing here. " * 400
"""More tokens than the longest minimum of a prompt cache."""
_NO_CALLS = (
    "start the server with tool calls (vLLM: --enable-auto-tool-choice and --tool-call-parser, llama.cpp: --jinja), "
    "use another model, or toolCallStyle xml"
)
_COUNTS = ("cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request: its events and its reply, or the failure."""

    events: Sequence[Mapping[str, Any]] = ()
    reply: Reply | None = None
    failure: Failure | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """All counts that were sent, the last one of each."""
        found: dict[str, Any] = {}
        for event in self.events:
            usage = event.get("usage") or (event.get("message") or {}).get("usage")
            found |= {name: count for name, count in (usage or {}).items() if count is not None}
        return found

    @property
    def pieces(self) -> int:
        """How many pieces the arguments of calls came in."""
        deltas = (event.get("delta") or {} for event in self.events)
        return sum(delta.get("type") == "input_json_delta" and bool(delta.get("partial_json")) for delta in deltas)


@dataclass(slots=True)
class Probe:
    """The requests to one endpoint, and what was found so far."""

    model: AnthropicModel
    endpoint: Endpoint
    lacks: set[str] = field(default_factory=set[str])
    first: Answer = Answer()
    """The answer to the request for one tool call."""

    async def ask(self, content: Any, *tools: Mapping[str, Any], **fields: Any) -> Answer:
        body = {"model": self.model.name, "max_tokens": MAX_TOKENS, "stream": True, **fields}
        body |= {"messages": [{"role": "user", "content": content}]} | ({"tools": tools} if tools else {})
        assembler, decoder, events = ReplyAssembler(None), EventDecoder(), list[Mapping[str, Any]]()
        try:
            async with self.endpoint.post(json.dumps(body).encode()) as response:
                await check_response(response, self.model.name, self.endpoint.url, self.model.names)
                stream = Body(response, END_SECONDS)
                while chunk := await stream.read(is_complete=bool(assembler.stop_reason)):
                    new = [*decoder.feed(chunk)]
                    events += new
                    assembler.feed(new)
        except Failure as failure:
            return Answer(events, failure=failure)
        if assembler.failure or not (assembler.done or assembler.stop_reason):
            return Answer(events, failure=assembler.failure or Failure("the stream was cut", retryable=True))
        return Answer(events, assembler.finish())

    def lacking(self, answer: Answer, name: str, lack: str, detail: str) -> Finding | None:
        """Returns the row for a request that failed, and notes what the endpoint lacks; None for one that did not."""
        if answer.failure is None:
            return None
        if answer.failure.retryable:
            return Finding("!", name, f"not known: {answer.failure}", "try again later")
        self.lacks.add(lack)
        return Finding("!", name, f"{detail}: {answer.failure.reason or answer.failure}", f'lacks = ["{lack}"]')


async def _tool_call(probe: Probe) -> Finding:
    answer = probe.first = await probe.ask("What is the weather in Paris? Call get_weather for it.", WEATHER)
    if answer.failure:
        return Finding("✗", "tool call", str(answer.failure), "correct the named mistake")
    calls = answer.reply.calls if answer.reply else []
    if not calls:
        text = answer.reply.text[:100] if answer.reply else ""
        return Finding("✗", "tool call", f"the reply has none, but the text {text!r}", _NO_CALLS)
    if problem := calls[0].problem:
        return Finding("✗", "tool call", problem, _NO_CALLS)
    return Finding("✓", "tool call", f"{calls[0].name} with {json.dumps(calls[0].arguments)}")


async def _parallel(probe: Probe) -> Finding:
    question = "What is the weather in Paris and in Rome? Call get_weather for both of them in one reply."
    answer = await probe.ask(question, WEATHER)
    if answer.failure:
        return Finding("!", "parallel", str(answer.failure), NOTHING)
    blocks = [event.get("content_block") or {} for event in answer.events]
    ids = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if len(ids) < 2:
        return Finding("!", "parallel", "one call per reply: each takes a turn of its own", NOTHING)
    if len({*ids}) < len(ids) or not all(ids):
        return Finding("!", "parallel", f"{len(ids)} calls, with ids that are equal or empty", NOTHING)
    return Finding("✓", "parallel", f"{len(ids)} calls in one reply, each with an id of its own")


async def _arguments(probe: Probe) -> Finding:
    question = "Call write_note with a text of twenty lines: the numbers from one to twenty, as words."
    answer = await probe.ask(question, NOTE)
    calls = answer.reply.calls if answer.reply else []
    if answer.failure or not calls:
        return Finding("!", "arguments", f"not known: {answer.failure or 'the reply has no call'}", "try again later")
    if problem := calls[0].problem:
        return Finding("✗", "arguments", f"{answer.pieces} pieces that do not fit: {problem}", _NO_CALLS)
    came = f"in {answer.pieces} pieces" if answer.pieces > 1 else "in one piece"
    return Finding("✓", "arguments", f"{len(json.dumps(calls[0].arguments))} characters {came}, and valid")


async def _usage(probe: Probe) -> Finding:
    counts = {name: probe.first.usage.get(name) for name in ("input_tokens", "output_tokens")}
    if missing := [name for name, count in counts.items() if not count]:
        detail = f"no {' and no '.join(missing)}: usage and cost of runs will be estimates"
        return Finding("!", "usage", detail, "look for a setting of the server or gateway that counts tokens")
    return Finding("✓", "usage", ", ".join(f"{count} {name}" for name, count in counts.items()))


async def _cache(probe: Probe) -> Finding:
    control = {"type": "ephemeral"}
    system = [{"type": "text", "text": LONG, "cache_control": control}]
    # As runs send it: at the end of the system prompt, and as a field of the request.
    answers = [await probe.ask(f"Say {word}.", system=system, cache_control=control) for word in ("yes", "no")]
    for answer in answers:
        if row := probe.lacking(answer, "cache", "cache_control", "cache_control is refused"):
            return row
    if read := answers[1].usage.get(_COUNTS[0]):
        return Finding("✓", "cache", f"{read} tokens of the second prompt were read from it")
    probe.lacks.add("cache_control")
    counted = any(name in answer.usage for answer in answers for name in _COUNTS)
    why = "nothing was read from it" if counted else "no counts of it (vLLM: --enable-prompt-tokens-details)"
    return Finding("!", "cache", why, 'lacks = ["cache_control"]')


async def _tool_choice(probe: Probe) -> Finding:
    off = {"thinking": {"type": "disabled"}} if probe.model.thinks else {}
    answer = await probe.ask("Say hello.", WEATHER, NOTE, tool_choice={"type": "tool", "name": NOTE["name"]}, **off)
    if answer.failure:
        reason = answer.failure.reason or answer.failure
        return Finding("!", "choice", f"refused, so runs ask without it: {reason}", NOTHING)
    if answer.reply and [call.name for call in answer.reply.calls] == [NOTE["name"]]:
        return Finding("✓", "choice", "the tool that was forced was called")
    return Finding("!", "choice", "ignored: the output of a run may be missing (outputSchema)", NOTHING)


async def _wrong_field(probe: Probe) -> Finding:
    answer = await probe.ask("Say yes.", not_a_field=True)
    if answer.failure is None:
        return Finding("!", "bad field", "ignored: an unknown field is not noticed", NOTHING)
    if answer.failure.retryable:
        return Finding("!", "bad field", f"refused as if that might pass: {answer.failure}", NOTHING)
    return Finding("✓", "bad field", f"refused: {answer.failure.reason or answer.failure}")


async def _thinking(probe: Probe) -> Finding:
    if not probe.model.thinks:
        return Finding("✓", "thinking", "not requested of this model")
    thinking = {"type": "adaptive", "display": "summarized"}
    answer = await probe.ask("Is 391 a prime number?", thinking=thinking)
    if row := probe.lacking(answer, "thinking", "thinking", "refused"):
        return row
    return Finding("✓", "thinking", "accepted")


PROBES: Sequence[Callable[[Probe], Awaitable[Finding]]] = (
    *(_tool_call, _parallel, _arguments, _usage, _cache),
    *(_thinking, _tool_choice, _wrong_field),
)


async def try_model(settings: Settings, name: str) -> list[Finding]:
    """Returns a row for each thing that runs ask of a model's endpoint. Raises Misconfigured for a wrong table."""
    stated = settings.table_of(name)
    anew = {name: stated.model_copy(update={"lacks": []})} if name in settings.models else {}
    model = open_model(name, settings.model_copy(update={"models": settings.models | anew}))
    if not isinstance(model, AnthropicModel):
        return [Finding("✓", "model", f"{name} is a script, and has no endpoint")]
    mask = SecretMask(settings.secrets).text
    try:
        rows = [row async for row in _rows(model, name, {*stated.lacks})]
    except ModelUnavailable as error:
        rows = [Finding("✗", "model", str(error), "correct the named mistake")]
    finally:
        await close_models()
    return [Finding(row.state, row.name, mask(row.detail), row.remedy) for row in rows]


async def _rows(model: AnthropicModel, name: str, stated: set[str]) -> AsyncGenerator[Finding]:
    probe = Probe(model, model.endpoint())
    yield Finding("✓", "model", f"{model.name} at {probe.endpoint.route}")
    for attempt in PROBES:
        row = await attempt(probe)
        yield row
        if probe.first.failure:
            return
    for further in model.of_keys[1:]:
        yield await _other_key(further)
    unasked = set[str]() if model.thinks else {"thinking"}
    yield _flags(name, stated, probe.lacks | (stated & unasked))


async def _other_key(model: AnthropicModel) -> Finding:
    """Returns the row about one of several keys after the first."""
    answer = await Probe(model, model.endpoint()).ask("Say yes.")
    if answer.failure:
        return Finding("✗", f"key {model.key}", str(answer.failure), "correct the named mistake")
    return Finding("✓", f"key {model.key}", "the endpoint takes it")


def _flags(name: str, stated: set[str], found: set[str]) -> Finding:
    """Returns the row about what the model's table states."""
    if found == stated:
        return Finding("✓", "table", f"[models.{name}] states what was found" if found else "no flags are needed")
    detail = f"[models.{name}] has lacks = {json.dumps(sorted(stated))}"
    return Finding("!", "table", detail, f"set lacks = {json.dumps(sorted(found))} in it")
