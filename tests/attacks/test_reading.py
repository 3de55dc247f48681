"""What a model cannot read with commands: the worker's secrets, the machine's files, other runs, Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from deputize.worker.sandbox.environment import OFFLINE, VARIABLES
from tests.attacks.stage import DOORS, Stage

pytestmark = pytest.mark.system
each_door = pytest.mark.parametrize("door", DOORS)
PREFIXES = ("", "/proc/1/root", "/proc/self/root/proc/2/root", "/oldroot", "/newroot/../oldroot", "/workspace/../..")
MEMORY = r"""
import re, os, glob
found = set()
for folder in glob.glob("/proc/[0-9]*"):
    try:
        areas = [line.split()[0] for line in open(folder + "/maps") if " r" in line]
        memory = open(folder + "/mem", "rb", 0)
    except OSError:
        continue
    for area in areas:
        begin, end = (int(each, 16) for each in area.split("-"))
        try:
            memory.seek(begin)
            found |= set(re.findall(rb"canary-[a-z]+-[0-9a-f]{24}", memory.read(end - begin)))
        except (OSError, OverflowError, ValueError):
            pass
print(sorted(found))
"""
REDIS = r"""
import socket, sys
path, port = sys.argv[1], int(sys.argv[2])
unix = [(socket.AF_UNIX, each) for each in (path, "\0" + path, "/proc/1/root" + path)]
inet = [(socket.AF_INET, (host, port)) for host in ("127.0.0.1", "0.0.0.0", "10.0.0.1")]
for family, address in [*unix, *inet, (socket.AF_INET6, ("::1", port)), (socket.AF_INET6, ("::ffff:127.0.0.1", port))]:
    try:
        with socket.socket(family) as client:
            client.settimeout(2)
            client.connect(address)
            client.sendall(b"SET deputize:test:attacked 1\r\nGET deputize:test:mark\r\n")
            print("connected", client.recv(1000))
    except OSError as error:
        print(type(error).__name__)
"""


def private_paths(stage: Stage) -> list[Path]:
    server = Path(stage.url.removeprefix("unix://"))
    own = [stage.private_file, stage.settings.home, server.parent / "redis.conf", stage.files_of(stage.victim)]
    return [*own, Path(f"/proc/{stage.pid}/environ"), Path("/etc/shadow"), Path("/run/secrets"), Path("/var/run")]


@each_door
async def test_no_file_of_the_machine_is_there_under_any_name(stage: Stage, door: str) -> None:
    names = " ".join(f"{prefix}{path}" for path in private_paths(stage) for prefix in PREFIXES)
    each = 'cat "$name" || ls -A "$name" || continue; echo "READ $name"'
    assert await stage.shell(f"for name in {names}; do {each}; done 2>/dev/null; echo tried", door=door) == ["tried"]


@each_door
async def test_no_environment_and_no_memory_within_sight_holds_a_secret(stage: Stage, door: str) -> None:
    environ, memory = await stage.shell(
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | cut -d= -f1 | sort -u | xargs; cat /proc/1/environ | wc -c",
        f"python3 - <<'END'\n{MEMORY}\nEND",
        door=door,
    )
    names, size = environ.splitlines()[:2]
    assert {*names.split()} <= {*VARIABLES, *OFFLINE, "PATH", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert size == "0"
    assert memory.splitlines()[0] == "[]"


@each_door
async def test_no_process_of_the_worker_or_of_another_run_is_within_sight(stage: Stage, door: str) -> None:
    (seen,) = await stage.shell("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; kill -9 -1; kill -9 2 3; true", door=door)
    assert "deputize" not in seen
    assert "python -m" not in seen
    assert (stage.files_of(stage.victim) / "begun").exists()
    assert Path(f"/proc/{stage.pid}").exists()


@each_door
async def test_redis_cannot_be_reached(stage: Stage, door: str) -> None:
    path = stage.url.removeprefix("unix://")
    (said,) = await stage.shell(f"python3 - {path} {stage.port} <<'END'\n{REDIS}\nEND", door=door)
    assert {*said.split()} <= {"FileNotFoundError", "ConnectionRefusedError", "OSError", "TimeoutError"}, said
    assert len(said.split()) == 8
    with redis.Redis.from_url(stage.url) as client:
        assert client.get("deputize:test:attacked") is None


@each_door
async def test_no_network_leads_out(stage: Stage, door: str) -> None:
    hosts = (
        "tcp/169.254.169.254/80",
        "tcp/fd00:ec2::254/80",
        "udp/1.1.1.1/53",
        "tcp/93.184.215.14/443",
        "tcp/localhost/22",
    )
    lines = [f"timeout 5 bash -c 'echo x > /dev/{host}' 2>/dev/null && echo reached {host}" for host in hosts]
    look_up = (
        "getent hosts example.com || python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)' 2>&1 | tail -1"
    )
    (said,) = await stage.shell("; ".join([*lines, look_up]), door=door)
    assert "reached" not in said
    assert "socket.gaierror" in said
