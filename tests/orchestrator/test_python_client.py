"""`Orchestrator` over the service that DEPUTIZE_URL names: the same verbs, our own errors, callbacks of both kinds."""

from __future__ import annotations

import asyncio

import pytest

from deputize import Orchestrator
from deputize.shared.errors import Invalid
from deputize.shared.events import Envelope
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import settings
from tests.waiting import until


async def finish(service: FakeService, number: int) -> None:
    await until(lambda: service.following == number)
    for id in list(service.runs):
        service.finish(id, summary=f"did {service.runs[id].request.task}")


async def test_the_named_service_does_the_work_and_async_callbacks_are_awaited(url: str, service: FakeService) -> None:
    heard: list[str] = []

    async def hear(envelope: Envelope) -> None:
        await asyncio.sleep(0)
        heard.append(envelope.event.type)

    async with Orchestrator(settings(url=url)) as deputies:
        finishing = asyncio.create_task(finish(service, 1))
        result = await deputies.delegate("one", on_event=hear)
        await finishing
        assert (result.summary, heard) == ("did one", ["run_queued", "run_finished"])
        finishing = asyncio.create_task(finish(service, 2))
        both = await deputies.gather(["two", "three"], on_event=lambda envelope: heard.append("plain"))
        await finishing
        assert [each.summary for each in both] == ["did two", "did three"]
        assert heard.count("plain") == 4


async def test_a_wrong_field_is_our_own_refusal_and_names_it(url: str, service: FakeService) -> None:
    async with Orchestrator(settings(url=url)) as deputies:
        with pytest.raises(Invalid, match="did you mean 'limits'") as refused:
            await deputies.start("x", limit={})
        assert refused.value.errors[0]["pointer"] == "/limit"
    assert service.runs == {}


async def test_after_its_block_it_refuses_and_starts_nothing(url: str, service: FakeService) -> None:
    async with Orchestrator(settings(url=url)) as deputies:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        await deputies.delegate("x")
    assert service.runs == {}
