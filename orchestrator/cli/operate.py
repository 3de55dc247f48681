"""`status`, `drain`, `stop`, `logs`, `open`, `version`: an operator's commands. None of them starts a service."""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ...shared.errors import Invalid, NotFound, Unavailable
from ...shared.ids import ID
from ...shared.text import count
from . import completion, output
from .connect import (
    asynchronous,
    client_at,
    client_at_url,
    full_id,
    lasting_stack,
    load_settings,
    stack_here,
    token_for,
)
from .errors import Exit
from .stack import page_link, stop_stack

if TYPE_CHECKING:
    from ...shared.fleet import WorkerCard
    from ...shared.runs.losses import StoreLoss
    from ...shared.settings import Settings
    from ..client import Client

FOLLOW_SECONDS = 0.25
DRAIN_SECONDS = 1.0
"""Seconds between two looks at the workers that drain."""
PROGRAM_WIDTH = 10
MOST_LOSSES = 3
"""How many of the last losses are shown to people."""
MOST_BYTES = 1 << 20
"""Bytes of a log that are read at a time."""
_MAY_BE_ID = re.compile(r"dlg_\w*|@last|[0-9a-z]+")
DESKTOP = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of a session that can show a browser."""


@asynccontextmanager
async def _running(settings: Settings) -> AsyncGenerator[Client]:
    """Yields a client of the service that runs, also of one that a command started. Raises Unavailable if none does."""
    stack = None if settings.url else stack_here(settings, makes_home=False)
    if settings.url is None and stack is None:
        raise Unavailable("no service runs on this machine; `deputize up --detach` starts one, or set DEPUTIZE_URL")
    async with client_at(stack.url, token_for(settings, stack)) if stack else client_at_url(settings) as client:
        yield client


@click.command()
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
@asynchronous
async def status(as_json: bool) -> Exit:
    """Show whether the service runs, its workers, and how much waits or runs.

    The exit code is 3 where none runs, or where new work would only be queued.
    """
    settings = load_settings()
    async with _running(settings) as client:
        # At once: each takes its time to give up where Redis does not answer.
        problem, (workers, counts, losses) = await asyncio.gather(client.not_ready(), _looked_at(client))
    facts: dict[str, Any] = {
        "url": client.url,
        "version": client.version,
        "problem": problem,
        "workers": len(workers),
        "draining": sum(worker.draining for worker in workers),
        "runs": sum(worker.running for worker in workers),
        "places": sum(worker.concurrency for worker in workers),
        "delegations": counts,
        "losses": [loss.to_dict() for loss in losses],
    }
    if as_json:
        output.json_line(json.dumps(facts, ensure_ascii=False))
    else:
        output.lines([*_state_lines(facts, workers), *map(_loss_line, losses[:MOST_LOSSES])])
        if settings.url is None:
            output.line(f"logs         {settings.home / 'logs'}")
    return Exit.UNREACHABLE if problem else Exit.SUCCEEDED


async def _looked_at(client: Client) -> tuple[list[WorkerCard], dict[str, int], list[StoreLoss]]:
    workers: list[WorkerCard] = []
    counts: dict[str, int] = {}
    losses: list[StoreLoss] = []
    with suppress(Unavailable):  # why is known
        workers = await client.workers()
        found = await client.counts()
        counts = {"queued": found.queued - found.paused, "running": found.running, "waiting": found.waiting}
        counts |= {"paused": found.paused} if found.paused else {}
        with suppress(NotFound):  # a service of an older version
            losses = await client.losses()
    return workers, counts, losses


def _state_lines(facts: Mapping[str, Any], workers: Sequence[WorkerCard]) -> list[str]:
    lines = [
        f"service      {facts['url']}, deputize {facts['version']}",
        f"state        {'✗ ' + facts['problem'] if facts['problem'] else '✓ ready'}",
    ]
    if counts := facts["delegations"]:
        draining = f", {facts['draining']} draining" if facts["draining"] else ""
        shown = (f"{number} {status}" for status, number in counts.items())
        lines += [
            f"workers      {facts['workers']}, {facts['runs']} of {count(facts['places'], 'place')} taken{draining}",
            f"delegations  {', '.join(shown)}",
        ]
    others = sorted({worker.version or "an older one" for worker in workers} - {facts["version"]})
    return lines + ([f"note         workers of other versions: {', '.join(others)}"] if others else [])


def _loss_line(loss: StoreLoss) -> str:
    """Returns what a failover of Redis has lost."""
    when = f"{loss.at.astimezone(UTC):%F %TZ}" if loss.at else "at some time"
    gone = f", {count(loss.delegations, 'accepted delegation')} lost" if loss.delegations else ""
    return f"lost         {when}: {count(loss.writes, 'write')} of Redis, {count(loss.doubted, 'run')} in doubt{gone}"


@click.command()
@asynchronous
async def version() -> None:
    """Print the version of this command, and of the service and its workers where one runs."""
    from ...shared.fleet import own_version

    output.line(f"deputize {own_version()}")
    with suppress(Unavailable):
        async with _running(load_settings()) as client:
            workers = await client.workers()
            output.line(f"service at {client.url}: {client.version}")
            output.lines(f"{worker.name}: {worker.version or 'an older one'}" for worker in workers)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.workers)
@asynchronous
async def drain(names: tuple[str, ...]) -> None:
    """Let workers take nothing more and hand over what they run, for a rolling upgrade; wait until they have.

    NAME is that of `deputize workers`, or its beginning where only one begins so. A drained worker stays, idle, until
    it is stopped; started anew it takes work again.
    """
    async with _running(load_settings()) as client:
        cards = {card.name: card for card in await client.workers()}
        left = {name: cards[name] for name in [_full_name(name, list(cards)) for name in names]}
        while left:
            for name, card in left.items():
                if not card.draining:  # also again: it may have been connecting to Redis
                    with suppress(NotFound):  # it has just ended
                        await client.drain(name)
            await asyncio.sleep(DRAIN_SECONDS)
            cards = {card.name: card for card in await client.workers()}
            done = [name for name in left if name not in cards or (cards[name].draining and not cards[name].running)]
            output.lines(f"{name}  {'drained' if name in cards else 'is gone'}" for name in done)
            left = {name: cards[name] for name in left if name not in done}


def _full_name(given: str, known: Sequence[str]) -> str:
    found = [name for name in known if name == given] or [name for name in known if name.startswith(given)]
    if len(found) != 1:
        what = f"{given!r} stands for {count(len(found), 'worker')}" if found else f"no worker is named {given!r}"
        there = f"there are {', '.join(known)}" if known else "none is alive"
        raise NotFound(f"{what}; {there}")
    return found[0]


@click.command()
def stop() -> None:
    """Stop this machine's stack: its workers hand over what runs, and it goes on with the next `deputize up`."""
    settings = load_settings()
    _refuse_elsewhere(settings, "stop it")
    if not stop_stack(settings):
        output.note("no service runs on this machine")
        return
    output.line("stopped; unfinished delegations go on with the next `deputize up`")


