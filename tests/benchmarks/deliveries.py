"""Deliveries to triggers, some of them repeated, while the services that take them are killed: each counts once.

Of three deliveries two start a delegation each, and one is a message to a delegation that is queued. The sender tries
again at another service until it has an answer, as the services of others do. No worker runs.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.runs.messages import messages_of
from deputize.shared.settings import Settings
from tests.benchmarks.number import Number
from tests.benchmarks.service_processes import ServiceProcess, service_processes
from tests.network.plain_http import PLAIN_HTTP
from tests.processes.redis_server import RedisProcess
from tests.waiting import until

DELIVERIES, REPEATED = 1000, 0.3
_MESSAGES = 10
"""To one delegation, as a rule: twenty that nothing reads are all that it takes."""
AT_ONCE = 20
KILLS = 20
SECRET = "0123456789-of-the-hook"
TABLE: dict[str, Any] = {"scheme": "github", "allowed": ["*"], "task": "Do {/text}"}
TRY_SECONDS = 10.0


@dataclass
class Sender:
    """Sends deliveries, each until it has an answer, to services that come and go."""

    services: list[ServiceProcess]
    chance: random.Random
    http: httpx2.AsyncClient
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    tries: int = 0

    async def send(self, trigger: str, id: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        digest = hmac.new(SECRET.encode(), content, sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": id}
        headers["Content-Type"] = "application/json"
        answer = await until(lambda: self._try(trigger, content, headers))
        assert answer.status_code in (200, 202), answer.text
        self.answers.setdefault(id, []).append({"status": answer.status_code, **answer.json()})

    async def _try(self, trigger: str, content: bytes, headers: dict[str, str]) -> httpx2.Response | None:
        """Returns the answer; None where the service was killed, or is not ready."""
        if not (urls := [each.url for each in self.services if each.url]):
            return None
        self.tries += 1
        try:
            url = f"{self.chance.choice(urls)}/v1/triggers/{trigger}"
            answer = await self.http.post(url, content=content, headers=headers)
        except httpx2.TransportError:
            return None
        return answer if answer.status_code < 500 else None


async def measure(runs: int, deliveries: int = DELIVERIES, kills: int = KILLS) -> list[Number]:
    seed = random.randrange(1 << 32)
    print(f"{deliveries} deliveries, {kills} kills, seed {seed}", flush=True)
    chance, rows = random.Random(seed), list[dict[str, float]]()
    for _ in range(runs):
        with TemporaryDirectory(prefix="bench-") as name:
            redis = RedisProcess(Path(name, "redis"))
            try:
                rows.append(await _round(redis.url, Path(name), chance, deliveries, kills))
            finally:
                redis.close()
    share = f"{deliveries:,} deliveries, {REPEATED:.0%} of them repeated, {kills} kills of services"
    return [
        Number(f"{share}: that began nothing", "", [each["lost"] for each in rows], at_most=0),
        Number("… that began something twice", "", [each["twice"] for each in rows], at_most=0),
        Number("… whose tries were answered with different ids", "", [each["different"] for each in rows], at_most=0),
        Number("… tries", "", [each["tries"] for each in rows]),
    ]


async def _round(redis_url: str, folder: Path, chance: random.Random, deliveries: int, kills: int) -> dict[str, float]:
    secret = folder / "secret"
    secret.write_text(SECRET, "utf-8")
    secret.chmod(0o600)
    start = TABLE | {"secret_file": str(secret), "key": "{/topic}"}
    triggers = {"begin": start, "comment": start | {"kind": "continue"}}
    own: dict[str, Any] = {"redis_url": redis_url, "home": folder, "no_token": True, "triggers": triggers}
    settings = Settings.load(environ={}, **own)
    async with (
        open_service(settings, redis_url) as service,
        service_processes(settings, folder, 2) as services,
        httpx2.AsyncClient(verify=PLAIN_HTTP, timeout=TRY_SECONDS) as http,
    ):
        sender = Sender(services, chance, http)
        topics = max(1, deliveries // 3 // _MESSAGES)
        for topic in range(topics):
            await sender.send("begin", f"topic-{topic}", {"topic": f"topic-{topic}", "text": f"topic-{topic}"})
        sent = [f"d-{number}" for number in range(deliveries)]
        sent += chance.sample(sent, round(REPEATED * deliveries))
        chance.shuffle(sent)
        await _send_all(sender, sent, kills, topics)
        begun = await _begun(service)
        tries = sender.tries
    times = [begun[f"d-{number}"] for number in range(deliveries)]
    different = sum(len({each["delegationId"] for each in found}) > 1 for found in sender.answers.values())
    return {
        "lost": times.count(0),
        "twice": sum(each > 1 for each in times),
        "different": different,
        "tries": tries,
    }


async def _send_all(sender: Sender, sent: list[str], kills: int, topics: int) -> None:
    """Sends all, so many at once, and kills a service after each of equal shares of them."""
    left, every = iter([*enumerate(sent)]), max(1, len(sent) // kills)

    async def send_on() -> None:
        for number, id in left:
            if number % every == every - 1:
                victim = await until(
                    lambda: sender.chance.choice([each for each in sender.services if each.url] or [None])
                )
                await victim.kill()
                starting.append(asyncio.create_task(victim.start()))
            index = int(id.partition("-")[2])
            trigger, topic = ("comment", f"topic-{index % topics}") if index % 3 == 0 else ("begin", id)
            await sender.send(trigger, id, {"topic": topic, "text": id})

    starting = list[asyncio.Task[None]]()
    try:
        await asyncio.gather(*(send_on() for _ in range(AT_ONCE)))
    finally:
        await asyncio.gather(*starting)


async def _begun(service: Delegations) -> Counter[str]:
    """Returns how often each delivery has begun something."""
    found, cursor, topics = Counter[str](), None, list[str]()
    while True:
        page = await service.list(limit=500, cursor=cursor)
        for each in page.items:
            text = each.request.task.removeprefix("Do ")
            found[text] += 1
            topics += [each.id] if text.startswith("topic-") else []
        if not (cursor := page.next_cursor):
            break
    for id in topics:
        for message in await messages_of(service.store.redis, id):
            found[message.text.removeprefix("Do ")] += 1
    return found
