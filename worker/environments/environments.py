"""The environments of one worker: which one a run has, prepared when it is needed first, and shown to its commands."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ...shared.errors import EnvironmentFailed, ToolError
from ...shared.fleet import PreparedEnvironment
from ...shared.libc import closing_fd
from ...shared.log import log
from ...shared.request import DelegationRequest, DirectoryWorkspace, GitWorkspace
from ...shared.settings import Settings, environment
from ...shared.settings.environments import EnvironmentSettings, matching, unknown_environment
from ...shared.workspaces import delete
from ..contracts import Command
from ..sandbox.bounds import WorkerBounds
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.environment import MOUNT
from ..sandbox.layers import Layer
from ..sandbox.project_tools import ProjectTools, find_tools
from ..sandbox.protections import give
from ..sandbox.services import Service
from ..threads import run_in_thread, run_short
from ..web.dial import Network
from ..workspace.source import open_folder
from ..workspace.workspace import Workspace
from .inputs import digest_of, input_files
from .preparation import HOME_PATH, TEMPLATES, Preparation
from .store import HOME, WORKSPACE, InUse, Store

RECORD = "environment.json"
_SHORTEST, _LONGEST = 0.05, 0.5
"""Seconds between two looks at whether another run has prepared an environment."""
_PROBE_SECONDS = 20
_MOST_ANNOUNCED = 100
_BIN = (".local/bin", ".cargo/bin", "go/bin")
"""Below the home directory."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Record:
    """What a run has, beside its files: for its later attempts, and for the delegations that go on with its files.

    ``folders`` are those of what was prepared that its commands see in the workspace.
    """

    environment: str
    key: str
    folders: list[str]

    def write(self, folder: Path) -> None:
        (folder / RECORD).write_text(json.dumps(asdict(self)), "utf-8")


