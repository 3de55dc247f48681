"""What `deputize env prepare`, `log` and `prune` start: work on the environments that are kept on this machine.

`python -m deputize.worker.environments prepare NAME DIR | log NAME | prune NAME...` prints what it found on its output,
and what it does meanwhile on its errors. `prune` without names removes what is due.
"""

from __future__ import annotations

from ...shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ...shared.errors import DeputizeError, EnvironmentFailed, Misconfigured, NotFound
from ...shared.own_process import keep_memory_private, send_on_death_of_parent
from ...shared.settings import Settings
from ...shared.settings.environments import matching, unknown_environment
from ...shared.text import terminal_text
from ..sandbox.bounds import WorkerBounds
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.project_tools import find_tools
from .environments import EnvironmentsOfWorker, found_for
from .store import Store


async def prepare(settings: Settings, name: str, folder: Path, report: Callable[[str], None]) -> str:
    """Prepares an environment for the files of a resolved directory; "" is the one that fits it. Returns what it is.

    Raises EnvironmentFailed, Misconfigured and NotFound.
    """
    tables = settings.environments
    if not (name := name or matching(tables, str(folder)) or ""):
        raise NotFound(f"no environment of the settings fits {folder}: name one, or add it to its `match`")
    if why := unknown_environment(name, tables):
        raise NotFound(why)
    if reason := await Bubblewrap.selftest(settings.workspaces):
        raise Misconfigured(f"nothing can be prepared, because commands cannot be run here: {reason}")
    found = find_tools(None, *found_for(settings, tables[name]))
    environments = EnvironmentsOfWorker(settings, WorkerBounds(settings.sandbox))
    for service in tables[name].services:
        if template := await environments.template(service, folder, found, report):
            template.close()
    used = await environments.prepared(name, tables[name], folder, found, report)
    with closing(used):
        folders = ", ".join(used.facts.folders) or "nothing in the workspace"
        return f"{used.key}  {used.facts.bytes / 1e6:,.0f} MB  {folders}"


def log_of(store: Store, name: str) -> str:
    """Returns the newest log of an environment, or that of the one with this key. Raises NotFound."""
    for path in store.logs(name):
        return path.read_text("utf-8", "replace")
    raise NotFound(f"there is no log of {name[:100]!r} on this machine; `deputize env list` lists what is prepared")


def prune(store: Store, settings: Settings, names: list[str]) -> str:
    """Removes what is due, or all of these environments and keys. Returns what was removed and what is in use.

    Raises NotFound, and removes nothing, where one of the names is neither an environment nor a key.
    """
    if not names:
        return "\n".join(f"{key}  removed" for key in store.evict(settings.environments)) or "nothing is due"
    listed = store.listed()
    found = {name: [each.key for each in listed if name in (each.key, each.facts.environment)] for name in names}
    empty = [name for name, keys in found.items() if not keys]
    for name in empty:
        if why := unknown_environment(name, settings.environments):
            raise NotFound(f"nothing of {name[:100]!r} is prepared on this machine, and {why}")
    wanted = list(dict.fromkeys(key for keys in found.values() for key in keys))
    removed = store.remove(wanted)
    left = [key for key in wanted if key not in removed]
    return "\n".join(
        [
            *(f"{key}  removed" for key in removed),
            *(f"{key}  left: a run uses it" for key in left),
            *(f"{name}  nothing is prepared" for name in empty),
        ]
    )


def _note(text: str) -> None:
    print(terminal_text(text), file=sys.stderr, flush=True)  # noqa: T201 - the command's own errors


def main(command: str, *names: str) -> int:
    settings = Settings.load()
    store = Store(settings.prepared)
    try:
        if command == "prepare":
            name, folder = names
            answer = asyncio.run(prepare(settings, name, Path(folder).resolve(), _note))
        else:
            answer = log_of(store, names[0]) if command == "log" else prune(store, settings, [*names])
    except EnvironmentFailed as error:
        _note(str(error))
        return 1
    except (DeputizeError, OSError) as error:
        _note(str(error))
        return 3 if isinstance(error, Misconfigured | OSError) else 2
    print(terminal_text(answer).rstrip("\n")) if answer else None  # noqa: T201 - what the command prints
    return 0


if __name__ == "__main__":
    send_on_death_of_parent(signal.SIGTERM)
    keep_memory_private()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(*sys.argv[1:]))
