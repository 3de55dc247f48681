"""The embedded Redis at unusual places."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import redis

from deputize.orchestrator.redis_server import prepare
from deputize.shared.errors import Misconfigured
from tests.processes.redis_server import RedisProcess


@pytest.mark.parametrize("folder", ["plain", "a b \"c\" 'd' \\ # ü%41"])
def test_it_listens_on_a_socket_in_any_folder_and_on_no_port(folder: str) -> None:
    with tempfile.TemporaryDirectory() as short:  # a socket's path is bounded, and pytest's folders have long names
        server = RedisProcess(Path(short) / folder)
        with closing(server), redis.Redis.from_url(server.url) as client:
            assert client.config_get("port") == {"port": "0"}
            assert client.config_get("dir") == {"dir": str(Path(short) / folder)}


@pytest.mark.requirement("P-16")
def test_what_it_answered_is_on_the_disk(redis_process: RedisProcess) -> None:
    """With ``everysec``, a server that is killed while a sync is slow has answered what it has not yet written."""
    with redis.Redis.from_url(redis_process.url) as client:
        assert {"appendonly": "yes", "appendfsync": "always"}.items() <= client.config_get("append*").items()
        client.set("deputize:test", "kept")
        redis_process.kill()
        redis_process.start()
        assert client.get("deputize:test") == b"kept"


def test_where_a_sockets_path_would_be_too_long_it_listens_in_a_private_folder_elsewhere(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path / ("x" * 100))
    place = Path(server.url.removeprefix("unix://")).parent
    with closing(server), redis.Redis.from_url(server.url) as client:
        assert client.config_get("port") == {"port": "0"}
        assert place.stat().st_mode & 0o777 == 0o700
        assert tmp_path not in place.parents
    server.embedded.clear()
    assert not place.exists()


def test_a_folder_that_others_may_use_holds_no_socket(tmp_path: Path) -> None:
    """Another user may have made it before us, to read what goes through it."""
    embedded = prepare(tmp_path / ("x" * 100))
    place = Path(embedded.url.removeprefix("unix://")).parent
    place.chmod(0o755)
    with pytest.raises(Misconfigured, match="open to others"):
        prepare(tmp_path / ("x" * 100))
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(Misconfigured, match="open to others"):
        prepare(tmp_path / ("x" * 100))
    place.unlink()
