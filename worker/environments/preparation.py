"""The set-up of one environment: run in a sandbox of its own over the inputs alone, with a log without secrets."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...shared.errors import EnvironmentFailed
from ...shared.masking import SecretMask
from ...shared.settings import Settings
from ...shared.settings.environments import EnvironmentSettings
from ...shared.workspaces import delete
from ..contracts import Command, Completed
from ..linux.system import taken_bytes
from ..sandbox.bounds import WorkerBounds
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.environment import BindMount
from ..sandbox.ports import Report
from ..sandbox.project_tools import ProjectTools
from ..threads import give_way, run_in_thread
from ..web.dial import Network
from ..web.egress_proxy import EgressProxy, proxy_to
from .inputs import copy_inputs
from .store import HOME, WORKSPACE, Facts, Store

HOME_PATH = "/opt/home"
"""The home directory, in the set-up and in the runs."""
_SCRATCH_PATH = "/opt/scratch"
_LOG_BYTES = 4 << 20
_SHOWN_CHARACTERS = 2000
"""Characters of a failed set-up's log that are shown."""
_NO_NETWORK = re.compile(
    r"(?i)could not resolve (?:host|')|unable to resolve host|temporary failure (?:in name )?resol|no such host"
    r"|dns error|name or service not known|getaddrinfo|enotfound|eai_again|network is unreachable|no route to host"
    r"|(?:failed|could not|couldn't|unable) to connect|couldn't connect|failed to establish a new connection"
)
"""What programs print that reach no host. npm's ``could not resolve`` without a host is about versions."""
TEMPLATES = "services."
"""How the names of templates of services begin, which are prepared as environments are."""
_NOT_KEPT = frozenset({"__pycache__", ".git", ".pytest_cache"})
_MOST_FOLDERS = 64
"""Each is a mount of its own."""
_CHUNK = 1 << 20
_MEASURE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """What prepares one environment by its table."""

    name: str
    table: EnvironmentSettings
    settings: Settings
    bounds: WorkerBounds
    network: Network | None
    on_used: Report
    """Called with a sentence for each use of a credential."""

    async def run(self, store: Store, key: str, base: int, files: Sequence[str], tools: ProjectTools) -> Facts:
        """Prepares it in the store, whose lock is held. Raises EnvironmentFailed, Misconfigured and OSError."""
        secrets = self.table.secret_values(self.name)
        folder = await run_in_thread(store.begin, key)
        try:
            await run_in_thread(copy_inputs, base, files, folder / WORKSPACE)
            return await self._prepared(store, folder, key, files, tools, secrets)
        except EnvironmentFailed as error:
            await run_in_thread(store.write_failure, key, str(error))
            raise
        finally:
            await run_in_thread(delete, folder)

    async def _prepared(
        self,
        store: Store,
        folder: Path,
        key: str,
        files: Sequence[str],
        tools: ProjectTools,
        secrets: Mapping[str, str],
    ) -> Facts:
        mask, began = SecretMask([*self.settings.secrets, *secrets.values()]), time.monotonic()
        done, noted = await self._set_up(folder, tools, secrets)
        printed = mask.text(done.stdout.decode("utf-8", "replace"))
        printed += "".join(f"\n[network: {sentence}]" for sentence in noted)
        await run_in_thread(store.write_log, key, printed)
        if done.exit_code:
            raise EnvironmentFailed(self._why(done, printed, noted))
        if place := await run_in_thread(found_secret, folder, [value.encode() for value in secrets.values()]):
            raise EnvironmentFailed(
                f"the set-up of the environment {self.name!r} left a secret in {place}; remove that at the script's end"
            )
        folders = await run_in_thread(made_folders, folder / WORKSPACE, files)
        size = await run_in_thread(taken_bytes, [folder], _MEASURE_SECONDS) or 0
        facts = Facts(self.name, folders, size, round(time.monotonic() - began, 1), time.time())
        await run_in_thread(store.finish, key, folder, facts)
        return facts

    async def _set_up(
        self, folder: Path, tools: ProjectTools, secrets: Mapping[str, str]
    ) -> tuple[Completed, list[str]]:
        """Returns how the script ended, and what its proxy refused or added."""
        noted = list[str]()
        home, scratch = folder / HOME, Store.scratch(folder)
        made = [BindMount(HOME, home, HOME_PATH, writable=True)]
        made.append(BindMount(scratch.name, scratch, _SCRATCH_PATH, writable=True))
        shown = replace(tools, mounts=(*tools.mounts, *made))
        own = self.settings.sandbox.model_copy(update={"setup_disk_bytes": self.table.max_bytes})
        setting = f"environments.{self.name}.max_bytes"
        variables = {**self.table.variables, **secrets, "HOME": HOME_PATH, "TMPDIR": _SCRATCH_PATH}
        with (
            self.bounds.set_up([folder / WORKSPACE, home, scratch], own, setting) as bounds,
            Bubblewrap(folder / WORKSPACE, tools=shown, bounds=bounds, reach=self._reach(noted.append)) as sandbox,
        ):
            argv = ["bash", "--noprofile", "--norc", "-e", "-c", self.table.setup]
            seconds = self.table.setup_seconds
            done = await sandbox.run(Command(argv, seconds, env=variables, max_output=_LOG_BYTES, merged=True))
        return done, noted

    def _reach(self, note: Report) -> EgressProxy | None:
        """Returns the proxy to the hosts of the script; each refusal and each use of a credential is noted."""
        hosts = [*self.table.setup_hosts, *self.settings.sandbox.allowed_hosts]
        place = f"environments.{self.name}.setup_hosts"

        def note_use(sentence: str) -> None:
            note(sentence)
            self.on_used(sentence)

        return proxy_to(self.settings, place, hosts, note, note_use, network=self.network)

    def _why(self, done: Completed, printed: str, noted: Sequence[str]) -> str:
        ended = f"ended with exit code {done.exit_code}"
        if done.timed_out:
            ended = f"did not end within {self.table.setup_seconds:g} s (environments.{self.name}.setup_seconds)"
        ended = f"was killed: {done.exceeded}" if done.exceeded else ended
        has_hint = _NO_NETWORK.search(printed) and not (self.table.setup_hosts or noted)
        remedy = f"name the hosts that it needs in environments.{self.name}.setup_hosts"
        if self.name.startswith(TEMPLATES):
            remedy = "a template needs its files on the worker, or in its image"
        hint = f"\nIt has no network: {remedy}." if has_hint else ""
        tail = printed.strip()[-_SHOWN_CHARACTERS:]
        return f"the set-up of the environment {self.name!r} {ended}.\n{tail}{hint}".rstrip()


