"""The processes that validate against schemas: a schema that takes too long fails its own call and delays no other.

There are two, each with a queue: what the first does not finish quickly goes to the second, so that slow schemas
occupy only the second one. A process is started when it is first needed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, Self

from . import validation
from .validation import FRAME, MAX_BYTES

QUICK_SECONDS = 0.1
SLOW_SECONDS = 2.0
"""CPU seconds of one validation."""
WALL_SECONDS = 20.0
"""How long to wait for an answer, generous enough for a busy machine."""
MAX_ARGUMENTS = 4 * 1024 * 1024
_REMEMBERED = 2048


class ValidationTimeout(Exception):
    """The validation exceeded its time limit."""


class ValidatorPool:
    """Runs the validations of one worker. With ``keep`` its processes live until it is closed, else for one request."""

    def __init__(self, *, keep: bool = False, seconds: float = SLOW_SECONDS) -> None:
        self._keep = keep
        self.seconds = seconds
        self.lanes = _Validator(min(QUICK_SECONDS, seconds)), _Validator(seconds)
        self._declared: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for lane in self.lanes:
            await lane.close()

    async def cost(self, schema: Mapping[str, Any]) -> int | None:
        """See ``validation.cost``. Raises ``InvalidSchema`` also for an invalid JSON Schema; cached per schema."""
        try:
            text = json.dumps(schema)
        except RecursionError:
            raise validation.InvalidSchema("they are nested too deep") from None
        if len(text) > MAX_BYTES:
            raise validation.InvalidSchema(f"they are longer than {MAX_BYTES} bytes of JSON")
        key = sha256(text.encode()).digest()
        answer = self._declared.pop(key, None)
        if answer is None:
            try:
                answer = await self._ask(f'"schema":{text}')
            except ValidationTimeout:
                answer = {"wrong": f"they could not be checked within {self.seconds:g} seconds"}
        self._declared[key] = answer
        if len(self._declared) > _REMEMBERED:
            self._declared.popitem(last=False)
        return _checked_answer(answer)["cost"]

    async def mistakes(
        self, schema: Mapping[str, Any], arguments: Mapping[str, Any], *, slow: bool = False
    ) -> list[dict[str, str]]:
        """See ``validation.mistakes``. Also raises ``ValidationTimeout``; ``slow`` skips the quick process."""
        text = json.dumps(arguments)
        if len(text) > MAX_ARGUMENTS:
            return [{"pointer": "", "detail": f"they are longer than {MAX_ARGUMENTS} bytes of JSON"}]
        request = f'"schema":{json.dumps(schema)},"arguments":{text}'
        return _checked_answer(await self._ask(request, slow=slow))["mistakes"]

    async def _ask(self, request: str, *, slow: bool = False) -> dict[str, Any]:
        for lane in self.lanes[slow:]:
            answer = await lane.ask(request, keep=self._keep)
            if "overrun" not in answer:
                return answer
        raise ValidationTimeout


class _Validator:
    """One process, started on the first request. It answers one request after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    async def ask(self, request: str, *, keep: bool) -> dict[str, Any]:
        frame = f'{{"seconds":{self._seconds},{request}}}'.encode()
        async with self._turn:
            answered = False
            try:
                async with asyncio.timeout(WALL_SECONDS):
                    answer = await self._request(frame)
                answered = True
            except (TimeoutError, OSError, EOFError):
                answer = {"overrun": True}  # it crashed, or does not release its interpreter
            finally:
                if not (keep and answered):
                    await self.close()
        return answer

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _request(self, frame: bytes) -> dict[str, Any]:
        if self._process is None:
            self._process = await _start()
        incoming, outgoing = self._process.stdin, self._process.stdout
        assert incoming
        assert outgoing
        incoming.write(FRAME.pack(len(frame)) + frame)
        await incoming.drain()
        (length,) = FRAME.unpack(await outgoing.readexactly(FRAME.size))
        return json.loads(await outgoing.readexactly(length))


async def _start() -> asyncio.subprocess.Process:
    """Starts a process that dies with the loop's thread. It ignores the terminal's Ctrl-C."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", validation.__file__),
        stdin=pipe,
        stdout=pipe,
        stderr=null,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _checked_answer(answer: dict[str, Any]) -> dict[str, Any]:
    if wrong := answer.get("wrong"):
        raise validation.InvalidSchema(wrong)
    return answer