def _refuse_elsewhere(settings: Settings, what: str) -> None:
    if settings.url:
        raise Invalid(f"DEPUTIZE_URL names a service elsewhere ({settings.url}); {what} where it runs")


@click.command("open")
@click.option("--print", "only_prints", is_flag=True, help="Only print the link.")
def open_(only_prints: bool) -> None:
    """Print the link of the web page with its token, and open it where there is a browser.

    Who has the link may do whatever the token may.
    """
    import webbrowser

    from ...shared.settings import environment
    from ..home import OPENED, open_private, prepare_home

    settings = load_settings()
    stack = None if settings.url else lasting_stack(settings)
    url, token = stack.url if stack else (settings.url or "").rstrip("/"), token_for(settings, stack) or ""
    link = page_link(url, token)
    output.line(link)
    if only_prints or not any(environment().get(name) for name in DESKTOP):
        return
    prepare_home(settings.home)
    # The arguments of a browser can be read by all users of the machine; this file cannot.
    file = settings.home / OPENED
    with open_private(file, "wb") as page:
        page.write(f'<meta http-equiv="refresh" content="0; url={html.escape(link)}">\n'.encode())
    if not webbrowser.open(file.absolute().as_uri()):
        output.note("no browser could be started; open the link in one")


@click.command()
@click.argument("names", nargs=-1, metavar="[PROGRAM|ID]...")
@click.option("-f", "--follow", is_flag=True, help="Follow new lines, until Ctrl-C.")
@click.option(
    "-n", "--lines", "most", type=click.IntRange(0), metavar="N", default=20, show_default=True, help="Lines."
)
def logs(names: tuple[str, ...], follow: bool, most: int) -> None:
    """Show the last lines of the logs of this machine's stack, or only those of some PROGRAMs, such as worker-1.

    With the ID of a delegation only the lines about it, those of the stack before this one, too. @last and a part of an
    ID need a service that runs.
    """
    settings = load_settings()
    _refuse_elsewhere(settings, "its logs are")
    folder = settings.home / "logs"
    known = sorted(path.stem for path in folder.glob("*.log"))
    ids = [each for each in names if each not in known and _MAY_BE_ID.fullmatch(each)]
    programs = [each for each in names if each not in ids]
    if unknown := [each for each in programs if each not in known]:
        raise click.UsageError(f"there is no log of {unknown[0]!r}; there are {', '.join(known) or 'none yet'}")
    if not known:
        output.note(f"there are no logs in {folder} yet; `deputize up --detach` starts a service")
    about = asyncio.run(_full_ids(settings, ids, known)) if ids else []
    past = {path.name.removesuffix(".log.1") for path in folder.glob("*.log.1")} if about else set[str]()
    added = {name: AddedLines(folder / f"{name}.log", about) for name in programs or sorted(past.union(known))}
    earlier = {name: AddedLines(folder / f"{name}.log.1", about).read() if about else [] for name in added}
    found = {name: [*earlier[name], *log.read()] for name, log in added.items()}
    for name, lines in found.items():
        _print_log(name, lines[max(0, len(lines) - most) :])
    if about and not any(found.values()):
        output.note(f"no line of the last two starts in {folder} is about {', '.join(about)}")
    while follow:
        time.sleep(FOLLOW_SECONDS)
        for name in () if programs else sorted(path.stem for path in folder.glob("*.log")):
            added.setdefault(name, AddedLines(folder / f"{name}.log", about))
        for name, log in added.items():
            _print_log(name, log.read())


