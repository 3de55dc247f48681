"""A peer: the plainest agent loop over the router of LiteLLM, which retries what an endpoint refuses.

A process of its own, by an interpreter that can import litellm: `PYTHON -m tests.benchmarks.litellm_router --url URL
--folder DIR --task TEXT --count N --at-once M` prints how many of N conversations finished, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.benchmarks.script import FINAL

RETRIES = 20
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}},
    },
}


async def converse(litellm: Any, router: Any, task: str, folder: Path) -> None:
    """Holds one conversation to its end."""
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        stream = await router.acompletion(model="mock", messages=messages, tools=[TOOL], max_tokens=16_000, stream=True)
        chunks = [chunk async for chunk in stream]
        reply = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            assert FINAL in (reply.content or "")
            return
        for call in reply.tool_calls:
            text = (folder / json.loads(call.function.arguments)["path"]).read_text()
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def main(options: argparse.Namespace) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks for prices on the network
    litellm: Any = import_module("litellm")
    parameters = {"model": "anthropic/mock", "api_base": options.url, "api_key": "benchmark-key"}
    deployment = {"model_name": "mock", "litellm_params": parameters}
    router = litellm.Router(model_list=[deployment], num_retries=RETRIES)
    free = asyncio.Semaphore(options.at_once)

    async def one() -> None:
        async with free:
            await converse(litellm, router, options.task, options.folder)

    ends = await asyncio.gather(*(one() for _ in range(options.count)), return_exceptions=True)
    failures = [end for end in ends if end is not None]
    kinds = sorted({type(end).__name__ for end in failures})
    print(json.dumps({"finished": len(ends) - len(failures), "failures": kinds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The router's own retries.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--at-once", type=int, required=True)
    asyncio.run(main(parser.parse_args()))
