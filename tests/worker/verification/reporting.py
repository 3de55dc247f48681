"""Executes a command with the programs that report tests, outside of a sandbox, and reads what they report."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deputize.worker.verification.reports.report_channel import ReportChannel
from deputize.worker.verification.reports.states import Report
from deputize.worker.verification.runners.known import Instrumented

ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Without the plugins that are installed beside this pytest: to import them takes a second."""


async def reported(
    how: Instrumented, words: Sequence[str], project: Path, variables: Mapping[str, str] | None = None
) -> Report | None:
    """Returns what the command reported, which is executed as it is given. ``variables`` replace those of ``how``."""
    with tempfile.TemporaryDirectory(prefix="d-") as place:  # an address of a socket is short
        programs, reports = Path(place, "p"), Path(place, "r")
        programs.mkdir()
        reports.mkdir()
        how.mounts(programs, reports)

        def moved(text: str) -> str:
            return text.replace("/opt/check", str(programs)).replace("/opt/report", str(reports))

        for path in programs.iterdir():
            path.write_text(moved(path.read_text()))
        given = {name: moved(value) for name, value in (how.variables if variables is None else variables).items()}
        with ReportChannel(programs, how.socket, how.pipes) as channel:
            process = await asyncio.create_subprocess_exec(
                *map(moved, words),
                cwd=project,
                env={"PATH": os.environ["PATH"], **ALONE, **given},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            await process.wait()
        return how.report(reports, "", None, channel.report())[0]
