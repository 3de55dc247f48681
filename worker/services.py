"""Services shared by all runs of one worker process: connections, leases and models. Holds no state of any run."""

from __future__ import annotations

import asyncio
import os
import secrets as random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from ..shared.bus import Bus
from ..shared.connection import Pipe, connect, retried
from ..shared.errors import Invalid, Misconfigured, WorkspaceLost
from ..shared.fleet import Fleet
from ..shared.log import log
from ..shared.masking import SecretMask
from ..shared.metrics import OTHER
from ..shared.queue import Ticket
from ..shared.request import DirectoryWorkspace, GitWorkspace
from ..shared.request_rules import foreign_script
from ..shared.runs.keys import LEASES, record_key
from ..shared.runs.record import Claim, FilesOf
from ..shared.runs.replicas import pipe_of, replicas_of
from ..shared.runs.store import RELEASE, RENEW, START_CLAIMS, WRITING, RunStore
from ..shared.settings import Settings
from .celery_pool.process import ProgressEvents
from .core.emit import Emitter
from .core.part import Part
from .economy.senders import BatchSenders
from .environments.environments import EnvironmentsOfWorker
from .fleet.admission.keys import KeyedModel
from .fleet.admission.outage import Outages
from .fleet.gate import SharedPrefixes
from .fleet.inbox import WRAP_UP_SECONDS
from .fleet.janitor import Janitor, Presence
from .fleet.lease import Leases
from .fleet.status import WorkerStatus
from .fleet.webhook_sender import WebhookSender
from .linux.open_files import OpenFiles
from .mcp.source import McpServers
from .models import close_models, open_model
from .models.base import Model, undated
from .models.rate_limits import StatesLimits
from .policy import Rule
from .policy.rule_file import load_rules
from .redis_record import RedisRecord
from .sandbox.bounds import WorkerBounds
from .standby.process import Standby
from .threads import run_in_thread
from .toolkit.discovery import Discovery
from .toolkit.offer import Offers, RunOffer, setup_cache
from .toolkit.registry import available_tools, default_kit
from .tools.base import AnyTool
from .tools.builtin import BUILTIN
from .tracing import open_tracing
from .web.dial import Network
from .workspace.generation import restore
from .workspace.snapshot_store import SnapshotStore, StoredRun
from .workspace.source import SourceRules
from .workspace.tree_copy import LONG_SECONDS, CopyTally, reported
from .workspace.workspace import Workspace, with_free_number

if TYPE_CHECKING:
    from ..shared.delegation import ToolAgentResult
    from .models.anthropic import AnthropicModel
    from .tracing.exporter import Tracing
    from .tracing.run_trace import RunTrace

OPEN_MODELS = 64
"""How many models of a process stay open: callers name them, and each takes some ten kilobytes."""
COPIES_PER_REPOSITORY = 4
"""How many runs of the process copy from one git repository at a time, or wait until it is fetched."""


