"""A deterministic model that plays a script, without state or network; its output is labelled as scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Self

from ...shared.delegation import Usage
from ...shared.errors import ContextFull, ModelUnavailable
from ...shared.settings import Settings
from .base import (
    Call,
    Part,
    Price,
    Prompt,
    Reply,
    ReplyStarted,
    Retrying,
    TextPart,
    ThinkingPart,
    priced,
)
from .script import (
    Block,
    Rule,
    Script,
    TemplateContext,
    Tokens,
    Turn,
    load_script,
    render,
    search,
)

DELTA_CHARACTERS = 24
"""Length of one delta."""


class ScriptedModel:
    """Selects the turn by the number of replies in the conversation, so a resumed run continues where it was."""

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self._script = script
        self._name = name
        rates = script.price
        self._price = rates and Price(rates.input, rates.output, rates.cache_read, rates.cache_write)

    @classmethod
    def open(cls, path: str, settings: Settings) -> Self:
        """Returns the model of a script file, or of the built-in script for "". Raises Misconfigured."""
        return cls(load_script(path), f"scripted:{path}" if path else "scripted")

    @property
    def name(self) -> str:
        return self._name

    @property
    def endpoint_id(self) -> None:
        """A script has no endpoint."""

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
        turn, repetition = _select_turn(rule, replies) if prompt.allow_tools else (_summary_turn(rule), 0)
        context = TemplateContext(task, results, repetition)
        blocks = [block for block in turn.blocks if _applies(block, prompt, context)]
        for fault in turn.faults:
            if fault.kind == "unavailable":
                raise ModelUnavailable(f"model {self._name}: {fault.message}", may_pass=True)
            if fault.kind == "too_long" and len(prompt.messages) > 1:
                raise ContextFull(f"model {self._name}: {fault.message}")
            if fault.kind == "cut":
                yield TextPart("These words are cut")
            yield Retrying(fault.message, fault.delay)
        yield ReplyStarted(self._usage(turn, prompt, ""))
        await asyncio.sleep(turn.delay)
        content = self._content(blocks, context, replies)
        for part in _deltas(content):
            await asyncio.sleep(self._script.pace)
            yield part
        yield self._reply(content, turn, prompt)

    def _rule(self, task: str) -> Rule:
        for rule in self._script.rules:
            if rule.match.contains.lower() in task.lower() and search(rule.match.regex, task):
                return rule
        raise ModelUnavailable(
            f"model {self._name} follows a script, and no rule of it matches this task. "
            "Add one without a match for all other tasks, or name a real model in DEPUTIZE_MODEL."
        )

    def _content(self, blocks: list[Block], context: TemplateContext, replies: int) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = []
        for block in blocks:
            if block.call is not None:
                for number in range(block.times):
                    arguments = render(block.arguments, replace(context, round=context.round * block.times + number))
                    content.append(_call(f"toolu_script_{replies}_{len(content)}", block.call, arguments))
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
        calls = [Call(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
        usage = self._usage(turn, prompt, json.dumps(content, ensure_ascii=False))
        return Reply(
            content=content,
            stop_reason=turn.stop or ("tool_use" if calls else "end_turn"),
            usage=usage,
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


def _call(id_: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


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


def _select_turn(rule: Rule, number: int) -> tuple[Turn, int]:
    """Returns the turn for that reply, from 0, and its repetition; after the last turn, the summary."""
    for turn in rule.turns:
        if number < turn.repeat:
            return turn, number
        number -= turn.repeat
    return _summary_turn(rule), 0


def _summary_turn(rule: Rule) -> Turn:
    return Turn(blocks=[Block(text=rule.summary)])


def _applies(block: Block, prompt: Prompt, context: TemplateContext) -> bool:
    tools = {tool.name for tool in prompt.tools}
    last = context.text(None)
    return (
        (block.when is None or search(block.when, last, lines=True))
        and (block.unless is None or not search(block.unless, last, lines=True))
        and (block.tool is None or block.tool in tools)
        and (block.no_tool is None or block.no_tool not in tools)
    )


def _deltas(content: list[dict[str, Any]]) -> list[Part]:
    parts: list[Part] = []
    for block in content:
        kind, text = {"text": TextPart, "thinking": ThinkingPart}.get(block["type"]), block.get(block["type"], "")
        if kind:
            parts += [kind(text[at : at + DELTA_CHARACTERS]) for at in range(0, len(text), DELTA_CHARACTERS)]
    return parts
