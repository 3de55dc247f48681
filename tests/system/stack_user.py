"""A user of this machine's stack: `python -m tests.system.stack_user HOME [NAME=VALUE …]`.

Prints what stack it uses as a line of JSON, or why it has none, and uses it until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deputize.orchestrator.stack import StackOptions, stack_in_use
from deputize.shared.errors import DeputizeError
from deputize.shared.settings import Settings


async def use(settings: Settings, workers: int) -> None:
    async with stack_in_use(settings, workers=workers, wait=30) as stack:
        print(json.dumps(asdict(stack)), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def keep(settings: Settings, workers: int) -> None:
    from deputize.orchestrator.supervisor import run_foreground

    options = StackOptions(workers, flower=True)
    run_foreground(settings, options, lambda stack: print(json.dumps(asdict(stack)), flush=True), lambda _: None)


def _key() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name == "ANTHROPIC_API_KEY"}


def main() -> None:
    home, *said = sys.argv[1:]
    given: dict[str, Any] = dict(pair.split("=", 1) for pair in said)
    workers, foreground = int(given.pop("workers", "1")), given.pop("foreground", "")
    given.setdefault("model", "scripted")
    try:
        settings = Settings.load(environ=_key(), home=Path(home), **given)
        if foreground:
            keep(settings, workers)
        else:
            asyncio.run(use(settings, workers))
    except DeputizeError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)


if __name__ == "__main__":
    main()
