"""What sandboxes get of a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.process import LONG_RUNNING_NICENESS, NICENESS
from tests.worker.forked import need_root
from tests.worker.sandbox.sandboxes import bash, said

pytestmark = pytest.mark.requirement("P-03")
UNTIL_LATER = f"until [ $(nice) = {LONG_RUNNING_NICENESS} ]; do sleep 0.02; done"
SESSION = Path("/proc/self/autogroup")


async def test_a_command_begins_after_the_worker_and_goes_after_the_others_when_it_takes_long(
    sandbox: Bubblewrap,
) -> None:
    assert await said(sandbox, f"nice; {UNTIL_LATER}; nice") == f"{NICENESS}\n{LONG_RUNNING_NICENESS}"


async def test_what_left_the_commands_process_group_goes_after_the_others_too(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash(f"setsid sh -c '{UNTIL_LATER}; nice' & timeout 15 sh -c '{UNTIL_LATER}; nice'; wait"))
    assert (done.exit_code, done.stdout.split()) == (0, [b"15", b"15"])


@pytest.mark.skipif(not SESSION.exists(), reason="this kernel has no autogroups")
async def test_the_session_of_a_command_goes_after_the_workers(sandbox: Bubblewrap) -> None:
    need_root()
    assert (await said(sandbox, "cat /proc/self/autogroup")).endswith(f"nice {NICENESS}")
    assert (await said(sandbox, f"{UNTIL_LATER}; cat /proc/self/autogroup")).endswith(f"nice {LONG_RUNNING_NICENESS}")
