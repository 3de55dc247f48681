"""The offer of a worker to one run: the tools that it may have, and the sandbox of its profile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...shared.log import log
from ...shared.request_rules import sandbox_of
from ...shared.runs.record import Claim
from ...shared.settings import SandboxSettings, Settings
from ..environments.environments import EnvironmentsOfWorker
from ..environments.run_services import services_beside
from ..sandbox.bounds import WorkerBounds
from ..sandbox.bubblewrap import Bubblewrap, NoSandbox, Sandbox
from ..sandbox.project_tools import NO_TOOLS, ProjectTools, tools_for
from ..sandbox.setup_command import SetupCache
from ..threads import run_in_thread, run_short
from ..tools.base import AnyTool
from ..web.dial import Network
from ..web.egress_proxy import reach_of
from ..workspace.workspace import Workspace
from .sources import Source


@dataclass(frozen=True, slots=True)
class RunOffer:
    """What one run may have. ``settings`` are the worker's, with the run's own profile as their sandbox.

    ``root`` are those of the root of its tree, whose set-up command ``setup`` runs. ``sandbox_problem``: why commands
    cannot run here, or None.
    """

    settings: Settings
    root: Settings
    setup: SetupCache
    tools: Sequence[AnyTool]
    sources: Sequence[Source]
    default_kit: Sequence[str]
    bounds: WorkerBounds
    sandbox_problem: str | None
    environments: EnvironmentsOfWorker | None = None
    network: Network | None = None
    """Where commands reach hosts, by default the machine's."""

    @property
    def profile(self) -> SandboxSettings:
        return self.settings.sandbox

    async def project_tools(self, claim: Claim, workspace: Workspace, report: Callable[[str], None]) -> ProjectTools:
        """Returns what this run's commands find besides the system, once the set-up command has made it.

        It runs only where the workspace was not changed yet. Raises ``Invalid`` if it fails.
        """
        asked = claim.request
        if not self.sandbox_problem:
            own = self.environments
            workspace.tools = await own.of_run(asked, workspace, report, self.settings) if own else None
        if workspace.tools:
            return workspace.tools
        untouched = claim.is_first or len(claim.history) <= 1  # no reply, so no call
        is_copy = untouched and not (asked.continues or asked.from_turn) and asked.parent_id is None
        return await self._tools(workspace, workspace.path, build=is_copy, report=report)

    async def tools_of_base(self, workspace: Workspace) -> ProjectTools:
        """Returns what commands find whose files are those from the run's start, whatever it has changed since."""
        return workspace.tools or await self._tools(workspace, workspace.base)

    async def _tools(
        self,
        workspace: Workspace,
        files: Path,
        *,
        build: bool = False,
        report: Callable[[str], None] = lambda sentence: None,
    ) -> ProjectTools:
        """``files`` decide which result of the set-up command it is."""
        if self.sandbox_problem:
            return NO_TOOLS
        origin = workspace.origin
        tools = await run_short(tools_for, self.settings, origin)
        of_root = None if self.root is self.settings else await run_in_thread(tools_for, self.root, origin)
        for note in tools.notes:
            log.warning("%s", note)
        return await self.setup.add_to(tools, files, origin, build=build, report=report, of_root=of_root)

    @asynccontextmanager
    async def sandbox(
        self,
        workspace: Workspace,
        tools: ProjectTools,
        *,
        read_only: bool = False,
        report: Callable[[str], None] = lambda sentence: None,
        on_refused: Callable[[str], None] | None = None,
        on_used: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Sandbox]:
        """Opens the sandbox for this run's commands; ``read_only`` keeps them from changing its files.

        ``report`` receives the limits for which background commands were killed, or files removed, ``on_refused`` a
        sentence for each host that commands may not reach, ``on_used`` one for each use of a credential.
        """
        if self.sandbox_problem:
            yield NoSandbox(self.sandbox_problem)
            return
        changes = None if read_only else tools.folder_for_changes(workspace.changes)
        data = workspace.services if tools.services else None
        async with AsyncExitStack() as opened:
            bounds = self.bounds.run(workspace.path, report, self.profile, workspace.taken, [changes, data])
            opened.enter_context(bounds)
            services = await opened.enter_async_context(services_beside(tools.services, data, bounds))
            made = Bubblewrap(
                workspace.path,
                status_folder=workspace.status_folder,
                tools=services.shown(tools),
                bounds=bounds,
                read_only=read_only,
                reach=reach_of(self.settings, "allowed_hosts", on_refused, on_used, network=self.network),
                changes=changes,
                beside=services,
            )
            bounds.begin()  # before the first command, which need not wait for it then
            try:
                yield opened.enter_context(made)
            finally:
                if removed := await bounds.growth.check():
                    report(removed)


class Offers:
    """The offers of a worker by profile: each is made once, so that runs of one profile share their tools.

    ``own`` is that of the worker's own sandbox.
    """

    def __init__(self, own: RunOffer) -> None:
        self._own = own
        self._made: dict[str, RunOffer] = {}

    def of(self, agents: Sequence[str | None]) -> RunOffer:
        """Returns that of a run, by the names of the agents on the path from the root of its tree to it.

        Raises ``Invalid`` for an agent that this worker does not know.
        """
        settings = self._own.settings
        root, run = (self._inside(sandbox_of(path, settings)) for path in (agents[:1], agents))
        return run if run is root else replace(run, root=root.settings, setup=root.setup)

    def _inside(self, sandbox: SandboxSettings) -> RunOffer:
        if sandbox == self._own.profile:
            return self._own
        key = sandbox.model_dump_json()
        if key not in self._made:
            settings = self._own.settings.model_copy(update={"sandbox": sandbox})
            setup = setup_cache(settings, self._own.bounds, self._own.network)
            tools = [
                tool.configured(settings) or tool if tool.availability.needs_sandbox else tool
                for tool in self._own.tools
            ]
            self._made[key] = replace(self._own, settings=settings, root=settings, setup=setup, tools=tools)
        return self._made[key]


def setup_cache(settings: Settings, bounds: WorkerBounds, network: Network | None = None) -> SetupCache:
    """Returns the results of the set-up command of these settings."""
    return SetupCache(settings, partial(reach_of, settings, "setup_hosts", network=network), bounds)