async def _full_ids(settings: Settings, ids: Sequence[str], known: Sequence[str]) -> list[str]:
    """Returns the whole ids. Raises as ``full_id``, and then names the programs: one of them may be meant."""
    if all(map(ID.fullmatch, ids)):
        return [*ids]
    try:
        async with _running(settings) as client:
            return [await full_id(client, each) for each in ids]
    except (NotFound, Unavailable) as error:
        raise type(error)(f"{error}. There are logs of {', '.join(known) or 'no program yet'}") from None


def _print_log(program: str, lines: Sequence[str]) -> None:
    """Prints lines of a program's log; the JSON lines of our own programs as people read them."""
    from ...shared.log import line_for_people

    for line in lines:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            line = line_for_people(json.loads(line))
        output.lines(f"{program:{PROGRAM_WIDTH}} | {part}" for part in line.split("\n"))


class AddedLines:
    """The complete lines that are added to a log; a file that replaces it is read from its start.

    With ``about`` only those that hold one of these texts.
    """

    def __init__(self, path: Path, about: Sequence[str] = ()) -> None:
        self._path = path
        self._about = about
        self._inode = self._read = 0

    def read(self) -> list[str]:
        """Returns the lines since the last call, of more than ``MOST_BYTES`` the last ones."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode:
                    self._inode, self._read = found.st_ino, 0
                if self._about:
                    return [*self._about_these(file)]
                start = file.seek(max(self._read, found.st_size - MOST_BYTES))
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        first_is_cut, self._read = start > self._read, start + len(whole)
        return whole.decode("utf-8", "replace").splitlines()[first_is_cut:]

    def _about_these(self, file: BinaryIO) -> Iterator[str]:
        file.seek(self._read)
        for line in file:
            if not line.endswith(b"\n"):
                break
            self._read += len(line)
            if any(each.encode() in line for each in self._about):
                yield line.decode("utf-8", "replace").rstrip("\n")
