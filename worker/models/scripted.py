"""A deterministic model that plays a script, without state or network; its output is labelled as scripted.

A script has rules that match tasks, the turns they play, and templates in these.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import regex
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ...shared.delegation import Usage
from ...shared.errors import ContextFull, Misconfigured, ModelUnavailable
from ...shared.settings import Settings
from ...shared.text import mapped
from ...shared.wire import explain
from ..text.compute_limit import ComputeLimit
from .base import Call, Part, Price, Prompt, Reply, ReplyStarted, Retrying, TextPart, ThinkingPart, priced

T = TypeVar("T")
REGEX_SECONDS = 0.5
_TEMPLATE = re.compile(
    r"""\{\{\s* (?P<command>task|calls|result|count|list|item) (?: :(?P<which>-?\d+|all) )?
        (?: \s+ /(?P<regex>(?:\\/|[^/\n])+)/ )? (?: \s+ else \s+ "(?P<otherwise>[^"]*)" )? \s*\}\}""",
    re.VERBOSE,
)
BUILTIN = "demo.yaml"
DELTA_CHARACTERS = 24
"""Length of one delta."""
LABEL = "(This text comes from a script, not from a language model.)"


def _limited(find: Callable[..., T], pattern: str, text: str, flags: int = regex.MULTILINE) -> T:
    """Returns what is found of a pattern of the script. Raises ModelUnavailable."""
    try:
        return find(ComputeLimit(REGEX_SECONDS), regex.compile(pattern, flags), text)
    except TimeoutError:
        raise ModelUnavailable(
            f"a regular expression of the script takes more than {REGEX_SECONDS} s on this text; write it without "
            "nested repetitions"
        ) from None


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """The values that templates refer to: the task, the tool results so far, and the repetition of the turn."""

    task: str
    results: tuple[str, ...]
    round: int = 0

    def text(self, which: str | None) -> str:
        """Returns the tool result of that number, from 1 or, negative, from the end; "" where there is none."""
        if which == "all":
            return "\n".join(self.results)
        number = int(which or -1)
        index = number - 1 if number > 0 else len(self.results) + number
        return self.results[index] if 0 <= index < len(self.results) else ""


def render(value: Any, context: TemplateContext) -> Any:
    """Returns the value with the templates in its strings replaced."""
    return mapped(value, lambda text: _TEMPLATE.sub(lambda template: _expand(template, context), text))


def _expand(template: re.Match[str], context: TemplateContext) -> str:
    command, pattern = template["command"], template["regex"]
    if command == "calls":
        return str(len(context.results))
    source = context.task if command == "task" else context.text(template["which"])
    found = [source] if source else []
    if pattern:  # each match once, in order of its first occurrence; of a pattern with groups, the first group
        matches = _limited(ComputeLimit.matches, pattern.replace("\\/", "/"), source)
        found = list(dict.fromkeys(match[1] if match.re.groups else match[0] for match in matches))
    if command == "count":
        return str(len(found))
    if not found:
        return template["otherwise"] or ""
    if command == "list":
        return "\n".join(f"- {match}" for match in found)
    return found[context.round % len(found)] if command == "item" else found[0]


def _check_regex(pattern: str) -> str:
    try:
        regex.compile(pattern, regex.MULTILINE)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_check_regex)]


class _ScriptModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_ScriptModel):
    """Matches tasks by the first user message; without a condition, all of them."""

    contains: str = ""
    regex: Pattern = ""


