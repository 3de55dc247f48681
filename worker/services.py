"""Services shared by all runs of one worker process: connections, leases and models. Holds no state of any run."""

from __future__ import annotations

import asyncio
import secrets as random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..shared.bus import Bus
from ..shared.connection import Pipe, connect, retried
from ..shared.delegation import Usage
from ..shared.errors import Invalid, Misconfigured, WorkspaceLost
from ..shared.fleet import Fleet
from ..shared.log import log
from ..shared.queue import Ticket
from ..shared.request import DirectoryWorkspace
from ..shared.request_rules import foreign_script
from ..shared.runs.keys import LEASES, record_key
from ..shared.runs.record import Claim
from ..shared.runs.store import RELEASE, WRITING, RunStore
from ..shared.settings import Settings
from .celery_pool.process import ProgressEvents
from .fleet.janitor import Janitor, Presence
from .fleet.lease import Leases, open_leases
from .fleet.outage import Outages
from .fleet.shared_prefix import SharedPrefixes
from .fleet.status import WorkerStatus
from .mcp.source import McpServers
from .models import close_models, open_model
from .models.base import Model
from .policy import Rule
from .policy.known_tools import Known
from .policy.rule_file import load_rules
from .sandbox.bounds import WorkerBounds
from .standby.process import Standby
from .threads import run_in_thread
from .toolkit.discovery import Discovery
from .toolkit.offer import Offers, RunOffer, setup_cache
from .toolkit.registry import available_tools, default_kit
from .toolkit.sources import Source
from .tools import BUILTIN
from .tools.base import AnyTool
from .web.dial import Network
from .workspace.copy_report import LONG_SECONDS, reported
from .workspace.restoring import restore
from .workspace.tree_copy import CopyTally
from .workspace.workspace import Workspace


@dataclass(slots=True)
class Services:
    """The services of one worker process. ``sandbox_problem``: why commands cannot run here, or None."""

    settings: Settings
    name: str
    owner: str
    """Identifies this process among all that ever had this name."""
    concurrency: int
    store: RunStore
    pipe: Pipe
    leases: Leases
    fleet: Fleet
    progress: ProgressEvents
    sandbox_problem: str | None
    tools: Sequence[AnyTool]
    """The tools that this worker offers to every run."""
    sources: Sequence[Source]
    """Sources of the further tools of a run."""
    default_kit: Sequence[str]
    send: Callable[[Sequence[Ticket]], None]
    """Sends tickets to their queues; blocking. Raises ``Unavailable``."""
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Frees a run's slot for another run while it waits."""
    long_copy_seconds: float = LONG_SECONDS
    """Seconds after which the copy of a workspace is reported."""
    retry_seconds: float = 1.0
    """The delay of a run's first automatic retry; doubled for each further one."""
    network: Network | None = None
    """Where commands reach hosts, by default the machine's."""
    rules: Sequence[Rule] = ()
    """The rules of the policy's files."""
    usage: Usage = field(default_factory=Usage)
    """That of the model calls of all runs so far."""
    bounds: WorkerBounds = field(kw_only=True)
    """What the commands of all runs may use."""
    outages: Outages = field(init=False)
    prefixes: SharedPrefixes = field(init=False)
    offers: Offers = field(init=False)
    models: dict[str, asyncio.Task[Model]] = field(default_factory=dict[str, "asyncio.Task[Model]"])

    def __post_init__(self) -> None:
        self.outages = Outages(self.pipe, self.settings.model_retry_seconds)
        self.prefixes = SharedPrefixes(self.pipe)
        setup = setup_cache(self.settings, self.bounds, self.network)
        kit = self.tools, self.sources, self.default_kit
        own = RunOffer(self.settings, self.settings, setup, *kit, self.bounds, self.sandbox_problem, self.network)
        self.offers = Offers(own)

    def count(self, usage: Usage) -> None:
        """Adds the usage of a model call to that of this process."""
        self.usage += usage

    async def claim(self, id: str) -> Claim | None:
        token, seconds = random.token_hex(8), self.settings.lease_seconds
        return await self.store.claim(id, token, self.name, seconds, self.owner, self.pipe)

    def release(self, claim: Claim, used: Mapping[str, int] = {}) -> asyncio.Future[str]:
        """Returns a run to the queue, due immediately, with the time that it has ``used``."""
        arguments = {"id": claim.id, "fence": claim.fence, "claim_ms": 0, **used}
        return self.pipe.script(RELEASE, [record_key(claim.id), LEASES], arguments)

    async def model(self, name: str | None) -> Model:
        """Returns the model of that name; opened once per process, in a thread: importing an SDK takes seconds.

        Raises ``Misconfigured`` for a script that the operator did not configure.
        """
        wanted = name or self.settings.model
        if reason := foreign_script(wanted, self.settings):
            raise Misconfigured(reason)
        if wanted not in self.models:
            opening = asyncio.to_thread(open_model, wanted, self.settings)
            self.models[wanted] = asyncio.create_task(opening, name=f"open {wanted}")
        try:
            return await asyncio.shield(self.models[wanted])
        except Exception:
            self.models.pop(wanted, None)
            raise

    async def offer(self, claim: Claim) -> RunOffer:
        """Returns what the run may have.

        Raises ``Invalid`` where its sandbox is not known: its agent, or that of a delegation it is nested in, is not.
        """
        *outer, _ = claim.path
        above = await retried(partial(self.store.many, outer)) if outer else []
        if len(above) < len(outer):
            raise Invalid("a delegation that this one is nested in is gone, and so is what its sandbox may be", [])
        return self.offers.of([*(each.request.agent for each in above), claim.request.agent])

    async def workspace(self, claim: Claim, most: int, report: Callable[[str], None]) -> Workspace:
        """Opens the run's own files; for a later attempt a copy of the previous attempt's. A long copy is reported.

        ``most`` are the bytes that may be copied.

        Raises ``WorkspaceLost`` where calls have results and their files are on another machine.
        """
        if claim.touched_files and not (self.settings.workspaces / claim.id).exists():
            raise WorkspaceLost(
                f"the files of attempt {claim.attempt - 1} are not on this machine ({self.name}). Put "
                "DEPUTIZE_WORKSPACE_ROOT on a volume that all workers share, and hand the task over again"
            )
        spec = claim.request.workspace
        if claim.request.parent_id and isinstance(spec, DirectoryWorkspace):
            self._check_copied(claim, spec)
        sources = self.settings.workspace_sources
        if sources is None and not self.settings.local:
            sources = []
        root, earlier, tally = self.settings.workspaces, claim.files_of, CopyTally()
        filled = partial(restore, root / earlier.id, at_start=earlier.at_start, tally=tally) if earlier else None
        copy = Workspace.create(spec, claim.id, root, sources, claim.attempt, most, tally, restore=filled)
        source = spec.path if isinstance(spec, DirectoryWorkspace) else claim.id
        return await reported(copy, tally, source, report, self.long_copy_seconds)

    def _check_copied(self, claim: Claim, spec: DirectoryWorkspace) -> None:
        """Raises ``WorkspaceLost`` where the copy of the parent's files, made by its worker, is on another machine."""
        of_parent = Path(spec.path).parent.name == claim.request.parent_id
        if of_parent and not (self.settings.workspaces / claim.id).exists():
            raise WorkspaceLost(
                f"the copy of the files of {claim.request.parent_id} is not on this machine ({self.name}). Put "
                "DEPUTIZE_WORKSPACE_ROOT on a volume that all workers share, or hand the task over without a copy"
            )


