"""What of a run with checks reaches its repository: what they have seen, if it is what the request requires."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict
from tests.network.git_server import git, make_repository
from tests.runs.bench import Bench, call, open_bench, say, script

FILES = {"app.py": "one\n", "tests/test_app.py": "old\n"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES)


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        yield bench


async def run(bench: Bench, source: Path, command: str, **fields: Any) -> ToolAgentResult:
    model = script(source.parent, [call("bash", command=command)], [say("done")])
    asked = {"workspace": {"kind": "git", "url": str(source)}, "verify": ["true"], "max_verify_rounds": 0}
    return await bench.run(model=model, **asked | fields)


def branches(source: Path) -> list[str]:
    return git(source, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


async def test_what_falls_short_is_delivered_neither_at_the_end_nor_later(
    bench: Bench, source: Path, redis_url: str
) -> None:
    result = await run(bench, source, "echo two >> app.py", deliver={}, require="verified")
    assert (result.success, branches(source)) == (False, ["main"])
    why = "nothing was delivered: the verdict is passed, and verified is required"
    assert any(error.startswith(why) for error in result.errors)
    async with open_service(bench.settings, redis_url) as service:
        with pytest.raises(Conflict, match=why):
            await service.deliver(result.delegation_id)
    assert branches(source) == ["main"]
    assert (await run(bench, source, "echo two >> app.py", deliver={})).success
    assert len(branches(source)) == 2