class Block(_ScriptModel):
    """One block of a turn: text, thinking or a call; its strings are templates (``render``)."""

    text: str | None = None
    thinking: str | None = None
    call: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    times: int = Field(default=1, ge=1)
    """Number of calls; ``{{item}}`` advances from one to the next."""
    when: Pattern | None = None
    """Only if this matches the last tool result."""
    unless: Pattern | None = None
    """Only if this does not match the last tool result."""
    tool: str | None = None
    """Only if the run has this tool."""
    no_tool: str | None = None
    """Only if the run does not have this tool."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> Block:
        if sum(part is not None for part in (self.text, self.thinking, self.call)) != 1:
            raise ValueError("a block is exactly one of text, thinking or call")
        return self


class Fault(_ScriptModel):
    """A failure before the turn: a retry (``cut``: after the first delta), an unavailable model, or, with more than
    one message, a conversation that exceeds the window."""

    kind: Literal["retry", "cut", "unavailable", "too_long"]
    message: str = "a fault of the script"
    delay: float = Field(default=0.0, ge=0)
    """Seconds until the next try."""


class Tokens(_ScriptModel):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class Rates(_ScriptModel):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


class Turn(_ScriptModel):
    """One reply, played ``repeat`` times. ``delay`` is the seconds before the first delta."""

    blocks: list[Block] = Field(default_factory=list[Block])
    repeat: int = Field(default=1, ge=1)
    delay: float = Field(default=0.0, ge=0)
    stop: str | None = None
    usage: Tokens | None = None
    faults: list[Fault] = Field(default_factory=list[Fault])


def _expand_turn(turn: Any) -> Any:
    """Accepts a list of blocks as the short form of a turn."""
    return {"blocks": turn} if isinstance(turn, list) else turn


class Rule(_ScriptModel):
    """The turns for matching tasks; ``summary`` is the reply when tools are not allowed or no turn is left."""

    match: Match = Match()
    turns: list[Annotated[Turn, BeforeValidator(_expand_turn)]] = Field(min_length=1)
    summary: str = "The script has nothing more to say. Number of tool calls so far: {{calls}}."


class Script(_ScriptModel):
    """Rules in order; the first match is played. ``pace`` is the seconds between two deltas."""

    rules: list[Rule] = Field(min_length=1)
    price: Rates | None = None
    window: int = Field(default=1_000_000, ge=1)
    """Context window in tokens."""
    pace: float = Field(default=0.0, ge=0)
    label: str = LABEL
    """Appended to every final text, so that it is not mistaken for a model's; "" for none."""


