"""README.md at the top, its blocks, the list of features that it refers to, and how a block is executed."""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

from tests.architecture.sources import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")
FEATURES = (ROOT / ".github/FEATURES.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
INSTALLING, QUICK_START, COMMANDS, HTTP = (text for language, text in BLOCKS if language == "sh")
PYTHON, FAN_OUT = (text for language, text in BLOCKS if language == "python")
PORT = "8642"
"""The service's own port, for which a test takes a free one."""


async def executed(block: str, cwd: Path, env: dict[str, str], *program: str) -> str:
    """What the block printed, run by one program that stops at the first mistake."""
    process = await asyncio.create_subprocess_exec(
        *program or ("bash", "-euo", "pipefail", "-c"),
        block,
        cwd=cwd,
        env=env,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
    )
    try:
        async with asyncio.timeout(120):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    return said.decode()
