"""Connects a command to a service, DEPUTIZE_URL's, this machine's, or one that it starts; notes before submitting."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from ...shared.errors import DeputizeError, Invalid, Misconfigured, NotFound, Unavailable
from ...shared.text import count
from ...shared.wording import short_id
from . import output

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.fleet import WorkerCard
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings
    from ..client import Client
    from ..home import StackInfo

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
ID_PREFIX = "dlg_"
ID_LENGTH = 30
ID_PART = re.compile(r"[0-9a-z]+")
NEWEST = "@last"
NO_MODEL = (
    "there is no model to ask: set ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL), name a table [models.NAME] of "
    "deputize.toml, or set DEPUTIZE_MODEL=scripted to try it without a model"
)
FIRST_SEARCHED = 20
LARGEST_PAGE = 500
SEARCHED = 5000
"""Number of the newest delegations among which a short id is looked up."""
_UNUSED = (
    ("deputize.toml", "--config or ", "DEPUTIZE_CONFIG"),
    ("mcp.json", "", "DEPUTIZE_MCP_CONFIG"),
    (".mcp.json", "", "DEPUTIZE_MCP_CONFIG"),
    ("skills/*/SKILL.md", "", "DEPUTIZE_SKILLS_DIR"),
)
"""Files that count only if they are named: a pattern, the option and the variable that name them."""


@dataclass(frozen=True, slots=True)
class Service:
    client: Client
    own: bool = False
    """Whether this command started it."""
    stays: bool = True
    """Whether it continues after this command and its other users."""
    has_workers: bool = True
    """Whether it may have workers; one that was started only to show delegations has none."""
    attended: bool = True
    """Whether others than this command may answer permission requests; see ``Questions``."""


def load_settings(**override: Any) -> Settings:
    """Returns the settings of this command; notes the files in the working directory that count only if named."""
    from ...shared.settings import Settings, environment
    from ...shared.settings.files import configuration_folder

    config: Path | None = click.get_current_context().find_root().obj
    settings = Settings.load(config, **override)
    variables = environment()
    if (own := configuration_folder(variables)).is_dir() and own.samefile("."):
        return settings
    named = {
        "DEPUTIZE_CONFIG": config or variables.get("DEPUTIZE_CONFIG"),
        "DEPUTIZE_MCP_CONFIG": settings.mcp_file,
        "DEPUTIZE_SKILLS_DIR": settings.skills,
    }
    hints = [
        f"found ./{pattern.partition('/')[0]}, which is not used; name it with {option}{variable}"
        for pattern, option, variable in _UNUSED
        if not named[variable] and next(Path().glob(pattern), None)
    ]
    if hints:
        output.note("; ".join(hints))
    return settings


def stack_here(settings: Settings, *, makes_home: bool = True) -> StackInfo | None:
    """Returns the stack that runs on this machine, or None. Raises Misconfigured if its home is unusable."""
    from ..home import prepare_home
    from ..stack import running

    with suppress(OSError):  # any other than a home that is missing is reported below
        try:
            settings.home.stat()
        except FileNotFoundError:
            if not makes_home:
                return None
    prepare_home(settings.home)
    return running(settings)


@asynccontextmanager
async def connect(settings: Settings, *, workers: int = 0, lacks_model: bool = False) -> AsyncGenerator[Service]:
    """Yields the service; if none runs, starts one for the block.

    Without workers it is read-only: looking at an interrupted command's delegations must not resume and bill them.
    ``lacks_model``: the workers would not reach a model that is needed, so none is started.
    """
    if settings.url:
        async with client_at_url(settings) as client:
            yield Service(client)
        return
    from ..stack import other_settings, stack_in_use

    there = stack_here(settings)
    own = there is None or there.workers == 0 < workers
    if own:
        if lacks_model:
            tables = f". There are the tables {', '.join(settings.models)}" if settings.models else ""
            raise Misconfigured(f"{NO_MODEL}{tables}")
        if workers:
            check_script(settings.model)
        if settings.redis_url is not None:
            from ...shared.redis_access import reached

            await reached(settings.redis_url)
        if workers:
            output.note("no service runs here; starting one for this command")
    # Meanwhile: it takes a third of this command's own time, and begins once the stack is being started.
    loaded = asyncio.create_task(asyncio.to_thread(import_module, "deputize.orchestrator.client"))
    async with stack_in_use(settings, workers=workers, report=output.note) as stack:
        if workers and (others := ", ".join(other_settings(settings, stack))):
            output.note(f"note: the stack on this machine was started with other settings ({others}); its own hold")
        has_workers = stack.workers > 0 or settings.redis_url is not None  # workers may be elsewhere
        await loaded
        async with client_at(stack.url, token_for(settings, stack)) as client:
            attended = stack.stays or "permission_timeout_seconds" in settings.model_fields_set
            yield Service(client, own, stack.stays, has_workers, attended)


def check_script(model: str) -> None:
    """Raises Misconfigured for a script that does not exist: else each run would end with that."""
    kind, _, path = model.partition(":")
    if kind == "scripted" and path and not Path(path).is_file():
        raise Misconfigured(f"DEPUTIZE_MODEL: there is no script {path}")


@asynccontextmanager
async def connect_permanent(settings: Settings) -> AsyncGenerator[Service]:
    """Yields a service that outlives this command. Raises Unavailable if there is none."""
    if settings.url:
        async with client_at_url(settings) as client:
            yield Service(client)
        return
    there = lasting_stack(settings)
    async with client_at(there.url, token_for(settings, there)) as client:
        yield Service(client)


def lasting_stack(settings: Settings) -> StackInfo:
    """Returns this machine's stack that outlives the commands that use it. Raises Unavailable if there is none."""
    there = stack_here(settings, makes_home=False)
    if there is None or not there.stays:
        what = "on this machine" if there is None else "that stays"
        raise Unavailable(f"no service runs {what}; start one with `deputize up --detach` or set DEPUTIZE_URL")
    return there