@dataclass(slots=True, kw_only=True)
class Services:
    """What one worker process has for all of its runs."""

    settings: Settings
    name: str
    owner: str
    """Identifies this process among all that ever had this name."""
    store: RunStore
    pipe: Pipe
    leases: Leases
    status: WorkerStatus
    progress: ProgressEvents
    send: Callable[[Sequence[Ticket]], None]
    """Sends tickets to their queues; blocking. Raises ``Unavailable``."""
    waiting: Callable[[], AbstractContextManager[None]]
    """Frees a run's slot for another run while it waits."""
    hands_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once this worker hands its runs over: no turn and no call of them begins here any more."""
    offers: Offers
    """What runs may have, by their sandbox."""
    rules: Sequence[Rule]
    """The rules of the policy's files."""
    outages: Outages
    prefixes: SharedPrefixes
    open_files: OpenFiles
    batches: BatchSenders = field(init=False)
    record_room: Callable[[], int | None] = field(init=False)
    """Returns how many bytes the disk of the record's store takes; None where that is not this stack's own."""
    models: dict[str, asyncio.Task[Model]] = field(default_factory=dict[str, "asyncio.Task[Model]"])
    repositories: WeakValueDictionary[str, asyncio.Semaphore] = field(
        default_factory=WeakValueDictionary[str, asyncio.Semaphore]
    )
    """Which git repositories are copied from just now: the other runs over each of them wait without a thread."""
    long_copy_seconds: float = LONG_SECONDS
    """Seconds after which the copy of a workspace is reported."""
    snapshots: SnapshotStore | None = None
    """Where runs are kept for other machines, too."""
    checks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Each kind of check (``CheckKind``) that the worker was started with, by its name."""
    parts: Sequence[Callable[[Any], Part]] = ()
    """What makes the further parts of a run, from its ``Attempt``."""
    tracing: Tracing | None = None
    """What makes the spans of runs; None where no traces are sent."""
    start_alone: Callable[[str], Awaitable[ToolAgentResult | None]] | None = None
    """Carries out a run in a process of its own; None in such a process."""
    janitor: Janitor | None = None
    """None in a process for one run."""
    small_record: int = 1 << 20
    """Bytes of a record that ends no run: another run's files may fill the disk for a moment, and are then removed."""
    retry_seconds: float = 1.0
    """The delay of a run's first automatic retry; doubled for each further one."""
    wrap_up_seconds: float = WRAP_UP_SECONDS
    """How long the reply and the calls under way may go on when a run is to wrap up."""

    def __post_init__(self) -> None:
        self.batches = BatchSenders(self.store.redis)
        self.record_room = partial(record_room, self.settings)

    async def claim(self, id: str, *, is_alone: bool = True, is_ticket: bool = False) -> Claim | None:
        """Claims this delegation; with the id of a ticket the next one of the queue.

        Raises ``GoesAlone`` where the run gets a process of its own, unless this is to count as one.
        """
        token, seconds = random.token_hex(8), self.settings.lease_seconds
        start = None if is_alone else START_CLAIMS * self.settings.claim_seconds
        claim = partial(self.store.claim, id, token, self.name, seconds, self.owner, self.pipe)
        return await claim(start_seconds=start, is_ticket=is_ticket)

    def lacking_room(self, taken: int) -> str:
        """Returns why a record of so many bytes ends its run: its disk takes fewer more. "" for none."""
        if taken <= self.small_record or (room := self.record_room()) is None or taken <= room:
            return ""
        return f"the record of this run takes {taken:,} bytes, and the disk of all records takes only {room:,} more"

    @property
    def most_output(self) -> int:
        """Returns the bytes that a run's patch may take, and its artifacts: most of the disk's room is others'."""
        room = self.record_room()
        return sys.maxsize if room is None else room // 8

    @contextmanager
    def free_slot(self) -> Generator[None]:
        """Lets another run begin while this one waits."""
        with self.open_files.waiting(), self.waiting():
            yield

    def release(self, claim: Claim, used: Mapping[str, int] = {}) -> asyncio.Future[str]:
        """Returns a run to the queue, due immediately, with the time that it has ``used``."""
        arguments = {"id": claim.id, "fence": claim.fence, "claim_ms": 0, **used}
        return self.pipe.script(RELEASE, [record_key(claim.id), LEASES], arguments)

    def emitter(self, claim: Claim, on_fenced: Callable[[], None]) -> Emitter:
        """Returns what writes the run; ``on_fenced`` is called when another worker owns it."""
        return Emitter(RedisRecord(self.pipe), claim, self.settings.secrets, on_fenced)

    def trace(self, claim: Claim, mask: SecretMask) -> RunTrace | None:
        """Begins the spans of an attempt; None where no traces are sent."""
        return self.tracing.begin(claim, mask) if self.tracing else None

    async def model(self, name: str | None) -> Model:
        """Returns the model of that name; the last ones stay open. Opens in a thread: importing an SDK takes seconds.

        Raises ``Misconfigured`` for a script that the operator did not configure.
        """
        wanted = name or self.settings.model
        if reason := foreign_script(wanted, self.settings):
            raise Misconfigured(reason)
        if (opening := self.models.pop(wanted, None)) is None:
            reading = asyncio.to_thread(open_model, wanted, self.settings)
            # Not in the context of this run: the task stays, and would keep all that this run refers to.
            opening = asyncio.create_task(reading, name=f"open {wanted}", context=Context())
        self.models[wanted] = opening  # the one that was used last is the last one
        if len(self.models) > OPEN_MODELS:
            del self.models[next(iter(self.models))]
        try:
            model = await asyncio.shield(opening)
        except Exception:
            self.models.pop(wanted, None)
            raise
        if not isinstance(model, StatesLimits):
            return model
        for each in model.of_keys:
            pace = self.outages.pace(each.endpoint_id or "")
            pace.model, pace.key, each.report_limits = undated(each.name), each.key, pace.heard
        if len(model.of_keys) == 1:
            return model
        return KeyedModel(cast("Sequence[AnthropicModel]", model.of_keys), self.outages.load)

    def label_of(self, model: Model, asked: str | None) -> str:
        """Returns the model's name as the metrics have it: callers may ask for any name, and metrics have few."""
        if model.endpoint_id is None:
            return "scripted"
        agents = (agent.model for agent in self.settings.agents.values())
        own = {None, self.settings.model, *self.settings.models, *agents}
        return undated(model.name) if asked in own or model.price() else OTHER

    async def offer(self, claim: Claim) -> RunOffer:
        """Returns what the run may have.

        Raises ``Invalid`` where its sandbox is not known: its agent, or that of a delegation it is nested in, is not.
        """
        *outer, _ = claim.path
        above = await retried(partial(self.store.many, outer)) if outer else []
        if len(above) < len(outer):
            raise Invalid("a delegation that this one is nested in is gone, and so are the settings of its sandbox", [])
        return self.offers.of([*(each.request.agent for each in above), claim.request.agent])

    async def workspace(
        self,
        claim: Claim,
        earlier: FilesOf | None,
        most: int,
        report: Callable[[str], None],
        check_fence: Callable[[], Awaitable[None]],
    ) -> Workspace:
        """Opens the run's own files; for a later attempt a copy of the previous attempt's. A long copy is reported.

        ``earlier`` are the files of another delegation that it begins with; ``most`` are the bytes that may be copied.
        ``check_fence`` is called where another attempt has the same number. Raises ``WorkspaceLost`` where calls have
        results and their files are on another machine.
        """
        root, spec, parent = self.settings.workspaces, claim.request.workspace, claim.request.parent_id
        source = spec.path if isinstance(spec, DirectoryWorkspace) else claim.id
        copied = parent and isinstance(spec, DirectoryWorkspace) and Path(spec.path).parent.name == parent
        stored = self.snapshots and StoredRun(self.snapshots, claim.id, claim.attempt, claim.fence)
        away = (claim.touched_files or copied) and not await run_in_thread((root / claim.id).exists)
        if away and not (stored and claim.touched_files):
            raise _lost(claim, self.name)
        sources = self.settings.workspace_sources
        sources = [] if sources is None and not self.settings.local else sources
        tally, place = CopyTally(), nullcontext()
        filled = partial(restore, root, earlier, tally=tally) if earlier else None
        if isinstance(spec, GitWorkspace) and filled is None:
            from .workspace.cloned import GitSource  # most runs need none of it

            source, filled = spec.url, GitSource(spec, claim.id, self.settings, most, tally).fill
            place = self.repositories.setdefault(source, asyncio.Semaphore(COPIES_PER_REPOSITORY))
        if away and stored:
            source, filled = "the snapshot store", stored.restore_of(claim)
        async with place:
            rules = SourceRules(sources, self.settings.private)
            create = partial(Workspace.create, spec, claim.id, root, rules, max_bytes=most, tally=tally, restore=filled)
            copy = with_free_number(create, claim.attempt, check_fence)
            workspace = await reported(copy, tally, source, report, self.long_copy_seconds)
        if stored:
            await workspace.store_in(stored)
        return workspace


