"""The embedded Redis at unusual places."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import redis

from deputize.orchestrator.redis_server import (
    MOST_KEPT,
    MOST_REWRITTEN,
    check_room,
    prepare,
    rewrite,
    should_rewrite,
)
from deputize.shared.errors import Misconfigured, OutOfSpace
from tests.processes.redis_server import RedisProcess
from tests.waiting import until


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


async def test_it_writes_its_log_anew_once_it_has_doubled_where_the_disk_takes_a_second_one(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    (tmp_path / "appendonlydir").mkdir()
    with (
        (tmp_path / "appendonlydir/1.incr.aof").open("wb") as log,
        (tmp_path / "appendonlydir/1.base.rdb").open("wb") as base,
    ):
        assert not should_rewrite(tmp_path)  # it is short
        log.truncate(MOST_REWRITTEN)  # none of it is written
        assert should_rewrite(tmp_path)
        base.truncate(2 * MOST_REWRITTEN)
        assert not should_rewrite(tmp_path)  # it has not doubled
        log.truncate(1 << 50)
        assert not should_rewrite(tmp_path)  # there is no room
    with redis.Redis.from_url(redis_process.url) as client:
        assert client.config_get("auto-aof-rewrite-percentage") == {"auto-aof-rewrite-percentage": "0"}
        for number in range(1000):
            client.set("deputize:test", "x" * number)
        written = client.info("persistence")["aof_current_size"]
        await rewrite(redis_process.url)
        await rewrite(redis_process.url)  # it is being written, or short
        await until(lambda: client.info("persistence")["aof_current_size"] < written)


def test_what_would_take_the_room_that_running_delegations_need_is_refused(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    check_room(tmp_path, free)  # the record's store is elsewhere
    (tmp_path / "redis").mkdir()
    check_room(tmp_path, 0)
    with pytest.raises(OutOfSpace, match=f"no space left at {tmp_path}; free some"):
        check_room(tmp_path, free)


def test_what_accepted_delegations_will_still_write_counts(tmp_path: Path) -> None:
    space = os.statvfs(tmp_path)
    kept = min(space.f_blocks * space.f_frsize // 4, MOST_KEPT)
    fits = space.f_bavail * space.f_frsize - kept - MOST_KEPT // 2
    (tmp_path / "redis").mkdir()
    check_room(tmp_path, fits)
    log = tmp_path / "redis" / "appendonlydir" / "appendonly.aof"
    log.parent.mkdir()
    with log.open("xb") as file:
        file.truncate(4 * MOST_KEPT)  # sparse: it takes no space
    with pytest.raises(OutOfSpace):
        check_room(tmp_path, fits)
