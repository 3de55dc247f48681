"""``python -m tests.fake_model --port 0``: prints its URL, serves until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from tests.fake_model import FakeModel


async def serve(port: int, key: str) -> None:
    async with FakeModel(port=port, key=key) as fake:
        print(fake.url, flush=True)
        await asyncio.Event().wait()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--key", default=FakeModel.key)
arguments = parser.parse_args()
with suppress(KeyboardInterrupt):
    asyncio.run(serve(arguments.port, arguments.key))
