"""The service from Python, with a stack of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from orchestrator import Orchestrator
from shared.delegation import DelegationRequest
from shared.errors import Invalid
from shared.events import Envelope, ErrorSeen, Replied, RunFinished, TextDelta
from shared.settings import Settings
from tests.running import call, say, script

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(environ={}, home=tmp_path / "home", model="scripted", scripts=tmp_path)


@pytest.mark.requirement("P-22")
async def test_delegate_gather_and_follow(settings: Settings, tmp_path: Path) -> None:
    write = call("write_file", path="a.txt", content="a")
    model = script(tmp_path, {"blocks": [say("I write."), write], "delay": 0.5}, [say("Done.")])
    gone = script(tmp_path, {"blocks": [], "faults": [{"kind": "unavailable", "message": "away"}]})
    heard: list[Envelope] = []
    async with Orchestrator(settings) as deputies:
        result = await deputies.delegate("do it", model=model, on_event=heard.append)
        assert (result.summary, result.files_modified) == ("Done.", ["a.txt"])
        kept = {envelope.seq: envelope for envelope in await deputies.service.events(result.delegation_id)}
        assert {envelope.seq: envelope for envelope in heard if envelope.seq} == kept
        texts = [envelope.event.text for envelope in heard if isinstance(envelope.event, TextDelta)]
        assert "".join(texts) == "I write.Done."
        assert [e.event.text for e in heard if isinstance(e.event, Replied)] == ["I write.", "Done."]

        both = await deputies.gather([DelegationRequest(task="one", model=model), "two"], model=model)
        assert [each.summary for each in both] == ["Done.", "Done."]

        failed = await deputies.delegate("do it", model=gone, on_event=heard.append)
        assert failed.termination_reason == "model_unavailable"
        errors = [envelope.event for envelope in heard if isinstance(envelope.event, ErrorSeen)]
        assert [error.message for error in errors] == failed.errors

        started = await deputies.start("do it", model=model)
        async with aclosing(deputies.follow(started.id)) as events:
            seen = [envelope.event async for envelope in events]
        assert isinstance(seen[-1], RunFinished)

        with pytest.raises(Invalid, match="does not exist"):
            await deputies.start("do it", workspace=tmp_path / "none")


async def test_giving_up_the_wait_does_not_give_up_the_work(settings: Settings, tmp_path: Path) -> None:
    async with Orchestrator(settings) as deputies:
        model = script(tmp_path, {"blocks": [say("Done.")], "delay": 0.3})
        started = await deputies.start("do it", model=model)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(deputies.result(started.id), 0.05)
        assert (await deputies.result(started.id)).summary == "Done."
