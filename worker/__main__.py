"""`python -m deputize.worker`: one worker process."""

from __future__ import annotations

from ..shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import argparse
import faulthandler
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..shared import log
from ..shared.errors import DeputizeError, Misconfigured
from ..shared.open_files import raise_limit
from ..shared.own_process import keep_memory_private
from ..shared.queue import create_app
from ..shared.redis_access import REDIS_SECONDS, STARTING_SECONDS, reach
from ..shared.settings import Settings
from ..shared.text import visible
from . import task
from .celery_pool import process
from .linux.open_files import OpenFiles

if TYPE_CHECKING:
    from .attempts import Attempt
    from .core.part import Part
    from .tools.base import AnyTool
    from .verification.own_checks import CheckKind
    from .web.dial import Network


def main(
    arguments: Sequence[str] | None = None,
    tools: Sequence[AnyTool] | None = None,
    network: Network | None = None,
    parts: Sequence[Callable[[Attempt], Part]] = (),
    checks: Sequence[CheckKind[Any]] = (),
) -> int:
    """Runs the worker until it is stopped; returns the exit code.

    ``tools`` are those that its runs may use, by default the built-in ones; ``network`` is where commands reach hosts.
    Each of ``parts`` is called for each run, and its part follows our own. Requests name ``checks`` by their names.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        return 0  # a process for one run imports the script anew, which may have no guard
    parser = argparse.ArgumentParser(prog="python -m deputize.worker", description="One worker process.")
    parser.add_argument("--concurrency", type=int, metavar="N", help="delegations at the same time")
    parser.add_argument("--queues", metavar="A,B", help="which queues to serve; another fleet needs another Redis")
    parser.add_argument("--name", default="1", metavar="N", help="worker-N@host is how it is known")
    options = parser.parse_args(arguments)
    keep_memory_private()
    # On SIGABRT, which the standby sends, all thread stacks are dumped to the descriptor, whatever sys.stderr is.
    faulthandler.enable(2)
    try:
        check_installed()
        settings = Settings.load(concurrency=options.concurrency, queues=options.queues)
        log.set_up(settings.log_level, settings.secrets, settings.log_format)
        log.log_uncaught()
        concurrency = carried(settings.concurrency)
        if settings.redis_url is None:
            raise Misconfigured("a worker needs DEPUTIZE_REDIS_URL; `deputize up` starts workers with a Redis")
        reach(settings.redis_url, STARTING_SECONDS if settings.local else REDIS_SECONDS)
        app = create_app(settings, settings.redis_url)
        name = process.full_name(options.name)
        kinds = {kind.name: kind for kind in checks}
        start = task.WorkerStart(settings, settings.redis_url, name, tools, network, parts, kinds)
        task.register(app, start)
    except DeputizeError as error:
        print(f"worker: {visible(str(error))}", file=sys.stderr)  # noqa: T201 - before logging is set up
        return process.EXIT_MISCONFIGURED
    return process.run(app, name, concurrency, settings.queues, settings.log_level)


def carried(wanted: int) -> int:
    """Returns how many runs this process takes at the same time. Raises Misconfigured where it carries none."""
    limit = raise_limit()
    if (most := OpenFiles.for_runs(wanted).concurrency) < wanted:
        log.log.warning(
            "at most %d delegations at the same time, not %d: this process may have %d open files. Raise its limit "
            "(ulimit -n), or lower DEPUTIZE_CONCURRENCY",
            *(most, wanted, limit),
        )
    return most


def check_installed(needed: Sequence[str] = ("aiohttp", "anthropic", "html_to_markdown")) -> None:
    """Raises Misconfigured where what the extra `worker` brings is missing, before any run does not find it."""
    if missing := [name for name in needed if find_spec(name) is None]:
        raise Misconfigured(
            f"no worker can run without {', '.join(missing)}: `pip install '.[worker]'` in a clone of deputize; "
            "of the images, only the worker's has it"
        )


if __name__ == "__main__":
    sys.exit(main())