def load_script(path: str) -> Script:
    """Loads a YAML or JSON file, or the built-in script for "". Raises Misconfigured with the position of the error."""
    name = path or BUILTIN
    try:
        source = Path(path) if path else files(__package__ or "").joinpath(BUILTIN)
        text = source.read_text("utf-8")
        return Script.model_validate(json.loads(text) if name.endswith(".json") else yaml.safe_load(text))
    except OSError as error:
        raise Misconfigured(f"the script {name} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        mistakes = "; ".join(f"{m['pointer'] or '/'}: {m['detail']}" for m in explain(error, Script))
        raise Misconfigured(f"the script {name} is wrong: {mistakes}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Misconfigured(f"the script {name} is not valid YAML or JSON{_position(error)}") from None


def _position(error: Exception) -> str:
    """Returns line and column without the content: the path may name a file of another kind, with secrets."""
    if isinstance(error, json.JSONDecodeError):
        return f": line {error.lineno}, column {error.colno}"
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""


class ScriptedModel:
    """Selects the turn by the number of replies in the conversation, so a resumed run continues where it was."""

    endpoint_id = None
    """A script has no endpoint."""

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self._script = script
        self.name = name
        rates = script.price
        self._price = rates and Price(**rates.model_dump())

    @classmethod
    def open(cls, path: str, settings: Settings) -> Self:
        """Returns the model of a script file, or of the built-in script for "". Raises Misconfigured."""
        return cls(load_script(path), f"scripted:{path}" if path else "scripted")

    def price(self) -> Price | None:
        """Returns the price from the script, or None."""
        return self._price

    def window(self) -> int:
        """Returns the context window from the script, in tokens."""
        return self._script.window

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part, None]:
        """Plays the script's turn for this conversation. Raises ModelUnavailable and ContextFull for its faults."""
        task, replies, results = _parse_conversation(prompt)
        rule = self._rule(task)
        turn, repetition = _select_turn(rule, replies if prompt.allow_tools else None)
        context = TemplateContext(task=task, results=results, round=repetition)
        blocks = [block for block in turn.blocks if _applies(block, prompt, context)]
        for fault in turn.faults:
            if fault.kind == "unavailable":
                raise ModelUnavailable(f"model {self.name}: {fault.message}", may_pass=True)
            if fault.kind == "too_long" and len(prompt.messages) > 1:
                raise ContextFull(f"model {self.name}: {fault.message}")
            if fault.kind == "cut":
                yield TextPart("These words are cut")
            yield Retrying(fault.message, fault.delay)
        yield ReplyStarted(self._usage(turn, prompt, ""))
        await asyncio.sleep(turn.delay)
        content = self._content(blocks, context, replies)
        for block in content:
            text: str = block.get(block["type"], "")  # a call has none
            for at in range(0, len(text), DELTA_CHARACTERS):
                await asyncio.sleep(self._script.pace)
                kind = TextPart if block["type"] == "text" else ThinkingPart
                yield kind(text[at : at + DELTA_CHARACTERS])
        yield self._reply(content, turn, prompt)

    def _rule(self, task: str) -> Rule:
        for rule in self._script.rules:
            wanted = rule.match
            if wanted.contains.lower() in task.lower() and _limited(ComputeLimit.search, wanted.regex, task, 0):
                return rule
        raise ModelUnavailable(
            f"model {self.name} follows a script, and no rule of it matches this task. "
            "Add one without a match for all other tasks, or name a real model in DEPUTIZE_MODEL."
        )

    def _content(self, blocks: list[Block], context: TemplateContext, replies: int) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = []
        for block in blocks:
            if block.call is not None:
                for number in range(block.times):
                    arguments = render(block.arguments, replace(context, round=context.round * block.times + number))
                    id = f"toolu_script_{replies}_{len(content)}"
                    content.append({"type": "tool_use", "id": id, "name": block.call, "input": arguments})
            elif block.thinking is not None:
                content.append(
                    {"type": "thinking", "thinking": render(block.thinking, context), "signature": "scripted"}
                )
            elif text := render(block.text, context):
                content.append({"type": "text", "text": text})
        if self._script.label and not any(block["type"] == "tool_use" for block in content):
            content.append({"type": "text", "text": f"\n\n{self._script.label}"})
        return content

    def _reply(self, content: list[dict[str, Any]], turn: Turn, prompt: Prompt) -> Reply:
        calls = [
            Call(id=block["id"], name=block["name"], arguments=block["input"])
            for block in content
            if block["type"] == "tool_use"
        ]
        return Reply(
            content=content,
            stop_reason=turn.stop or ("tool_use" if calls else "end_turn"),
            usage=self._usage(turn, prompt, json.dumps(content, ensure_ascii=False)),
            text="".join(block["text"] for block in content if block["type"] == "text"),
            thinking="".join(block["thinking"] for block in content if block["type"] == "thinking"),
            calls=calls,
        )

    def _usage(self, turn: Turn, prompt: Prompt, content: str) -> Usage:
        """Returns the usage from the script, or an estimate; without ``content``, that of the prompt alone."""
        tokens = turn.usage or Tokens(input=sum(map(len, prompt.messages)) // 4, output=len(content) // 4)
        usage = Usage(
            input_tokens=tokens.input,
            output_tokens=tokens.output if content else 0,
            cache_read_tokens=tokens.cache_read,
            cache_write_tokens=tokens.cache_write,
        )
        return priced(usage, self._price)


def _parse_conversation(prompt: Prompt) -> tuple[str, int, tuple[str, ...]]:
    """Returns the first user text, the number of replies, and the texts of all tool results."""
    messages: list[dict[str, Any]] = [json.loads(message) for message in prompt.messages]
    task = next((_text(message["content"]) for message in messages if message["role"] == "user"), "")
    replies = sum(message["role"] == "assistant" for message in messages)
    results = tuple(
        _text(block.get("content", ""))
        for message in messages
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_result"
    )
    return task, replies, results


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(block["text"] for block in content if block.get("type") == "text")


def _select_turn(rule: Rule, number: int | None) -> tuple[Turn, int]:
    """Returns the turn for that reply, from 0, and its repetition; after the last turn, and for None, the summary."""
    if number is not None:
        for turn in rule.turns:
            if number < turn.repeat:
                return turn, number
            number -= turn.repeat
    return Turn(blocks=[Block(text=rule.summary)]), 0


def _applies(block: Block, prompt: Prompt, context: TemplateContext) -> bool:
    tools = {tool.name for tool in prompt.tools}
    last = context.text(None)
    return (
        (block.when is None or _limited(ComputeLimit.search, block.when, last) is not None)
        and (block.unless is None or _limited(ComputeLimit.search, block.unless, last) is None)
        and (block.tool is None or block.tool in tools)
        and (block.no_tool is None or block.no_tool not in tools)
    )