def _lost(claim: Claim, worker: str) -> WorkspaceLost:
    where = f"not on this machine ({worker}). Put DEPUTIZE_WORKSPACE_ROOT on a volume that all workers share"
    if claim.touched_files:
        return WorkspaceLost(f"the files of attempt {claim.attempt - 1} are {where}, and hand the task over again")
    made_by = claim.request.parent_id
    return WorkspaceLost(f"the copy of the files of {made_by} is {where}, or hand the task over without a copy")


def checked_rules(settings: Settings, tools: Sequence[AnyTool]) -> Sequence[Rule]:
    """Returns the rules of the policy's files. Raises Misconfigured, also for one that denies what cannot be."""
    rules = load_rules(settings.policy)
    if rules:
        from .policy.explanation import Known  # few workers have files of rules

        for remark in Known(settings, tools).check(rules):
            log.warning(remark)
    return rules


def offer_of(
    settings: Settings,
    *,
    sandbox_problem: str | None,
    tools: Sequence[AnyTool] = BUILTIN,
    bounds: WorkerBounds | None = None,
    network: Network | None = None,
) -> RunOffer:
    """Returns what a worker offers to the runs of its own sandbox. ``sandbox_problem``: why commands cannot run here.

    ``network`` is where commands reach hosts, by default the machine's; ``bounds`` are what they may use together.
    """
    bounds = bounds or WorkerBounds(settings.sandbox)
    return RunOffer(
        settings=settings,
        root=settings,
        setup=setup_cache(settings, bounds, network),
        tools=available_tools(settings, tools),
        sources=(Discovery(settings.tools, tools), *McpServers.of(settings)),
        default_kit=default_kit(settings, tools),
        bounds=bounds,
        sandbox_problem=sandbox_problem,
        environments=EnvironmentsOfWorker(settings, bounds, network),
        network=network,
    )


