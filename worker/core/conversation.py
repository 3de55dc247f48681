"""The conversation of a run: its messages, what they were billed, and when they are too many for the model.

Append-only; each message is encoded once, when it is added. Provider signatures bind to the exact prefix, so nothing
that was sent is ever edited: a conversation that is too long is replaced by a new one (``model_calls.compact``). Only
thinking is left out again, where its signature is refused or belongs to another model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from ...shared.text import valid
from ...shared.tokens import count, tokens_at_most
from ..models.base import NO_WORDS, Call, Prompt, Reply, ToolSpec, with_call_keys
from ..models.endings import Ending
from ..models.thinking import has_thinking, without_thinking
from ..threads import run_in_thread
from ..tools.base import ToolResult

RESTART = b'{"restart":true}'
"""Separates two conversations of one run in the store: what precedes it is no longer sent."""
PROBLEMS = b',"problems":'
"""The last key of a stored reply: which of its calls could not be parsed, and why. Never sent: endpoints reject it."""
MODEL = "@model"
"""Stands there for the model whose thinking the reply has, beside the ids of calls: earlier versions ignore it."""
FULL = 0.8
"""Fraction of the window at which it still has room for a summary, or for a reply without one."""
BYTES_PER_TOKEN = 2
"""Below the average of any text, so that the estimate errs on the early side."""
LIKELY_RATIO = 1.5
"""Tokens of Claude per token of the offline encoding, for English and code."""
INLINE_BYTES = 10_000
"""Size of the unsent messages up to which their tokens are counted without a thread."""


class Conversation:
    """The messages of one run's current conversation.

    Args:
        kept: The entries that earlier attempts stored.
        store: Called with every new entry, to store it.
        task: The text blocks of the first user message, added where there is none yet, and repeated after a compaction.
            What precedes the last block may be shared with other delegations.
        window: The model's context window, in tokens.
        billed: The checkpoint's value of ``billed``.
        translate: Converts a prompt to its wire form, message by message, where that differs.
        retries: How often the run was retried before, for the keys of calls.
        model: The name of the model: thinking of other models is stored, but not sent.
    """

    ended = False
    """Whether the last reply ended the work."""

    def __init__(
        self,
        kept: Sequence[bytes] = (),
        store: Callable[[bytes], None] = lambda entry: None,
        *,
        task: tuple[str, ...] = (),
        window: int = 200_000,
        billed: Sequence[int] = (0, 0),
        translate: Callable[[Prompt], Prompt] | None = None,
        retries: int = 0,
        model: str = "",
    ) -> None:
        present = [_decoded(entry) for entry in current_entries(kept)]
        self.messages: list[bytes] = [
            message if notes.get(MODEL, model) == model else without_thinking(message) for message, notes in present
        ]
        self._problems: Mapping[str, str] = present[-1][1] if present else {}
        """Parse errors of the last message's calls, by call id."""
        self._store = store
        self.task = task
        self._window = window
        self.billed = tuple(billed)
        """Tokens billed with the last reply, and the bytes of messages they cover; stored for the next attempt."""
        self._sent = 0
        """Messages covered by the tokens billed in this attempt. Those of earlier ones may have had other tools."""
        self._translate = translate
        self.retries = retries
        self._model = model
        self._drops_thinking = False
        """Whether the endpoint has refused the thinking of this conversation."""
        self.reply_id: str | None = None
        """The endpoint's id of the last reply of this attempt; None before it."""
        self.last_words = ""
        """The last answer that had any text: of one reply, or of several where each continues the one before."""
        self._beginning = _beginning(self.messages)
        """What the next reply continues, if it does."""
        self._ids = {block["id"] for message in self.messages for block in calls_in(message)}
        self._shared = user_message(*task[:-1])[:-3] if len(task) > 1 else b""
        if task and not self.messages:
            self.ask(*task)

    def checkpoint(self) -> dict[str, Any]:
        """Returns what the next attempt has to know besides the messages, to be encoded as JSON."""
        return {"window": self.billed, "ended": True} if self.ended else {"window": self.billed}

    @property
    def size(self) -> int:
        return sum(map(len, self.messages))

    @property
    def is_full(self) -> bool:
        """Whether it nears the window: the tokens billed, plus an estimate of what was added since."""
        billed_tokens, billed_bytes = self.billed
        return billed_tokens + (self.size - billed_bytes) / BYTES_PER_TOKEN >= self._window * FULL

    async def fills_window(self) -> bool:
        """Whether a conversation that ``is_full`` by its size is so by its tokens, too; counts them, in a thread.

        A single message cannot be shortened, so it is full only where it certainly exceeds the window.
        """
        billed_tokens, billed_bytes = self.billed
        new = b"".join(self.messages)[billed_bytes:].decode("utf-8", "replace")
        ratio, share = (LIKELY_RATIO, FULL) if len(self.messages) > 1 else (1, 1)
        return billed_tokens + await run_in_thread(count, new) * ratio >= self._window * share

    @property
    def shared_end(self) -> int:
        """The offset in the first message where the block ends that other delegations may share; 0: there is none."""
        return len(self._shared) if self.messages and self.messages[0].startswith(self._shared) else 0

    @property
    def sent(self) -> int:
        """How many of the messages the last request of this attempt had."""
        return max(self._sent - 1, 0)

    @property
    def awaits_rest(self) -> bool:
        """Whether the next reply continues the last one, so that nothing may come between them."""
        last = self.messages[-1]
        return last.startswith(GO_ON) or (last.startswith(_REPLY) and b'"type":"server_tool_use"' in last)

    def restart(self, *texts: str) -> None:
        """Begins a new conversation with this user message; the previous one stays stored, but is not sent."""
        self._store(RESTART)
        self._ids.clear()
        self.messages, self.billed, self._sent, self.reply_id = [], (0, 0), 0, None
        self.ask(*texts)

    def apart(self, *texts: str) -> Conversation:
        """Returns another conversation, with this user message; it is not stored."""
        return Conversation(
            task=texts, window=self._window, translate=self._translate, retries=self.retries, model=self._model
        )

    def ask(self, *texts: str) -> None:
        """Adds a user message of these text blocks."""
        self._append(user_message(*texts))

    def add(self, reply: Reply, ending: Ending = Ending.DONE) -> Reply:
        """Adds the model's reply: text, thinking with its signature, and calls; records what was billed.

        Where the endpoint refused the thinking, none is sent any more, so that not every turn is refused first.
        Returns the reply with the ids that its calls have here; all but ids and names is verbatim.
        """
        reply = reply.sendable(self._ids)
        self._ids |= {call.id for call in reply.calls}
        self._problems = {call.id: call.problem for call in reply.calls if call.problem}
        message = to_json({"role": "assistant", "content": reply.content})
        notes = self._problems | ({MODEL: self._model} if self._model and has_thinking(message) else {})
        self._store(message[:-1] + PROBLEMS + to_json(notes) + b"}" if notes else message)
        self.messages.append(message)
        self._drops_thinking |= reply.refused_thinking
        if self._drops_thinking:
            self.messages = [*map(without_thinking, self.messages)]
        self.billed, self._sent = (reply.usage.total, self.size), len(self.messages)
        if ending is not Ending.IMITATION:
            self.last_words = joined(self._beginning, reply.text) or self.last_words
        continues = ending in (Ending.CUT, Ending.PAUSED) or (self._beginning and ending is Ending.EMPTY)
        self._beginning = self.last_words if continues else ""
        self.reply_id = reply.id or None
        return reply

    def answer(self, answers: Iterable[tuple[Call, ToolResult]], note: str = "") -> None:
        """Adds one result per call, in call order, as one message; ``note`` is appended as text."""
        content: list[dict[str, Any]] = []
        for call, result in answers:
            block = {"type": "tool_result", "tool_use_id": call.id, "content": valid(result.for_model)}
            content.append(block if result.success else block | {"is_error": True})
        if note:
            content.append({"type": "text", "text": valid(note)})
        self._append(to_json({"role": "user", "content": content}))

    def unanswered(self, turn: int) -> list[Call]:
        """Returns the calls of the last message, that of ``turn``, that a crash or a limit left without a result."""
        calls = [
            Call(
                block["id"],
                block["name"],
                block["input"] if isinstance(block["input"], dict) else {},
                self._problems.get(block["id"]),
            )
            for block in (calls_in(self.messages[-1]) if self.messages else ())
        ]
        return with_call_keys(calls, turn, self.retries)

    def recall_last_words(self) -> bool:
        """Restores the words of a reply that ended the work. Returns False where the last message is another one."""
        last: dict[str, Any] = json.loads(self.messages[-1])
        if last["role"] != "assistant" or calls_in(self.messages[-1]):
            return False
        text = "".join(block["text"] for block in last["content"] if block.get("text", NO_WORDS) != NO_WORDS)
        self.last_words = joined(_beginning(self.messages[:-1]), text)
        return True

    async def tokens_at_most(self, prompt: Prompt) -> int:
        """Returns an upper bound of the prompt's tokens: those billed for its sent part, and a bound of the rest.

        Runs in a thread where there may be much to count.
        """
        if self._sent and sum(map(len, prompt.messages[self._sent :])) <= INLINE_BYTES:
            return self._tokens_at_most(prompt)
        return await run_in_thread(self._tokens_at_most, prompt)

    def _tokens_at_most(self, prompt: Prompt) -> int:
        prompt = self._translate(prompt) if self._translate else prompt
        new = tokens_at_most(b"".join(prompt.messages[self._sent :]).decode("utf-8", "replace"))
        return new + (self.billed[0] if self._sent else _tokens_before(prompt.system, prompt.tools))

    def _append(self, entry: bytes) -> None:
        self.messages.append(entry)
        self._store(entry)


