"""What Celery's own tools do to delegations, and what the queue bears."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from deputize.shared.queue import QUEUE, create_app
from deputize.shared.runs.keys import KEY_PREFIX
from tests.runs.bench import call, say, script
from tests.runs.celery_events import Events
from tests.runs.fleet import Fleet

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
CELERY = (str(Path(sys.executable).with_name("celery")), "-A", "deputize.shared.queue:app")
JUNK = (b"no json", b"null", b"[]", b"{}", b'{"body": 1}', b"\xff", b"[" * 5000, b'{"properties": {"delivery_tag": 1}}')


def celery(*arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "DEPUTIZE_REDIS_URL": url}
    return subprocess.run([*CELERY, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60)


async def test_to_revoke_or_terminate_is_to_cancel_and_flower_sees_what_did_not_succeed(
    fleet: Fleet, tmp_path: Path
) -> None:
    await fleet.start("1", "--concurrency", "1")
    model = script(tmp_path, [call("bash", command="exec sleep 1000")], [say("done")])
    running, waiting = await fleet.hand_over(model=model), await fleet.hand_over(model=model)
    await fleet.until_event(running, "step_started")
    url = fleet.settings.redis_url or ""
    app = create_app(fleet.settings, url)
    with Events(app) as events:
        assert celery("control", "revoke", waiting, url=url).returncode == 0
        assert (await fleet.result(waiting)).termination_reason == "cancelled"
        assert celery("control", "terminate", "SIGTERM", running, url=url).returncode == 0
        assert (await fleet.result(running)).termination_reason == "cancelled"
        failed = events.wait_for("task-failed", running)
    app.close()
    assert failed["exception"] == "Unsuccessful('– cancelled (cancelled)')"
    assert failed["traceback"] == ""


async def test_an_entry_of_the_queue_that_is_no_ticket_is_dropped(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start("1")
    with redis.Redis.from_url(fleet.settings.redis_url or "") as client:
        for junk in JUNK:
            client.lpush(KEY_PREFIX + QUEUE, junk)
    result = await fleet.run(model=script(tmp_path, [say("done")]))
    assert result.success
    assert fleet.workers["1"].poll() is None
    assert "is not a ticket and is dropped" in (fleet.settings.home / "worker-1.log").read_text()


def test_celerys_own_worker_command_refuses_with_one_line(redis_url: str) -> None:
    done = celery("worker", url=redis_url)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "deputize worker" in done.stderr


def test_celerys_tools_say_what_to_set() -> None:
    done = celery("inspect", "ping")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "DEPUTIZE_REDIS_URL" in done.stderr