def record_room(settings: Settings) -> int | None:
    """Returns how many bytes the disk of the record's store takes; None where that is not this stack's own."""
    if not settings.local:
        return None
    try:
        space = os.statvfs(settings.home / "redis")
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


@asynccontextmanager
async def open_services(
    redis_url: str,
    offered: RunOffer,
    *,
    name: str,
    concurrency: int,
    rules: Sequence[Rule],
    send: Callable[[Sequence[Ticket]], None],
    progress: ProgressEvents,
    standby: Standby,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    has_name: bool = True,
) -> AsyncGenerator[Services]:
    """Opens what a process has; closes it with the block. Only one that ``has_name`` announces itself."""
    settings = offered.settings
    async with open_tracing(name) as tracing, _connected(redis_url, settings, standby) as (store, pipe, leases):
        presence = Presence(store, leases.bus, name)
        services = Services(
            settings=settings,
            name=name,
            owner=presence.owner,
            store=store,
            pipe=pipe,
            leases=leases,
            status=WorkerStatus(name, concurrency, offered, leases, Fleet(store.redis)),
            progress=progress,
            send=send,
            waiting=waiting,
            offers=Offers(offered),
            rules=rules,
            outages=Outages(pipe, settings.model_retry_seconds),
            prefixes=SharedPrefixes(pipe),
            open_files=OpenFiles.for_runs(concurrency),
            snapshots=SnapshotStore(settings.snapshot_store) if settings.snapshot_store else None,
            tracing=tracing,
        )
        services.janitor = _janitor(services, presence) if has_name else None
        async with presence.shown(), _background(services, services.janitor):
            yield services
        await close_models()


def _janitor(of: Services, presence: Presence) -> Janitor:
    return Janitor(of.settings, of.store, of.leases.bus, presence, of.send, of.snapshots)


@asynccontextmanager
async def _connected(
    redis_url: str, settings: Settings, standby: Standby
) -> AsyncGenerator[tuple[RunStore, Pipe, Leases]]:
    """Opens the connections of the process: what waits on one of them does not delay the others."""
    replicas = replicas_of(settings)
    async with (
        connect(redis_url) as redis,
        connect(redis_url, timeout=None) as writing,
        connect(redis_url, timeout=None) as renewing,
        connect(redis_url, retries=0) as listening,
        pipe_of(writing, WRITING, replicas) as pipe,
        Pipe(renewing, [RENEW]) as renewals,
        Bus(listening) as bus,
    ):
        leases = Leases(renewals, bus, settings.lease_seconds, standby)
        yield RunStore(redis, settings.retention_seconds, replicas), pipe, leases


@asynccontextmanager
async def _background(services: Services, janitor: Janitor | None) -> AsyncGenerator[None]:
    """Runs the background tasks of a worker process. One that fails ends the block, and with it the worker."""
    works = [
        services.leases.renew_forever(),
        services.leases.hear_cancels(),
        services.leases.hear_messages(),
        services.progress.send_forever(),
        services.batches.work_forever(),
    ]
    if janitor:
        works += [
            janitor.requeue_forever(),
            janitor.end_forever(),
            janitor.sweep_forever(),
            WebhookSender(services.settings, services.store.redis).send_forever(),
            services.status.announce_forever(),
            services.status.hear_drain(),
            services.status.announce_sources(),
        ]
    async with asyncio.TaskGroup() as background:
        tasks = [background.create_task(work, name=work.__qualname__) for work in works]
        yield
        for task in tasks:
            task.cancel()
    if janitor:
        await services.status.leave()
