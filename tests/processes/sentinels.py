"""Three Sentinels that watch a replicated Redis, as the fixture ``watched``: a killed primary is replaced by them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from deputize.orchestrator.redis_server import find_program
from deputize.orchestrator.sockets import free_port
from tests.processes.replication import Replicated
from tests.waiting import until_sync

DOWN_MS = 500
"""Milliseconds without an answer after which a primary counts as down."""
_CONFIGURATION = """\
bind 127.0.0.1
port {port}
dir {folder}
sentinel monitor store 127.0.0.1 {primary} 2
sentinel down-after-milliseconds store {down}
sentinel failover-timeout store 3000
"""


class Watched:
    """A primary and two replicas. ``url`` names the Sentinels."""

    def __init__(self, folder: Path) -> None:
        self.servers = Replicated(folder, 2)
        self.ports = [free_port() for _ in range(3)]
        self._sentinels: list[subprocess.Popen[bytes]] = []
        for port in self.ports:
            own = folder / str(port)
            own.mkdir()
            text = _CONFIGURATION.format(port=port, folder=own, primary=self.servers.primary.port, down=DOWN_MS)
            (own / "sentinel.conf").write_text(text)
            command = [str(find_program()), str(own / "sentinel.conf"), "--sentinel"]
            self._sentinels.append(subprocess.Popen(command, cwd=own, stdout=subprocess.DEVNULL))
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/store"
        until_sync(self._know_each_other)

    @property
    def primary_port(self) -> int:
        """The port of the primary, as a Sentinel knows it."""
        with redis.Redis(port=self.ports[0], decode_responses=True) as asked:
            found: Any = asked.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "store")
        return int(found[1])

    def kill_primary(self) -> None:
        """Returns when the Sentinels have promoted another one."""
        before = self.primary_port
        next(node for node in self.servers.nodes if node.port == before).kill()
        until_sync(lambda: self.primary_port != before)

    def _know_each_other(self) -> bool:
        for port in self.ports:
            try:
                with redis.Redis(port=port, decode_responses=True) as asked:
                    found: Any = asked.execute_command("SENTINEL", "MASTERS")
            except redis.RedisError:
                return False
            (state,) = found.values() if isinstance(found, dict) else found
            known = state if isinstance(state, dict) else dict(zip(state[::2], state[1::2], strict=True))
            if (int(known["num-other-sentinels"]), int(known["num-slaves"])) != (2, 2):
                return False
        return True

    def close(self) -> None:
        for sentinel in self._sentinels:
            sentinel.kill()
            sentinel.wait()
        self.servers.close()


@pytest.fixture
def watched() -> Iterator[Watched]:
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        servers = Watched(Path(folder))
        yield servers
        servers.close()