def _checked_rules(settings: Settings, tools: Sequence[AnyTool]) -> Sequence[Rule]:
    """Returns the rules of the policy's files. Raises Misconfigured, also for one that denies what cannot be."""
    rules = load_rules(settings.policy)
    for remark in Known(settings, tools).check(rules) if rules else ():
        log.warning(remark)
    return rules


@asynccontextmanager
async def open_services(
    settings: Settings,
    redis_url: str,
    *,
    name: str,
    concurrency: int,
    send: Callable[[Sequence[Ticket]], None],
    progress: ProgressEvents,
    sandbox_problem: str | None,
    standby: Standby,
    tools: Sequence[AnyTool] = BUILTIN,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    bounds: WorkerBounds | None = None,
    network: Network | None = None,
) -> AsyncGenerator[Services]:
    """Opens the process's services with their background tasks; closes them with the block."""
    rules = await run_in_thread(_checked_rules, settings, tools)
    async with (
        connect(redis_url) as redis,
        connect(redis_url, timeout=None) as writing,
        connect(redis_url) as listening,
        Pipe(writing, WRITING) as pipe,
        Bus(listening) as bus,
        open_leases(redis_url, bus, settings.lease_seconds, standby) as leases,
    ):
        store = RunStore(redis, settings.retention_seconds)
        presence = Presence(store, bus, name)
        parts = store, pipe, leases, Fleet(redis), progress
        sources = (Discovery(settings.tools, tools), *McpServers.of(settings))
        kit = available_tools(settings, tools), sources, default_kit(settings, tools), send, waiting
        own, shared = (settings, name, presence.owner, concurrency), bounds or WorkerBounds(settings.sandbox)
        services = Services(*own, *parts, sandbox_problem, *kit, network=network, rules=rules, bounds=shared)
        status = WorkerStatus(services)
        janitor = Janitor(settings, store, bus, presence, send)
        async with presence.shown(), _background(services, status, janitor):
            yield services
        await close_models()
        await status.leave()


@asynccontextmanager
async def _background(services: Services, status: WorkerStatus, janitor: Janitor) -> AsyncGenerator[None]:
    """Runs the background tasks of a worker process. One that fails ends the block, and with it the worker."""
    async with asyncio.TaskGroup() as background:
        tasks = [
            background.create_task(work, name=work.__qualname__)
            for work in (
                services.leases.renew_forever(),
                services.leases.hear_cancels(),
                janitor.requeue_forever(),
                janitor.sweep_forever(),
                status.announce_forever(),
                services.progress.send_forever(),
                status.announce_sources(),
            )
        ]
        yield
        for task in tasks:
            task.cancel()
