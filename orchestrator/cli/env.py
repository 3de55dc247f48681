"""`deputize env`: what is prepared for the commands of runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import output
from .connect import asynchronous, connect, load_settings
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.fleet import PreparedEnvironment


@click.group()
def env() -> None:
    """List, prepare and remove environments, and show their logs."""


@env.command("list")
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@asynchronous
async def list_(as_json: bool) -> None:
    """List what workers prepare for runs and its state, those first that were used last."""
    async with connect(load_settings()) as service:
        found = await service.client.environments()
    nothing = "nothing is prepared; the first run with an environment of the settings prepares it"
    head = ("key", "state", "size", "took", "prepared", "used", "workers")
    output.table(found, head, _row, nothing, as_json=as_json)


def _row(found: PreparedEnvironment) -> tuple[str, ...]:
    times = [f"{each.astimezone():%Y-%m-%d %H:%M}" for each in (found.prepared_at, found.used_at)]
    size, took = f"{found.bytes / 1e6:,.0f} MB", f"{found.seconds:g} s"
    facts = (size if found.state == "ready" else "–", "–" if found.state == "failed" else took)
    return (found.key, found.state, *facts, *times, ", ".join(found.workers))


@env.command()
@click.argument("name", default="")
@click.option("--workspace", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
def prepare(name: str, workspace: Path) -> Exit:
    """Prepare an environment on this machine for the files of a directory; without NAME the one that fits it."""
    return _asked("prepare", name, str(workspace.absolute()))


@env.command()
@click.argument("name")
def log(name: str) -> Exit:
    """Show what the newest set-up of an environment on this machine has printed. NAME may also be a key."""
    return _asked("log", name)


@env.command()
@click.argument("names", nargs=-1)
def prune(names: tuple[str, ...]) -> Exit:
    """Remove what is prepared on this machine and no run uses: of these environments or keys, else what is due."""
    return _asked("prune", *names)


def _asked(*arguments: str) -> Exit:
    """Lets a process of the worker's code do it, and shows what that prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deputize.worker.environments", *arguments],
        env=load_settings().child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    output.lines(done.stdout.decode("utf-8", "replace").splitlines())
    return Exit(done.returncode) if done.returncode in (0, 1, 2, 3) else Exit.FAILED
