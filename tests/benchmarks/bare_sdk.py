"""The yardstick: the plainest agent loop over the SDK's ``messages.stream``, which keeps and reports nothing.

A process of its own: `python -m tests.benchmarks.bare_sdk --url URL --folder DIR --task TEXT --count N --at-once M`
prints the CPU time of N conversations, after a few that are not counted, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import uvloop
from anthropic import AsyncAnthropic

from tests.benchmarks.script import FINAL

WARM_UP = 3
CONNECTIONS = 2000
TOOL: Any = {
    "name": "read_file",
    "description": "Read a file",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    },
}


async def converse(client: AsyncAnthropic, task: str, folder: Path) -> int:
    """Holds one conversation to its end. Returns the number of its turns."""
    messages: list[Any] = [{"role": "user", "content": task}]
    turns = 0
    while True:
        turns += 1
        async with client.messages.stream(model="mock", max_tokens=16_000, tools=[TOOL], messages=messages) as stream:
            async for _ in stream:
                pass
            reply = await stream.get_final_message()
        content = [block.to_dict() for block in reply.content]
        messages.append({"role": "assistant", "content": content})
        if reply.stop_reason != "tool_use":
            assert FINAL in str(content)
            return turns
        messages.append({"role": "user", "content": [_answer(block, folder) for block in content if "input" in block]})


def _answer(call: dict[str, Any], folder: Path) -> dict[str, Any]:
    text = (folder / call["input"]["path"]).read_text()
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text}


async def main(options: argparse.Namespace) -> None:
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    http = anthropic.DefaultAsyncHttpxClient(limits=limits, trust_env=False)
    client = AsyncAnthropic(
        base_url=options.url, api_key="benchmark-key", http_client=http, max_retries=options.retries or 2
    )
    async with client:
        for _ in range(0 if options.retries else WARM_UP):
            await converse(client, options.task, options.folder)
        free = asyncio.Semaphore(options.at_once)

        async def one() -> int:
            async with free:
                return await converse(client, options.task, options.folder)

        before = _cpu_seconds()
        ends = await asyncio.gather(*(one() for _ in range(options.count)), return_exceptions=bool(options.retries))
        turns = [end for end in ends if isinstance(end, int)]
        print(json.dumps({"cpu_seconds": _cpu_seconds() - before, "turns": sum(turns), "finished": len(turns)}))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The SDK's own loop.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--at-once", type=int, required=True)
    parser.add_argument("--retries", type=int, help="of each request; conversations may then fail")
    uvloop.run(main(parser.parse_args()))
