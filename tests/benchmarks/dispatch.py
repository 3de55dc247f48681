"""How many delegations a second the API accepts in batches: each written, queued and answered."""

from __future__ import annotations

import time

from tests.benchmarks.number import Number
from tests.benchmarks.parts import open_parts
from tests.benchmarks.script import Script

BATCH = 1000
BATCHES = 3


async def measure(runs: int) -> list[Number]:
    rates: list[float] = []
    singles: list[float] = []
    async with open_parts() as parts:
        url = f"{await parts.api()}/v1/delegations"
        body = parts.request(Script()).to_dict()
        http = parts.mock.http
        for _ in range(runs):
            parts.empty()
            (await http.post(f"{url}:batch", json={"requests": [body] * 10})).raise_for_status()
            begun = time.perf_counter()
            for _ in range(BATCHES):
                answer = await http.post(f"{url}:batch", json={"requests": [body] * BATCH})
                assert answer.status_code == 202, answer.text
            rates.append(BATCH * BATCHES / (time.perf_counter() - begun))
            begun = time.perf_counter()
            for _ in range(100):
                (await http.post(url, json=body)).raise_for_status()
            singles.append(100 / (time.perf_counter() - begun))
    return [
        Number(f"dispatch through batches of {BATCH:,}", "/s", rates, at_least=1000),
        Number("… one request at a time, for comparison", "/s", singles),
    ]
