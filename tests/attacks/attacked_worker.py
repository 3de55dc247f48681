"""A worker that becomes an ordinary user before it begins (``--ordinary``), or whose network is a double
(``--network``, its arguments in JSON); then the arguments of a worker."""

from __future__ import annotations

import json
import sys

from deputize.worker import __main__ as worker
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.web_fetch import WebFetch
from tests.network.internet import Rerouted
from tests.processes.ordinary_user import become_ordinary


def main() -> int:
    if "--ordinary" in sys.argv:
        sys.argv.remove("--ordinary")
        become_ordinary()
    if not (double := _taken("--network")):
        return worker.main()
    network = Rerouted(**json.loads(double))
    tools = [WebFetch(network=network) if tool.name == WebFetch.name else tool for tool in BUILTIN]
    return worker.main(tools=tools, network=network)


def _taken(option: str) -> str | None:
    """The value of an option, which is removed."""
    if option not in sys.argv:
        return None
    at = sys.argv.index(option)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value
