"""``python -m tests.fake_model --port 0``: prints its URL, serves until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from tests.fake_model import FakeModel, PromptCache


async def serve(fake: FakeModel) -> None:
    async with fake:
        print(fake.url, flush=True)
        await asyncio.Event().wait()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--key", default=FakeModel.key)
parser.add_argument("--cache", action="store_true", help="bill by the rules of the provider's prompt cache")
parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="before the first event of every reply")
given = parser.parse_args()
cache = PromptCache() if given.cache else None
with suppress(KeyboardInterrupt):
    asyncio.run(serve(FakeModel(port=given.port, key=given.key, cache=cache, delay=given.delay)))
