"""The processes that judge schemas: a schema that takes too long costs its own call an error, and nobody else a moment.

Two of them, each with a queue: what the first cannot decide quickly is asked of the second, so that a hundred slow
schemas of one run keep only the second one busy. A process is started when it is first needed.
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

from worker.schemas import validation
from worker.schemas.validation import FRAME, MAX_BYTES

QUICK_SECONDS = 0.1
SLOW_SECONDS = 2.0
"""Of CPU, for one judgement."""
WALL_SECONDS = 20.0
"""How long is waited for an answer: more than enough, also on a machine that does much else."""
MAX_ARGUMENTS = 4 * 1024 * 1024
_REMEMBERED = 2048


class TooSlow(Exception):
    """Nobody knows the answer, and it took as long as it may."""


class ValidatorPool:
    """All judgements of one worker process. ``keep`` its processes until it is closed, or end each with its answer."""

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
        """See ``validation.cost``. Raises ``Misdeclared`` also for what is no JSON Schema; asked once for each."""
        try:
            text = json.dumps(schema)
        except RecursionError:
            raise validation.Misdeclared("they are nested too deep") from None
        if len(text) > MAX_BYTES:
            raise validation.Misdeclared(f"they are longer than {MAX_BYTES} bytes of JSON")
        key = sha256(text.encode()).digest()
        answer = self._declared.pop(key, None)
        if answer is None:
            try:
                answer = await self._ask(f'"schema":{text}')
            except TooSlow:
                answer = {"wrong": f"they could not be judged within {self.seconds:g} seconds"}
        self._declared[key] = answer
        if len(self._declared) > _REMEMBERED:
            self._declared.popitem(last=False)
        return _right(answer)["cost"]

    async def mistakes(
        self, schema: Mapping[str, Any], arguments: Mapping[str, Any], *, slow: bool = False
    ) -> list[dict[str, str]]:
        """See ``validation.mistakes``. Raises ``TooSlow``, too; ``slow``: it is known to take long."""
        said = json.dumps(arguments)
        if len(said) > MAX_ARGUMENTS:
            return [{"pointer": "", "detail": f"they are longer than {MAX_ARGUMENTS} bytes of JSON"}]
        question = f'"schema":{json.dumps(schema)},"arguments":{said}'
        return _right(await self._ask(question, slow=slow))["mistakes"]

    async def _ask(self, question: str, *, slow: bool = False) -> dict[str, Any]:
        for lane in self.lanes[slow:]:
            answer = await lane.ask(question, keep=self._keep)
            if "overrun" not in answer:
                return answer
        raise TooSlow


class _Validator:
    """One process, or none as long as nobody asks. It answers one question after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def at_work(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    async def ask(self, question: str, *, keep: bool) -> dict[str, Any]:
        asked = f'{{"seconds":{self._seconds},{question}}}'.encode()
        async with self._turn:
            answered = False
            try:
                async with asyncio.timeout(WALL_SECONDS):
                    answer = await self._talk(asked)
                answered = True
            except (TimeoutError, OSError, EOFError):
                answer = {"overrun": True}  # it died of the question, or holds its interpreter
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

    async def _talk(self, asked: bytes) -> dict[str, Any]:
        if self._process is None:
            self._process = await _started()
        incoming, outgoing = self._process.stdin, self._process.stdout
        assert incoming
        assert outgoing
        incoming.write(FRAME.pack(len(asked)) + asked)
        await incoming.drain()
        (length,) = FRAME.unpack(await outgoing.readexactly(FRAME.size))
        return json.loads(await outgoing.readexactly(length))


async def _started() -> asyncio.subprocess.Process:
    """It dies with the thread that starts it, which is the loop's. A terminal's Ctrl-C is not for it."""
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


def _right(answer: dict[str, Any]) -> dict[str, Any]:
    if wrong := answer.get("wrong"):
        raise validation.Misdeclared(wrong)
    return answer
