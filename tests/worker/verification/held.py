"""Checks that a test holds on their grounds, and lets go on when it has seen them there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call
from tests.waiting import until

GOOD, BAD = call("write_file", path="a.txt", content="good\n"), call("write_file", path="a.txt", content="bad\n")
HELD = {"kind": "command", "run": "until [ -e go ]; do sleep 0.05; done; grep good a.txt"}
"""Waits until the test lets it go on."""
CANARY = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-good\n+broken\n"
GROUNDS = ("base", "candidate", "canary")


def grounds_in(workspaces: Path, id: str, name: str = "*") -> list[Path]:
    """The grounds of a run. Those that are removed meanwhile are no error, as they would be to ``Path.glob``."""
    return [Path(each) for each in glob(f"{workspaces}/{id}.ground-*/{name}-*")]  # noqa: PTH207 - it raises nothing


def grounds(bench: Bench, id: str) -> list[Path]:
    return [path for name in GROUNDS for path in grounds_in(bench.settings.workspaces, id, name)]


def let_go(bench: Bench, id: str, names: Collection[str] = GROUNDS) -> None:
    for path in grounds(bench, id):
        if path.name.partition("-")[0] in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                (path / "go").touch()


async def until_ended(bench: Bench, id: str, names: Collection[str] = GROUNDS) -> ToolAgentResult:
    async def ended() -> ToolAgentResult | None:
        let_go(bench, id, names)
        return (await bench.store.get(id)).result

    return await until(ended, 60)


async def until_on(bench: Bench, id: str, name: str) -> None:
    """Returns when the check runs on that ground; it goes on there as soon as it is let."""

    def there() -> bool:
        let_go(bench, id, GROUNDS[: GROUNDS.index(name)])
        return any(path.name.startswith(name) for path in grounds(bench, id))

    await until(there, 60)


async def begun(bench: Bench, model: str, **fields: Any) -> tuple[str, asyncio.Task[Any]]:
    asked = {"task": "do it", "model": model, "verify": [{**HELD, "canary": CANARY}], "verify_early": False} | fields
    id = await bench.accept(DelegationRequest.model_validate(asked))
    return id, asyncio.create_task(carry_out(bench.services, id))
