"""The API's process: `deputize serve`, and `python -m deputize.orchestrator.serve --fd N` below the supervisor."""

from __future__ import annotations

from ..shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import argparse
import socket
import sys
from collections.abc import Sequence
from functools import partial

import uvicorn

from ..shared.errors import DeputizeError, Misconfigured
from ..shared.log import log, log_uncaught, set_up
from ..shared.own_process import keep_memory_private
from ..shared.redis_access import REDIS_SECONDS, reach
from ..shared.settings import Settings
from ..shared.text import visible
from .app import create_app
from .delegations import open_service
from .protocol import BoundedProtocol, most_connections
from .sockets import TRUSTED, bound_url, listen

EXIT_MISCONFIGURED = 3
STREAMS_SECONDS = 2
"""Seconds after which a shutdown closes open event streams; clients reconnect."""


def serve(settings: Settings, listening: socket.socket | None = None) -> None:
    """Answers requests until SIGINT or SIGTERM. Raises Misconfigured, and Unavailable where Redis does not answer."""
    if settings.redis_url is None:
        raise Misconfigured("the service needs DEPUTIZE_REDIS_URL; `deputize up` starts one with a Redis and workers")
    if not settings.local:  # else the supervisor checks it: a service that waits could not report an outage
        reach(settings.redis_url, REDIS_SECONDS)
    app = create_app(partial(open_service, settings, settings.redis_url), settings)
    with listening or listen(settings.host, settings.port) as bound:
        log.info("listening on %s", bound_url(bound))
        if not settings.asks_for_token:
            log.warning("no token is asked for: %s", TRUSTED)
        BoundedProtocol.MOST = most_connections()
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STREAMS_SECONDS,
        )
        uvicorn.Server(config).run(sockets=[bound])


def main(arguments: Sequence[str] | None = None) -> int:
    keep_memory_private()
    parser = argparse.ArgumentParser(prog="python -m deputize.orchestrator.serve", description="The API.")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, help="0 takes a free one; the log shows which")
    parser.add_argument("--fd", type=int, help="a listening socket to take over")
    options = parser.parse_args(arguments)
    try:
        settings = Settings.load(host=options.host, port=options.port)
        set_up(settings.log_level, settings.secrets, settings.log_format)
        log_uncaught()
        serve(settings, None if options.fd is None else socket.socket(fileno=options.fd))
    except DeputizeError as error:
        print(f"serve: {visible(str(error))}", file=sys.stderr)  # noqa: T201 - this process's final error
        return EXIT_MISCONFIGURED
    return 0


if __name__ == "__main__":
    sys.exit(main())
