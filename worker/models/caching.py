"""Prompt caching at the Messages API: where entries end, how long they are kept, and what identifies a prefix.

An entry ends at a breakpoint and covers everything before it: tools, system, messages. There are at most four: at the
end of tools and system, at the end of the context that delegations share, automatically at the last block, and, where a
turn added more blocks than the endpoint looks back over, where the request before ended. Prefixes below the model's
minimum get none. Nothing before the last breakpoint has an id, a date or a counter, so equal input has equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from .base import Prefix, Prompt, ToolSpec

FIVE_MINUTES = 300.0
HOUR = 3600.0
LOOK_BACK = 18
"""Blocks after which the entry of the request before is named: endpoints look back over 20 positions."""
_BYTES_PER_TOKEN = 3
"""An estimate on the high side: a marked prefix that is too short after all costs nothing."""
_MINIMUM_TOKENS = (
    (re.compile(r"claude-(opus-5|fable-5|mythos-5)(-|$)"), 512),
    (re.compile(r"claude-haiku-4-5(-|$)"), 4096),
)
_MINIMUM = 1024
_BLOCK = b'"type":'
MAX_PREFIXES = 512
"""Encoded prefixes in a cache: runs with the same tools and the same system prompt share one."""


class Retention:
    """Chooses how long the cache entries of one run are kept, by the gaps between its requests.

    An entry kept for an hour costs 2 instead of 1.25 times its input, and spares 1.15 times the whole prefix in every
    gap of over five minutes. With prefixes that grow evenly that pays from one such gap per run on, so the first one
    decides. A gap of over an hour outlasts both.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, hour: bool = False) -> None:
        self._clock = clock
        self._answered: float | None = None
        self._hour = hour

    def hour(self) -> bool:
        """Returns whether the entries of the request that is made now are kept for an hour."""
        if self._answered is not None and FIVE_MINUTES < self._clock() - self._answered < HOUR:
            self._hour = True
        return self._hour

    def note_reply(self) -> None:
        """Notes the end of a reply: the gap begins."""
        self._answered = self._clock()


def cache_control(for_an_hour: bool) -> dict[str, str]:
    """Returns the value of ``cache_control`` for every breakpoint of the request."""
    return {"type": "ephemeral", "ttl": "1h"} if for_an_hour else {"type": "ephemeral"}


@lru_cache(maxsize=MAX_PREFIXES)
def encode_prefix(
    model: str,
    system: str,
    tools: tuple[ToolSpec, ...],
    *,
    thinking: str = "",
    for_an_hour: bool = False,
    only_shared: bool = False,
    cached: bool = True,
) -> bytes:
    """Returns the encoded model, tools, system and kind of thinking, up to the next field.

    With a breakpoint, if it is to be ``cached``.
    """
    hours = for_an_hour, for_an_hour and not only_shared
    control, last = map(cache_control, hours) if cached else (None, None)
    declared = [{"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools]
    thought = {"type": thinking} | ({"display": "summarized"} if thinking == "adaptive" else {}) if thinking else None
    fields: dict[str, Any] = {"model": model, "stream": True, "thinking": thought, "cache_control": last}
    fields |= {"system": system, "tools": declared}
    if control and _tokens(len(_encoded(system)) + len(_encoded(declared))) >= _minimum(model):
        if system:
            fields["system"] = [{"type": "text", "text": system, "cache_control": control}]
        else:
            declared[-1]["cache_control"] = control
    fields = {name: value for name, value in fields.items() if value}
    return _encoded(fields)[:-1] + b","


def with_breakpoints(model: str, prompt: Prompt, prefix: bytes) -> Sequence[bytes]:
    """Returns the messages with their breakpoints; ``prefix`` is what precedes them."""
    if not prompt.messages:
        return prompt.messages
    hour, messages = prompt.cached_for_an_hour, list(prompt.messages)
    if _tokens(len(prefix) + prompt.shared_end) >= _minimum(model):
        messages[0] = _inserted(messages[0], prompt.shared_end, _control(hour))
    if prompt.sent and sum(message.count(_BLOCK) for message in messages[prompt.sent :]) > LOOK_BACK:
        last = messages[prompt.sent - 1]
        control = _control(hour and not prompt.only_shared_for_an_hour)
        messages[prompt.sent - 1] = _inserted(last, len(last) - 3, control) if last.endswith(b"}]}") else last
    return messages


def _control(for_an_hour: bool) -> bytes:
    return b',"cache_control":' + _encoded(cache_control(for_an_hour))


def shared_prefixes(endpoint: str, model: str, prompt: Prompt) -> list[Prefix]:
    """Returns the prefixes that other delegations may share, the shortest first, without those below the minimum."""
    parts = [_head(prompt.system, prompt.tools)] if prompt.system or prompt.tools else []
    parts += [prompt.messages[0][: prompt.shared_end]] if prompt.shared_end else []
    digest, size, found = hashlib.sha256(endpoint.encode()), 0, list[Prefix]()
    for part in parts:
        digest.update(part)
        size += len(part)
        if _tokens(size) >= _minimum(model):
            found.append(Prefix(digest.hexdigest()[:32], _tokens(size)))
    return found


@lru_cache(maxsize=64)
def _head(system: str, tools: tuple[ToolSpec, ...]) -> bytes:
    return _encoded([system, [[tool.name, tool.description, tool.schema] for tool in tools]])


def _inserted(message: bytes, at: int, control: bytes) -> bytes:
    """Returns the message with a breakpoint on the block that ends at this offset."""
    return message[:at] + control + message[at:] if at and message[at : at + 1] == b"}" else message


def _minimum(model: str) -> int:
    return next((tokens for name, tokens in _MINIMUM_TOKENS if name.match(model)), _MINIMUM)


def _tokens(size: int) -> int:
    return size // _BYTES_PER_TOKEN


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
