"""What prompt caching saves: siblings with one context, a long delegation, and what it costs where nothing is shared.

The endpoint is the fake model with the provider's rules, a process of its own. Each round has a system prompt of its
own, so that its cache holds nothing that the round may read. What is written for the shared prefix is counted apart
from what each sibling writes for its own task, which nothing else reads and no sharing can spare.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from deputize.shared.delegation import Status, Usage
from deputize.shared.events import Replied, RunStarted
from tests.benchmarks.ends import Ends, hear_ends
from tests.benchmarks.number import Number
from tests.benchmarks.parts import Parts, Worker, open_parts, settings_for
from tests.benchmarks.sharing_work import DELAY, Work, long_work, shared_siblings, unshared_siblings, write_files
from tests.waiting import until

WORKERS = 4
SLOTS = 16
"""Of each worker: all of them are needed for the siblings."""


@dataclass(frozen=True)
class Finished:
    """One delegation: the seconds from handing over to its first reply, and what its replies were billed."""

    first: float
    replies: Sequence[Usage]
    cost: float
    worker: str


@dataclass(frozen=True)
class Round:
    work: Work
    finished: Sequence[Finished]
    seconds: float
    """From handing over to the last end."""
    cpu_ms: float
    """Of the workers, for each delegation."""

    def first_reply(self, percent: int) -> float:
        times = sorted(each.first for each in self.finished)
        return times[max(0, -(-len(times) * percent // 100) - 1)]

    @property
    def dollars(self) -> float:
        return sum(each.cost for each in self.finished)

    @property
    def firsts(self) -> list[Usage]:
        """The first turns, what was written the most first: the writer's."""
        return sorted((each.replies[0] for each in self.finished), key=lambda usage: -usage.cache_write_tokens)

    @property
    def shared_tokens(self) -> int:
        """Tools, system and context, which all siblings send."""
        return _prompt(self.firsts[0]) - self.work.own_tokens

    @property
    def written_of_shared(self) -> float:
        """Tokens written within the shared prefix, by all of them, for each token of it."""
        size = self.shared_tokens
        written = sum(min(usage.cache_write_tokens, size - usage.cache_read_tokens) for usage in self.firsts)
        return written / size

    @property
    def written_in_all(self) -> float:
        return sum(usage.cache_write_tokens for usage in self.firsts) / self.shared_tokens


async def measure(runs: int) -> list[Number]:
    shared: list[Round] = []
    known: list[Round] = []
    unshared: list[Round] = []
    long: list[Finished] = []
    async with open_stack() as stack:
        await stack.run(unshared_siblings())  # imports, connections, sandboxes
        for _ in range(runs):
            unshared.append(await stack.run(unshared_siblings()))
            assert not _read(unshared[-1].firsts), "they were to share nothing"
            siblings = shared_siblings()
            shared.append(await stack.run(siblings))
            known.append(await stack.run(siblings.with_another_context()))
            long += (await stack.run(long_work(stack.parts.folder))).finished
    return [*_siblings(shared, known, unshared), *_long(long), *_unshared(unshared)]


def _siblings(shared: list[Round], known: list[Round], unshared: list[Round]) -> list[Number]:
    pairs = list(zip(shared, unshared, strict=True))
    added = [[one.first_reply(percent) - other.first_reply(percent) for one, other in pairs] for percent in (50, 95)]
    return [
        Number("64 siblings: written of the shared prefix", "×", [r.written_of_shared for r in shared], at_most=1.1),
        Number("… and with what each writes for its own task", "×", [r.written_in_all for r in shared]),
        Number("… the shared prefix", "tokens", [r.shared_tokens for r in shared]),
        Number(
            "… first turns read, writer left out",
            "%",
            [_read(r.firsts[1:]) for r in shared],
            at_least=95,
        ),
        Number("… and with the writer", "%", [_read(r.firsts) for r in shared]),
        Number("… accept → first reply, p50, above that of nothing shared", "s", added[0]),
        Number("… p95 above p95", "s", added[1], at_most=DELAY),
        Number("64 siblings: cost of all", "$", [r.dollars for r in shared]),
        Number("64 siblings: all done", "s", [r.seconds for r in shared]),
        Number("64 siblings, only the context is new: cost of all", "$", [r.dollars for r in known]),
        Number("… first turns read", "%", [_read(r.firsts) for r in known]),
    ]


