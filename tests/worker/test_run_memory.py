"""What an ended run still holds until the garbage collector finds it."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from deputize.shared.request import DelegationRequest
from deputize.shared.tokens import count
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, script

TEXT = 200_000


async def test_an_ended_run_holds_neither_its_conversation_nor_its_steps(bench: Bench, tmp_path: Path) -> None:
    """The text is in a call, in the patch, and read again, nearly whole, in steps."""
    model = script(
        tmp_path,
        [call("write_file", path="a", content="one line\n" * (TEXT // 9))],
        [call("read_file", path="a", offset=1000 * number + 1, limit=1000) for number in range(20)],
    )

    async def run() -> None:
        id = await bench.accept(DelegationRequest(task="do it", model=model))
        assert (await carry_out(bench.services, id)) is not None

    count("loads the encoding")
    await run()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            await run()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 5 * TEXT