def token_for(settings: Settings, stack: StackInfo | None = None) -> str | None:
    """Returns the token of the settings, else the one that this machine's stack keeps for its user."""
    if settings.token:
        return settings.token.get_secret_value()
    return stack.token if stack else None


def client_at_url(settings: Settings) -> Client:
    """Returns a client of the service that ``DEPUTIZE_URL`` names."""
    return client_at(settings.url or "", token_for(settings))


def client_at(url: str, token: str | None) -> Client:
    """Returns a client whose requests are part of the trace that the variable ``TRACEPARENT`` names, if it does."""
    from ...shared.settings import environment
    from ...shared.traceparent import parsed
    from ..client import Client

    client = Client(url, token)
    client.trace = parsed(environment().get("TRACEPARENT"))
    return client


def asynchronous(command: Callable[Given, Coroutine[Any, Any, Answer]]) -> Callable[Given, Answer]:
    """Makes a function that click can call of a coroutine function."""

    @wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return asyncio.run(command(*args, **kwargs))

    return run


@asynchronous
async def ask(question: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Connects to a service and returns its answer."""
    async with connect(load_settings()) as service:
        return await question(service.client)


async def full_id(client: Client, given: str) -> str:
    """Returns the only id that begins or ends with ``given``; for ``@last`` the newest one without a parent.

    Raises NotFound, Invalid.
    """
    if given == NEWEST:
        async for newest in listed(client, SEARCHED, FIRST_SEARCHED):
            if newest.request.parent_id is None:
                return newest.id
        raise NotFound("there is no delegation yet")
    bare = given.removeprefix(ID_PREFIX)
    if not ID_PART.fullmatch(bare):
        raise Invalid(f"{given!r} is not the id of a delegation; `deputize list` shows them")
    if given.startswith(ID_PREFIX) and len(given) == ID_LENGTH:
        return given
    found = [item.id async for item in listed(client, SEARCHED) if is_short_for(given, item.id)]
    if not found:
        raise NotFound(f"there is no delegation whose id begins or ends with {given}; `deputize list` shows them")
    if len(found) > 1:
        raise Invalid(f"{given} stands for {len(found)} ids; give more of it: {output.some(found, 5)}")
    return found[0]


async def with_full_ids(client: Client, request: DelegationRequest) -> DelegationRequest:
    """Returns the request with the whole ids of those that it waits for. Raises as ``full_id``."""
    after = [each.model_copy(update={"id": await full_id(client, each.id)}) for each in request.after]
    return request.model_copy(update={"after": after}) if after else request


def is_short_for(given: str, id: str) -> bool:
    """Returns whether the id begins, also without its prefix, or ends with ``given``."""
    prefix = id[:4]
    return id.startswith(prefix + given.removeprefix(prefix)) or (not given.startswith(prefix) and id.endswith(given))


async def listed(
    client: Client, limit: int = sys.maxsize, first: int = LARGEST_PAGE, **filters: Any
) -> AsyncGenerator[Delegation]:
    """Yields delegations, the newest first; ``first`` is the size of the first page."""
    cursor, size = None, first
    while limit > 0:
        page = await client.list(limit=min(limit, size), cursor=cursor, **filters)
        for delegation in page.items:
            yield delegation
        limit -= len(page.items)
        if (cursor := page.next_cursor) is None:
            return
        size = LARGEST_PAGE


async def unfinished(client: Client, **filters: Any) -> AsyncGenerator[Delegation]:
    """Yields every delegation that has no result yet and passes the filters of a list."""
    from ...shared.delegation import Status

    for status in (Status.QUEUED, Status.RUNNING, Status.WAITING):  # in the order in which it may change meanwhile
        async for delegation in listed(client, status=status, **filters):
            yield delegation


def lacks_endpoint(requests: Sequence[DelegationRequest], settings: Settings) -> bool:
    """Returns whether the model of any of them has no endpoint in these settings."""
    models = [(each.attempts.models if each.attempts else None) or [each.model] for each in requests]
    return not all(settings.reaches(model) for several in models for model in several)


async def note_before_work(
    service: Service, requests: Sequence[DelegationRequest], note: Callable[[str], None], *, asks: bool = False
) -> None:
    """Notes paused delegations, or ``asks`` whether to go on with them, and default tools that are unavailable."""
    with suppress(DeputizeError):  # submitting the work reports the error
        if service.own:
            await _note_paused(service, note, asks)
        workers = await service.client.workers()
        known = service.client.version
        if other := next((worker for worker in workers if worker.version != known), None):
            note(f"note: the service is deputize {known}, worker {other.name} {other.version or 'an older one'}")
        problem = sandbox_problem(workers)
        if problem and any(request.tools is None for request in requests):
            note(
                f"warning: commands and changes of files will be refused, because the sandbox does not work: "
                f"{problem.removesuffix('.')}; `deputize doctor` shows the remedy"
            )


def sandbox_problem(workers: Sequence[WorkerCard]) -> str | None:
    """Returns why no worker can run commands; None where one can, and where no worker is known."""
    return workers[0].sandbox if workers and all(worker.sandbox for worker in workers) else None


async def _note_paused(service: Service, note: Callable[[str], None], asks: bool) -> None:
    paused = [delegation async for delegation in unfinished(service.client) if delegation.paused]
    if not paused:
        return
    names = output.some([f"{each.request.title} ({short_id(each.id)})" for each in paused])
    one = len(paused) == 1
    note(f"{count(len(paused), 'delegation')} from before {'is' if one else 'are'} paused: {names}")
    if asks and output.can_ask() and output.confirm("Go on with that now, too?"):
        for each in paused:
            await service.client.resume(each.id)
        return
    # `cancel --all` would end the work of this command, too.
    resume, cancel, it = (paused[0].id, paused[0].id, "it") if one else ("--all", "ID…", "them")
    note(f"`deputize resume {resume}` goes on with {it}, `deputize cancel {cancel}` ends {it}")