def _long(long: list[Finished]) -> list[Number]:
    return [
        Number("one delegation of 20 turns: read from the cache", "%", [_read(f.replies) for f in long], at_least=90),
        Number("… its cost", "$", [each.cost for each in long]),
    ]


def _unshared(unshared: list[Round]) -> list[Number]:
    return [
        Number("64 that share nothing: accept → first reply, p50", "s", [r.first_reply(50) for r in unshared]),
        Number("… p95", "s", [r.first_reply(95) for r in unshared]),
        Number("64 that share nothing: all done", "s", [r.seconds for r in unshared]),
        Number("64 that share nothing: cost of all", "$", [r.dollars for r in unshared]),
        Number("64 that share nothing: CPU of the workers for each", "ms", [r.cpu_ms for r in unshared]),
    ]


@dataclass
class Stack:
    """Four workers at the fake model."""

    parts: Parts
    ends: Ends
    url: str
    workers: Sequence[Worker]

    def cpu_seconds(self) -> float:
        return sum(worker.cpu_seconds() for worker in self.workers)

    async def run(self, work: Work) -> Round:
        """Hands all over in one batch, waits for the last one's end, and checks that all of it was done."""
        self.parts.empty()
        self.ends.reset()
        billed, cpu = await self._billed(), self.cpu_seconds()
        begun, wall = time.perf_counter(), time.time()
        accepted = await self.parts.service.create_many(work.requests)
        await self.ends.wait_for(len(accepted))
        seconds = max(self.ends.ended.values()) - begun
        cpu_ms = (self.cpu_seconds() - cpu) * 1000 / len(accepted)
        finished = [await self._finished(delegation.id, wall) for delegation in accepted]
        busy = len({each.worker for each in finished})
        assert busy == min(WORKERS, len(finished)), f"only {busy} workers were busy"
        replies = [usage for each in finished for usage in each.replies]
        assert len(replies) == work.turns * len(finished), f"{len(replies)} replies"
        assert _sums(replies) == await self._billed() - billed, "the events do not show what the endpoint billed"
        return Round(work, finished, seconds, cpu_ms)

    async def _finished(self, id: str, begun: float) -> Finished:
        result = (await self.parts.service.get(id)).result
        assert result is not None
        assert result.status is Status.SUCCEEDED, f"{id}: {result.status}: {result.errors}"
        assert result.usage.cost_usd is not None
        envelopes = await self.parts.service.events(id)
        replies = [(each.at, each.event.usage) for each in envelopes if isinstance(each.event, Replied)]
        worker = next(each.event.worker for each in envelopes if isinstance(each.event, RunStarted))
        usages = [usage for _, usage in replies]
        return Finished(replies[0][0].timestamp() - begun, usages, result.usage.cost_usd, worker)

    async def _billed(self) -> Counter[str]:
        """Tokens of all prompts so far, by the endpoint's books."""
        return Counter((await self.parts.mock.http.get(f"{self.url}/fake/report")).json()["usage"])


@asynccontextmanager
async def open_stack() -> AsyncGenerator[Stack]:
    async with open_parts() as parts:
        key = "benchmark-key"
        parts.start("tests.fake_model", ["--cache", "--delay", str(DELAY), "--key", key], parts.settings)
        log = parts.folder / "tests.fake_model.log"
        await until(lambda: log.exists() and log.read_text().endswith("\n"), 30)
        url = log.read_text().split()[0]
        parts.settings = settings_for(parts.folder, parts.redis_url, url)
        write_files(parts.folder)
        workers = [await parts.worker(SLOTS, str(number)) for number in range(WORKERS)]
        async with hear_ends(parts.redis_url) as ends:
            yield Stack(parts, ends, url, workers)


def _sums(replies: Sequence[Usage]) -> Counter[str]:
    """By the endpoint's names; without zeros."""
    return +Counter(
        input_tokens=sum(usage.input_tokens for usage in replies),
        cache_read_input_tokens=sum(usage.cache_read_tokens for usage in replies),
        cache_creation_input_tokens=sum(usage.cache_write_tokens for usage in replies),
    )


def _prompt(usage: Usage) -> int:
    return usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def _read(usages: Sequence[Usage]) -> float:
    """Percent of the prompts' tokens that were read from the cache."""
    return 100 * sum(usage.cache_read_tokens for usage in usages) / sum(map(_prompt, usages))