@dataclass(slots=True)
class EnvironmentsOfWorker:
    """Finds and prepares the environments of runs. ``bounds`` are those of the worker."""

    settings: Settings
    bounds: WorkerBounds
    network: Network | None = None
    store: Store = field(init=False)
    _overlays: bool | None = None
    """Whether overlays can be mounted; None until it was tried."""

    def __post_init__(self) -> None:
        self.store = Store(self.settings.prepared)

    async def of_run(
        self, request: DelegationRequest, workspace: Workspace, report: Report, profile: Settings
    ) -> ProjectTools | None:
        """Returns what commands of the run find, once it is prepared; None for a run without an environment.

        A run that goes on with the files of another one has the environment of that one: what an agent has changed is
        never set up. It is prepared from the files of before the run. Nothing removes it until the workspace is closed.

        Raises:
            EnvironmentFailed: It cannot be prepared.
            Misconfigured: Its secrets or what it shows cannot be read.
        """
        if not self.settings.environments and not request.environment:
            return None
        earlier = await run_short(self._earlier, request)
        record = await run_short(_recorded, workspace.folder, earlier)
        if record:
            name = record.environment
        elif earlier or (name := self._chosen(request, workspace)) is None:
            return None
        table = self._table(name)
        found = await run_in_thread(find_tools, None, *found_for(profile, table))
        used = await self._in_use(name, table, workspace, found, record, report, is_earlier=earlier is not None)
        workspace.until_closed.enter_context(closing(used))
        is_same = record is not None and record.key == used.key
        shown = record.folders if record and is_same else await run_in_thread(_lacking, workspace.base, used)
        await run_short(Record(name, used.key, shown).write, workspace.folder)
        tools = await self._tools(used, shown, table, found)
        if table.services:
            await run_in_thread(_delete_earlier, workspace.folder)
        services = [await self._service(each, workspace, found, report) for each in table.services]
        variables = {name: value for each in services for name, value in each.settings.variables.items()}
        return replace(tools, services=tuple(services), variables={**variables, **tools.variables})

    async def _service(self, name: str, workspace: Workspace, found: ProjectTools, report: Report) -> Service:
        """Returns a service, whose template nothing removes until the workspace is closed."""
        template = await self.template(name, workspace.base, found, report)
        if template:
            workspace.until_closed.enter_context(closing(template))
        data = template.folder / WORKSPACE if template else None
        return Service(name, self.settings.services[name], data, found.mounts, found.path)

    async def template(self, name: str, base: Path, found: ProjectTools, report: Report) -> InUse | None:
        """Returns the data that a service begins with, prepared as an environment without inputs is; None for none."""
        script = self.settings.services[name].template
        table = EnvironmentSettings(setup=script, inputs=[]) if script else None
        return await self.prepared(f"{TEMPLATES}{name}", table, base, found, report) if table else None

    def _table(self, name: str) -> EnvironmentSettings:
        if why := unknown_environment(name, self.settings.environments):
            raise EnvironmentFailed(f"{why}; the service and all workers need the same environments")
        return self.settings.environments[name]

    def _earlier(self, request: DelegationRequest) -> Path | None:
        """Returns the folder of the delegation whose files the run begins with, which an agent may have changed."""
        spec, root = request.workspace, self.settings.workspaces
        if request.builds_on:
            return root / request.builds_on
        if isinstance(spec, DirectoryWorkspace) and (path := Path(spec.path).resolve()).is_relative_to(root.resolve()):
            return root / path.relative_to(root.resolve()).parts[0] if path != root.resolve() else None
        return None

    def _chosen(self, request: DelegationRequest, workspace: Workspace) -> str | None:
        if request.environment:
            return request.environment
        spec = request.workspace
        url = spec.url if isinstance(spec, GitWorkspace) else None
        return matching(self.settings.environments, url or (str(workspace.origin) if workspace.origin else None))

    async def _in_use(
        self,
        name: str,
        table: EnvironmentSettings,
        workspace: Workspace,
        found: ProjectTools,
        record: Record | None,
        report: Report,
        *,
        is_earlier: bool,
    ) -> InUse:
        key = record.key if record else ""
        if key and (used := await run_in_thread(self.store.use, key)):
            return used
        if key and is_earlier:
            raise EnvironmentFailed(f"the environment {name!r} that its files began with is gone; begin with new files")
        return await self.prepared(name, table, workspace.base, found, report)

    async def prepared(
        self, name: str, table: EnvironmentSettings, base: Path, found: ProjectTools, report: Report
    ) -> InUse:
        """Returns the environment for these files, prepared by this call unless another one does so or has done so."""
        with open_folder(base) as folder:
            files = await run_in_thread(input_files, folder, table.inputs)
            key = f"{name}-{await run_in_thread(digest_of, name, table, folder, files, found)}"
            began, waits, pause = time.time(), False, _SHORTEST
            while (used := await run_in_thread(self.store.use, key)) is None:
                if (lock := await run_in_thread(self.store.lock, key)) is None:
                    if not waits:
                        report(f"waiting for the environment {name}, which another run prepares")
                    waits, pause = True, min(2 * pause, _LONGEST)
                    await asyncio.sleep(pause)
                    continue
                with closing_fd(lock):
                    if await run_short((self.store.folder / key).exists):  # until just now another one had the lock
                        continue
                    if why := await run_short(self.store.failure, key, began):
                        raise EnvironmentFailed(why)
                    report(f"preparing the environment {name}")
                    work = Preparation(name, table, self.settings, self.bounds, self.network, report)
                    facts = await work.run(self.store, key, folder, files, found)
                    report(f"the environment {name} is prepared: {facts.seconds:g} s, {facts.bytes / 1e6:,.0f} MB")
            await run_in_thread(self.store.evict, self.settings.environments)
            return used

    async def _tools(
        self, used: InUse, folders: list[str], table: EnvironmentSettings, found: ProjectTools
    ) -> ProjectTools:
        """Returns what commands find with an environment."""
        layers = [Layer("layer-home", used.folder / HOME, HOME_PATH)]
        layers += [
            Layer.of_workspace(number, used.folder / WORKSPACE / path, path) for number, path in enumerate(folders)
        ]
        path, variables = await run_in_thread(_programs, used.folder, folders)
        return replace(
            found,
            layers=tuple(layers),
            overlays=await self.overlays(),
            maintenance=table.maintenance,
            path=(*path, *found.path),
            variables={**found.variables, **variables, **table.variables, "HOME": HOME_PATH},
        )

    def announced(self) -> list[PreparedEnvironment]:
        """Returns what is prepared, or is to be, as the worker announces it. Blocks."""
        return [
            PreparedEnvironment(
                environment=each.facts.environment,
                key=each.key,
                state=each.state,
                bytes=each.facts.bytes,
                seconds=each.facts.seconds,
                prepared_at=datetime.fromtimestamp(each.facts.made, UTC),
                used_at=datetime.fromtimestamp(each.used, UTC),
            )
            for each in self.store.listed()[:_MOST_ANNOUNCED]
        ]

    async def overlays(self) -> bool:
        """Returns whether the kernel lets commands write over what was prepared; tried once."""
        if self._overlays is None:
            self._overlays = await self._try_overlay()
            if not self._overlays:
                log.warning("overlays cannot be mounted here: prepared environments are read-only in runs")
        return self._overlays

    async def _try_overlay(self) -> bool:
        self.settings.prepared.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="selftest.", dir=self.settings.prepared) as folder:
            parts = [Path(folder, name) for name in ("workspace", "lower", "changes")]
            for part in parts:
                part.mkdir(mode=0o755)
                give(part)
            workspace, lower, changes = parts
            tools = ProjectTools(layers=(Layer.of_workspace(0, lower, "made"),))
            with Bubblewrap(workspace, tools=tools, changes=changes) as sandbox:
                try:
                    done = await sandbox.run(Command(["/bin/sh", "-c", ": >made/x"], _PROBE_SECONDS))
                except ToolError as error:
                    log.info("overlays cannot be mounted: %s", error)
                    return False
            return done.exit_code == 0 and not (lower / "x").exists()


def _recorded(*folders: Path | None) -> Record | None:
    """Returns the record of the first folder that has one."""
    for folder in filter(None, folders):
        with suppress(FileNotFoundError, NotADirectoryError):
            return Record(**json.loads((folder / RECORD).read_text("utf-8")))
    return None


def _lacking(base: Path, used: InUse) -> list[str]:
    """Returns the folders at whose paths the files from before the run have nothing: they are the environment's."""
    return [path for path in used.facts.folders if not os.path.lexists(base / path)]


def _delete_earlier(folder: Path) -> None:
    """Deletes the data of services that an attempt left which was lost."""
    for data in folder.glob("services*"):
        delete(data)


def _programs(folder: Path, shown: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the directories for PATH, and the variables, that go with what was prepared."""
    made = folder / WORKSPACE
    venv = next((path for path in shown if os.path.lexists(made / path / "pyvenv.cfg")), None)
    path = [f"{MOUNT}/{venv}/bin"] if venv else []
    path += [f"{HOME_PATH}/{name}" for name in _BIN if (folder / HOME / name).is_dir()]
    return path, {"VIRTUAL_ENV": f"{MOUNT}/{venv}"} if venv else {}


def found_for(
    settings: Settings, table: EnvironmentSettings
) -> tuple[Mapping[str, str], Sequence[Path], Sequence[Path]]:
    """Returns where programs are looked for, what of the machine is shown, and what never is."""
    environ = environment() if settings.sandbox.find_tools else {}
    return environ, list(dict.fromkeys([*settings.sandbox.show, *table.show])), settings.private
