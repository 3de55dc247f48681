"""The limits of a command: settings, and of memory what is used, not what is reserved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deputize.shared.settings import SandboxSettings
from deputize.worker.sandbox.usage import Usage, usages
from tests.waiting import until
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over

LIMITS = SandboxSettings(memory_bytes=256 << 20, file_bytes=2 << 20, processes=32, tmp_bytes=4 << 20)
HOLD = 'python3 -c \'b = bytearray({} << 20); b[::4096] = b[::4096].replace(b"\\0", b"x"); print(1); {}\''
FOREVER = "import signal; signal.pause()"


async def test_a_command_that_takes_too_much_memory_is_killed_and_told(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=LIMITS) as sandbox:
        done = await sandbox.run(bash(HOLD.format(600, FOREVER), 60))
        assert done.exit_code != 0
        assert not done.timed_out
        assert done.stderr.decode().endswith("the limit is 256 MiB (sandbox.memory_bytes); this one had the most]\n")
        assert await said(sandbox, "echo fine") == "fine"


async def test_processes_of_one_command_count_together(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=LIMITS) as sandbox:
        done = await sandbox.run(bash(f"for n in 1 2 3 4; do {HOLD.format(90, FOREVER)} & done; wait", 60))
        assert b"of memory together" in done.stderr


async def test_pages_that_processes_share_count_once(tmp_path: Path) -> None:
    fork = "import os; [os.fork() for _ in range(3)]; import time; time.sleep(0.5)"
    with sandbox_over(tmp_path / "ws", limits=LIMITS) as sandbox:
        done = await sandbox.run(bash(HOLD.format(100, fork)))
        assert (done.exit_code, done.stderr) == (0, b"")


async def test_a_background_command_is_told_in_its_output(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=LIMITS) as sandbox:
        shell = await sandbox.shells.start("hold", bash(HOLD.format(600, FOREVER), 60))
        await until(lambda: not shell.running)
        assert "of memory together" in (await shell.read()).text


@pytest.mark.parametrize(
    "reserve",
    [
        "python3 -c 'import mmap; mmap.mmap(-1, 8 << 30, prot=3); print(1)'",
        "node -e 'new WebAssembly.Memory({initial: 1, maximum: 65536, shared: true}); console.log(1)'",
    ],
)
async def test_address_space_that_is_only_reserved_is_no_memory(reserve: str, tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=LIMITS) as sandbox:
        if sandbox.program(reserve.partition(" ")[0]) is None:
            pytest.skip(f"SKIPPED: {reserve.partition(' ')[0]} is not here")
        assert await said(sandbox, reserve) == "1"


async def test_files_processes_and_tmp_have_the_limits_of_the_settings(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=LIMITS) as sandbox:
        assert (await said(sandbox, "ulimit -u; ulimit -f")).split() == ["32", "2048"]
        assert "No space left" in await said(sandbox, "for n in 1 2 3; do head -c 1900K /dev/zero >/tmp/$n; done")
        await said(sandbox, "truncate -s 3M big; true")
    assert not (tmp_path / "ws/big").exists() or (tmp_path / "ws/big").stat().st_size <= 2 << 20


def test_what_is_gone_holds_nothing() -> None:
    assert usages([0], 0) == [Usage()]
    assert usages([os.getpid()], 1 << 50)[0].memory > 1 << 20
