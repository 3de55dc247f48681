"""A Redis with replicas at one address, as the fixture ``replicated``: any of them can become the primary."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deputize.orchestrator.sockets import free_port
from tests.processes.redis_server import RedisProcess
from tests.waiting import until_sync

_AT_ONCE = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class Node(RedisProcess):
    """A server that can have replicas, or be one."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        listens = ("--bind", "127.0.0.1", "--port", str(self.port))
        super().__init__(folder, *listens, *_AT_ONCE, *options, environment=environment)

    def follow(self, primary: Node) -> None:
        self.client.replicaof("127.0.0.1", primary.port)
        until_sync(lambda: self.client.info("replication").get("master_link_status") == "up")

    def lag(self) -> None:
        """Receives nothing more from its primary."""
        self.client.replicaof("127.0.0.1", 1)

    @property
    def socket(self) -> Path:
        return Path(self.url.removeprefix("unix://"))


class Replicated:
    """A primary and its replicas. ``url`` leads to the primary, also to one that took over."""

    def __init__(self, folder: Path, replicas: int, environment: Mapping[str, str] | None = None) -> None:
        self.primary, *self.replicas = (
            Node(folder / str(number), environment=environment) for number in range(replicas + 1)
        )
        for replica in self.replicas:
            replica.follow(self.primary)
        self._address = folder / "at"
        self._address.symlink_to(self.primary.socket)
        self.url = f"unix://{self._address}"

    @property
    def nodes(self) -> list[Node]:
        return [self.primary, *self.replicas]

    def fail_over(self, to: Node) -> None:
        """Ends the primary; a replica takes over at its address, as it is."""
        self.primary.kill()
        to.client.replicaof("NO", "ONE")
        self.primary = to
        self.replicas.remove(to)
        self._address.unlink()
        self._address.symlink_to(to.socket)

    def rejoin(self, node: Node) -> None:
        """Starts a server that was the primary, as a replica of the one that is it now."""
        node.start()
        node.follow(self.primary)
        self.replicas.append(node)

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


@pytest.fixture
def replicated(request: pytest.FixtureRequest) -> Iterator[Replicated]:
    """One replica, or as many as the test's parameter states."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        servers = Replicated(Path(folder), getattr(request, "param", 1))
        yield servers
        servers.close()
