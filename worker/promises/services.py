"""Whether the programs of services are there for the sandboxes that would run them."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from ...shared.promises import Finding
from ...shared.settings import Settings
from ...shared.settings.services import ServiceSettings
from ..contracts import Command
from ..environments.environments import found_for
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.project_tools import find_tools
from ..threads import run_in_thread

_SECONDS = 60


async def service_rows(settings: Settings, folder: Path) -> AsyncGenerator[Finding]:
    """Yields a row for each service of the settings. Raises ToolError if commands cannot be run."""
    for name, service in settings.services.items():
        row = f"service {name}"
        table = next((each for each in settings.environments.values() if name in each.services), None)
        if table is None:
            yield Finding("!", row, "no environment lists it, so no run has it", f'services = ["{name}"] lists it')
            continue
        found = await run_in_thread(find_tools, None, *found_for(settings, table))
        with Bubblewrap(folder, tools=found) as sandbox:
            script = 'for each; do type -- "$each" >/dev/null 2>&1 || echo "$each"; done'
            argv = ["bash", "--noprofile", "--norc", "-c", script, "bash", *_programs(service)]
            done = await sandbox.run(Command(argv, _SECONDS))
        if missing := done.stdout.decode("utf-8", "replace").split():
            remedy = "install its package on each worker, give the whole path, or name its directory in `show`"
            yield Finding("✗", row, f"a sandbox does not find {', '.join(missing)}", remedy)
        else:
            yield Finding("✓", row, f"a sandbox finds {', '.join(_programs(service))}")


def _programs(service: ServiceSettings) -> list[str]:
    """Returns the first words of its command lines, as far as they can be read."""
    found = list[str]()
    for line in (service.command, service.health, service.template):
        with suppress(ValueError, StopIteration):
            words = (each for each in shlex.split(line) if each != "exec" and "=" not in each)
            found.append(next(words))
    return list(dict.fromkeys(found))
