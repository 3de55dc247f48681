"""`deputize up`, `serve` and `worker`: the processes of a service."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from ...shared.errors import Conflict
from . import output
from .connect import check_script, load_settings, stack_here

if TYPE_CHECKING:
    from ...shared.settings import Settings
    from ..home import StackInfo

UNUSED_SECONDS = 2.0
STOPPING_SECONDS = 30.0
TICK_SECONDS = 0.1
SLOW_SECONDS = 1.0
"""Seconds after which a stop that takes long is explained."""


@click.command()
@click.option("--workers", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Worker processes.")
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="Delegations at once in each worker.")
@click.option("--flower", is_flag=True, help="Also run Flower, Celery's own page.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Where the API listens.")
@click.option("--no-token", is_flag=True, help="Trust every user and program of this machine.")
@click.option("-d", "--detach", is_flag=True, help="Leave once it is ready; `deputize stop` ends it.")
@click.option(
    "--replace",
    is_flag=True,
    help="Stop the stack that runs first, as `deputize stop` does. None runs where the new one cannot start.",
)
def up(
    workers: int,
    concurrency: int | None,
    flower: bool,
    port: int | None,
    no_token: bool,
    *,
    detach: bool,
    replace: bool,
) -> None:
    """Run Redis, workers and the API on this machine, until Ctrl-C.

    Commands on this machine find it by themselves; others send the token that `deputize token` prints.
    """
    settings = load_settings(port=port, no_token=no_token or None)
    stack_here(settings)  # raises if the home is unusable
    if workers:
        check_script(settings.model)
    from ...shared.log import set_up
    from ...shared.redis_access import reach
    from ..stack import StackOptions, start_detached
    from ..supervisor import run_foreground

    set_up("WARNING", settings.secrets, settings.log_format)
    if settings.redis_url is not None:
        reach(settings.redis_url)
    if replace:
        stop_stack(settings)
    _wait_for_unused_stack(settings)

    options = StackOptions(workers, concurrency, flower, stays=True)
    each, stop = concurrency or settings.concurrency, "`deputize stop`" if detach else "Ctrl-C"
    show = partial(_print_addresses, settings, each, stop)
    if detach:
        show(asyncio.run(start_detached(settings, options, output.note)))
    else:
        run_foreground(settings, options, show, output.note)


def _print_addresses(settings: Settings, each: int, stop: str, info: StackInfo) -> None:
    output.line(f"API      {info.url}")
    output.line(f"Page     {_page(info)}")
    output.line(f"Redis    {without_password(info.redis_url)}")
    output.line(f"Workers  {info.workers}, each with up to {each} delegations at once")
    output.line(f"Flower   {_flower(info, settings)}")
    output.line(f"Token    {_token(info, settings)}")
    output.line(f"Model    {_model(settings)}")
    output.line(f"Stop     {stop}; unfinished delegations go on at the next start")


def stop_stack(settings: Settings) -> bool:
    """Stops this machine's stack, and waits for its end. Returns whether one ran.

    Raises Conflict for the stack of a command, which ends with it, unless that ends in a moment.
    """
    from ..home import open_lock, try_lock
    from ..stack import ask_to_stop

    if (stack := stack_here(settings)) and not stack.stays:
        _wait_for_unused_stack(settings)
        stack = stack_here(settings)
    if stack and not stack.stays:
        raise Conflict("the stack here belongs to a command that uses it, and ends with it; interrupt that command")
    with open_lock(settings.home) as lock:
        if try_lock(lock, fcntl.LOCK_EX):
            return False
        asked, slow = False, time.monotonic() + SLOW_SECONDS
        while not try_lock(lock, fcntl.LOCK_EX):
            asked = asked or ask_to_stop(settings.home)  # only once: a second request kills what still runs
            if slow < time.monotonic():
                slow = float("inf")
                output.note(f"runs are handed over; calls under way have {settings.shutdown_seconds:.0f} s to end …")
            time.sleep(TICK_SECONDS)
    return True


def page_link(url: str, token: str) -> str:
    """Returns the address of the page, with the token that it asks for."""
    return f"{url}/#token={quote(token)}" if token else f"{url}/"


def _page(info: StackInfo) -> str:
    # A terminal is private to its user; a file or a pipe may have other readers.
    if info.token and not sys.stdout.isatty():
        return f"{info.url}/ (asks for the token; `deputize open` opens it)"
    return page_link(info.url, info.token)


def _flower(info: StackInfo, settings: Settings) -> str:
    if info.flower_url is None:
        return "off; --flower runs it"
    if sys.stdout.isatty():
        return info.flower_url
    return f"{without_password(info.flower_url)} (name and password: flower_url in {settings.home / 'stack.json'})"


def _token(info: StackInfo, settings: Settings) -> str:
    if not info.token:
        return "none: every user and every program of this machine may use the API"
    return "the one of DEPUTIZE_TOKEN" if settings.token else "kept for this home; `deputize token` prints it"


def without_password(url: str) -> str:
    """Returns the URL without its password."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _model(settings: Settings) -> str:
    if settings.reaches():
        return settings.model
    return f"{settings.model}, but there is no key: set ANTHROPIC_API_KEY, or DEPUTIZE_MODEL=scripted for a try without"


def _wait_for_unused_stack(settings: Settings) -> None:
    """Waits for an unused stack to stop, so that `up` or `stop` right after a `run` does not fail."""
    from ..home import open_lock, read_info, try_lock

    began = time.monotonic()
    with open_lock(settings.home) as lock:
        while not try_lock(lock, fcntl.LOCK_EX):
            # A stopping stack removes its description first; while that exists, the stack may be a lasting one.
            patience = UNUSED_SECONDS if read_info(settings.home) else STOPPING_SECONDS
            if time.monotonic() - began > patience:
                return
            time.sleep(TICK_SECONDS)


@click.command()
@click.option("--host", help="Where the API listens.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="0 takes a free one; the log shows which.")
@click.option("--no-token", is_flag=True, help="Trust every user and program of this machine; on loopback only.")
def serve(host: str | None, port: int | None, no_token: bool) -> None:
    """Run the API alone, over the Redis of DEPUTIZE_REDIS_URL."""
    settings = load_settings(host=host, port=port, no_token=no_token or None)
    from ...shared.log import set_up
    from .. import serve as api

    set_up(settings.log_level, settings.secrets, settings.log_format)
    api.serve(settings)


@click.command()
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="Delegations at once.")
@click.option("--queues", metavar="A,B", help="Which queues to serve; another fleet needs another Redis.")
@click.option("--name", metavar="N", help="worker-N@host is how it is known.")
def worker(**given: Any) -> None:
    """Run one worker alone, over the Redis of DEPUTIZE_REDIS_URL or of this machine's stack."""
    settings = load_settings()
    if settings.redis_url is None and (stack := stack_here(settings)) is not None:
        settings = settings.model_copy(update={"redis_url": stack.redis_url, "local": True})
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    # The orchestrator never imports the worker, so this process executes it.
    command = [sys.executable, "-P", "-m", "deputize.worker", *options]
    os.execve(sys.executable, command, settings.child_environment() | settings.endpoint_variables())  # noqa: S606 - no shell is wanted