def made_folders(workspace: Path, files: Collection[str]) -> list[str]:
    """Returns the directories that the set-up has made, without those inside of them; at most ``_MOST_FOLDERS``.

    A link is left out: one that leads out of the folder would show what is there.
    """
    above = {"/".join(parts[:end]) for path in files if (parts := path.split("/")) for end in range(1, len(parts))}
    return sorted(_new_folders(workspace, "", above))[:_MOST_FOLDERS]


def _new_folders(folder: Path, prefix: str, above: Collection[str]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_KEPT]
    for entry in found:
        path = prefix + entry.name
        if path in above:
            yield from _new_folders(folder / entry.name, f"{path}/", above)
        else:
            yield path


def found_secret(folder: Path, values: Sequence[bytes]) -> str:
    """Returns the path below the folder of a file that holds one of the values; "" for none."""
    if not values:
        return ""
    longest = max(map(len, values))
    for above, _, names in os.walk(folder):
        for name in names:
            give_way()
            path = Path(above, name)
            if _holds(path, values, longest):
                return str(path.relative_to(folder))
    return ""


def _holds(path: Path, values: Sequence[bytes], longest: int) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # a link, or one that its owner cannot read either
        return False
    with os.fdopen(fd, "rb", buffering=0) as file:
        before = b""
        while data := file.read(_CHUNK):
            whole = before + data
            if any(value in whole for value in values):
                return True
            before = whole[-longest:]
    return False