@lru_cache(maxsize=64)
def _tokens_before(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """Returns an upper bound of the tokens that precede the messages, counted once for the runs that share them."""
    return tokens_at_most(system + "".join(f"{tool.name}{tool.description}{tool.schema}" for tool in tools))


def current_entries(kept: Sequence[bytes]) -> Sequence[bytes]:
    """Returns the stored entries since the last restart: those that are still sent."""
    return kept[max((at for at, entry in enumerate(kept) if entry == RESTART), default=-1) + 1 :]


def user_message(*texts: str) -> bytes:
    """Returns a user message of these text blocks, encoded, without those that are blank."""
    blocks = [{"type": "text", "text": valid(text)} for text in texts if text.strip()]
    return to_json({"role": "user", "content": blocks})


GO_ON = user_message('<system_hint type="reply_').removesuffix(b'"}]}')
"""The beginning of the messages after which a reply continues the one before (``prompt.py``)."""
_REPLY = b'{"role":"assistant"'


def calls_in(message: bytes) -> list[dict[str, Any]]:
    if b'"tool_use"' not in message:
        return []
    parsed = json.loads(message)
    return [block for block in parsed["content"] if parsed["role"] == "assistant" and block["type"] == "tool_use"]


def joined(beginning: str, rest: str) -> str:
    """Returns two pieces of one answer as one text; models leave out the blank between two words where they go on."""
    is_whole = not beginning or not rest or beginning[-1].isspace() or rest[0].isspace() or rest[0] in ",.;:!?)]}"
    return beginning + ("" if is_whole else "\n" if rest[0] in "#-*|`>" else " ") + rest


def _beginning(messages: Sequence[bytes]) -> str:
    """Returns the text of the last replies, as far back as each was to be continued."""
    text, at = "", len(messages) - 1
    while at > 0 and messages[at].startswith(GO_ON):
        content: list[dict[str, Any]] = json.loads(messages[at - 1])["content"]
        text = joined("".join(block["text"] for block in content if block.get("text", NO_WORDS) != NO_WORDS), text)
        at -= 2
    return text


def _decoded(entry: bytes) -> tuple[bytes, dict[str, str]]:
    """Splits a stored entry into the message, byte for byte, and the problems of its calls, with its model."""
    message, found, _ = entry.rpartition(PROBLEMS)
    problems: dict[str, str] = json.loads(entry).get("problems", {}) if found else {}
    return (message + b"}", problems) if problems else (entry, {})
