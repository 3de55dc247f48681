"""A copy that takes long is reported to those who wait for a run to begin."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from deputize.worker.workspace.tree_copy import CopyTally, reported
from tests.runs.bench import Bench, say, script


async def test_a_copy_that_takes_long_is_reported_with_its_size(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.bin").write_bytes(bytes(range(256)) * 8000)
    (source / "b").write_text("b")

    async def told() -> list[str]:
        result = await bench.run(
            model=script(tmp_path, [say("Done.")]), workspace={"kind": "directory", "path": str(source)}
        )
        events = [each.event for each in await bench.events(result.delegation_id)]
        return [event.message for event in events if event.type == "progress"]

    bench.services.long_copy_seconds = 60
    assert await told() == []
    bench.services.long_copy_seconds = 0
    assert re.fullmatch(rf"copied 2 files, 2 MB of {source} in \d\.\d s", (await told())[-1])


async def test_while_it_takes_long_its_progress_is_shown() -> None:
    tally, heard, going_on = CopyTally(3, 5_000_000), list[str](), asyncio.Event()

    def tell(message: str) -> None:
        heard.append(message)
        going_on.set()

    await reported(going_on.wait(), tally, "/srv/shop", tell, after=0.01)
    assert heard[0] == "copying /srv/shop: 3 files, 5 MB so far"
    assert heard[1].startswith("copied 3 files, 5 MB of /srv/shop in ")
