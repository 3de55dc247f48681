"""The model that follows a script: deterministic, without state or network, and never passed off as a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Self

from shared.delegation import Usage
from shared.errors import ContextFull, ModelUnavailable
from shared.settings import Settings
from worker.models.base import Call, Part, Price, Prompt, Reply, ReplyStarted, Retrying, TextPart, ThinkingPart
from worker.models.script import Block, Past, Rule, Script, Tokens, Turn, fill, load_script, search

PIECE = 24
"""Characters of one delta."""


class ScriptedModel:
    """Plays the turn whose number is that of the replies already in the conversation, so a resumed run goes on."""

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self._script = script
        self._name = name
        rates = script.price
        self._price = rates and Price(rates.input, rates.output, rates.cache_read, rates.cache_write)

    @classmethod
    def open(cls, path: str, settings: Settings) -> Self:
        """The model for a script file, or for the built-in script of "". Raises Misconfigured."""
        return cls(load_script(path), f"scripted:{path}" if path else "scripted")

    @property
    def name(self) -> str:
        return self._name

    def price(self) -> Price | None:
        """The price the script gives, or None: a script costs nothing, but that is not a model's price."""
        return self._price

    def window(self) -> int:
        """The window the script gives, in tokens."""
        return self._script.window

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part, None]:
        """The script's turn for this conversation. Raises ModelUnavailable where the script says so."""
        task, replies, results = _conversation(prompt)
        rule = self._rule(task)
        turn, played = _turn(rule, replies) if prompt.allow_tools else (_words(rule), 0)
        past = Past(task, results, played)
        blocks = [block for block in turn.blocks if _applies(block, prompt, past)]
        for fault in turn.faults:
            if fault.kind == "unavailable":
                raise ModelUnavailable(f"model {self._name}: {fault.message}")
            if fault.kind == "too_long" and len(prompt.messages) > 1:
                raise ContextFull(f"model {self._name}: {fault.message}")
            if fault.kind == "cut":
                yield TextPart("These words are cut")
            yield Retrying(fault.message, fault.delay)
            await asyncio.sleep(fault.delay)
        yield ReplyStarted(self._spent(turn, prompt, ""))
        await asyncio.sleep(turn.delay)
        content = self._content(blocks, past, replies)
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

    def _content(self, blocks: list[Block], past: Past, replies: int) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = []
        for block in blocks:
            if block.call is not None:
                for again in range(block.times):
                    arguments = fill(block.arguments, replace(past, round=past.round * block.times + again))
                    content.append(_call(f"toolu_script_{replies}_{len(content)}", block.call, arguments))
            elif block.thinking is not None:
                content.append({"type": "thinking", "thinking": fill(block.thinking, past), "signature": "scripted"})
            elif text := fill(block.text, past):
                content.append({"type": "text", "text": text})
        if self._script.label and not any(block["type"] == "tool_use" for block in content):
            content.append({"type": "text", "text": f"\n\n{self._script.label}"})
        return content

    def _reply(self, content: list[dict[str, Any]], turn: Turn, prompt: Prompt) -> Reply:
        calls = [Call(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
        usage = self._spent(turn, prompt, json.dumps(content, ensure_ascii=False))
        return Reply(
            content=content,
            stop_reason=turn.stop or ("tool_use" if calls else "end_turn"),
            usage=usage,
            text="".join(block["text"] for block in content if block["type"] == "text"),
            thinking="".join(block["thinking"] for block in content if block["type"] == "thinking"),
            calls=calls,
        )

    def _spent(self, turn: Turn, prompt: Prompt, said: str) -> Usage:
        """What the script says it costs, or an estimate; before anything is said the prompt alone."""
        spent = turn.usage or Tokens(input=sum(map(len, prompt.messages)) // 4, output=len(said) // 4)
        usage = Usage(
            input_tokens=spent.input,
            output_tokens=spent.output if said else 0,
            cache_read_tokens=spent.cache_read,
            cache_write_tokens=spent.cache_write,
        )
        return usage.model_copy(update={"cost_usd": self._price.cost(usage) if self._price else None})


def _call(id_: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def _conversation(prompt: Prompt) -> tuple[str, int, tuple[str, ...]]:
    """The first user text, the number of replies, and the texts of all tool results."""
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
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def _turn(rule: Rule, number: int) -> tuple[Turn, int]:
    """The turn of that number, and how often it was played before; after the last one only the summary is left."""
    for turn in rule.turns:
        if number < turn.repeat:
            return turn, number
        number -= turn.repeat
    return _words(rule), 0


def _words(rule: Rule) -> Turn:
    return Turn(blocks=[Block(text=rule.summary)])


def _applies(block: Block, prompt: Prompt, past: Past) -> bool:
    tools = {tool.name for tool in prompt.tools}
    last = past.text(None)
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
            parts += [kind(text[at : at + PIECE]) for at in range(0, len(text), PIECE)]
    return parts
