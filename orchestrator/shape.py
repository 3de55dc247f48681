"""How many values a body holds, counted before anything is made of them.

A parser makes objects of some hundred bytes from two bytes of text, and a mistake from each.
"""

from __future__ import annotations

import asyncio
import re

from shared.errors import TooLarge

MAX_VALUES = 20_000
"""Of one request, in all its lists and tables."""
MAX_BATCH_VALUES = 100_000
SLICE = 10_000
"""So many tokens are looked at before others get their turn."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,', re.DOTALL)


async def check_shape(body: bytes, most: int) -> None:
    """Raises TooLarge for a document of more than ``most`` values; whether it is JSON shows later."""
    if body.count(b",") < most:  # those in texts included, so most bodies need no second look
        return
    commas = 0
    for number, token in enumerate(_TOKEN.finditer(body)):
        if body[token.start()] == 0x2C:
            commas += 1
            if commas >= most:
                raise TooLarge(f"the body holds more than {most:,} values; send less, or in parts")
        if number % SLICE == 0:
            await asyncio.sleep(0)
