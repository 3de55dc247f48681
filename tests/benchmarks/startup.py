"""How long the command line takes to say what it can do, and what it and the API must never load."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.number import Number

STARTS = 10
DEPUTIZE = Path(sys.executable).with_name("deputize")
FORBIDDEN = ("anthropic", "celery.worker")
COMMAND_LINE = """
from importlib import import_module
from deputize.orchestrator.cli import COMMANDS
for module, _ in COMMANDS.values():
    import_module("deputize.orchestrator.cli." + module.partition(":")[0])
"""
API = """
from functools import partial
from deputize.orchestrator import serve
from deputize.shared.settings import Settings
settings = Settings.load(environ={"DEPUTIZE_TOKEN": "of-a-service-that-never-serves"})
serve.create_app(partial(serve.open_service, settings, "unix:///nowhere"), settings)
"""
LOADED = "import json, sys; print(json.dumps([name for name in FORBIDDEN if name in sys.modules]))"


async def measure(runs: int) -> list[Number]:
    help_times = [await asyncio.to_thread(_help_milliseconds) for _ in range(runs)]
    found = [await asyncio.to_thread(_forbidden, code) for code in (COMMAND_LINE, API)]
    return [
        Number("deputize --help", "ms", help_times, at_most=150),
        Number("modules of anthropic or celery.worker that every command together loads", "", found[:1], at_most=0),
        Number("… that the API loads", "", found[1:], at_most=0),
    ]


def _help_milliseconds() -> float:
    """The middle one of several starts: a single one depends more on the machine than on us."""
    took: list[float] = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        subprocess.run([DEPUTIZE, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        took.append((time.perf_counter() - begun) * 1000)
    return sorted(took)[STARTS // 2]


def _forbidden(code: str) -> float:
    """How many of the forbidden modules a process has loaded after this code."""
    whole = f"{code}\nFORBIDDEN = {FORBIDDEN!r}\n{LOADED}"
    said = subprocess.run([sys.executable, "-c", whole], stdout=subprocess.PIPE, check=True, text=True).stdout
    return len(json.loads(said.splitlines()[-1]))
