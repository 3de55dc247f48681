"""`Orchestrator` over the service that DEPUTIZE_URL names: the same verbs, our own errors, callbacks of both kinds."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from deputize import Orchestrator
from deputize.shared.errors import Conflict, Invalid, Misconfigured, NotFound
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

    async with Orchestrator(settings(url=url)) as orchestrator:
        finishing = asyncio.create_task(finish(service, 1))
        result = await orchestrator.delegate("one", on_event=hear)
        await finishing
        assert (result.summary, heard) == ("did one", ["run_queued", "run_finished"])
        finishing = asyncio.create_task(finish(service, 2))
        both = await orchestrator.gather(["two", "three"], on_event=lambda envelope: heard.append("plain"))
        await finishing
        assert [each.summary for each in both] == ["did two", "did three"]
        assert heard.count("plain") == 4


async def test_a_wrong_field_is_our_own_refusal_and_names_it(url: str, service: FakeService) -> None:
    async with Orchestrator(settings(url=url)) as orchestrator:
        with pytest.raises(Invalid, match="did you mean 'limits'") as refused:
            await orchestrator.start("x", limit={})  # pyright: ignore[reportCallIssue]
        assert refused.value.errors[0]["pointer"] == "/limit"
    assert service.runs == {}


@pytest.mark.parametrize(
    ("field", "suggestion"),
    [
        ({"limits": {"maxturn": 3}}, "limits/maxturn: unknown key 'maxturn'; did you mean 'max_turns'?"),
        ({"expectedoutcom": "x"}, "expectedoutcom: unknown key 'expectedoutcom'; did you mean 'expected_outcome'?"),
        ({"webhook": {"url": "https://a.test", "secretname": "x"}}, "did you mean 'secret_name'?"),
        ({"zzz": 1}, "known keys: task, context, shared_context_length, expected_outcome, "),
    ],
)
async def test_a_misspelt_keyword_is_suggested_in_pythons_spelling(field: Any, suggestion: str) -> None:
    async with Orchestrator(url="http://127.0.0.1:1") as orchestrator:
        with pytest.raises(Invalid, match=re.escape(suggestion)):
            await orchestrator.start("x", **field)


async def test_after_its_block_it_refuses_and_starts_nothing(url: str, service: FakeService) -> None:
    async with Orchestrator(settings(url=url)) as orchestrator:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        await orchestrator.delegate("x")
    assert service.runs == {}


async def test_an_error_while_waiting_names_the_delegation(url: str) -> None:
    async with Orchestrator(url=url) as orchestrator:
        with pytest.raises(NotFound) as unknown:
            await orchestrator.result("dlg_00000000000000000000000000")
        assert unknown.value.delegation_id == "dlg_00000000000000000000000000"


async def test_the_result_of_what_is_paused_is_not_waited_for(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        id = (await orchestrator.start("x")).id
        service.runs[id] = service.runs[id].model_copy(update={"paused": True})
        with pytest.raises(Conflict, match=f"`deputize resume {id}` goes on") as paused:
            await asyncio.wait_for(orchestrator.result(id), 60)
        assert paused.value.delegation_id == id
    await until(lambda: service.following == 0)


async def test_when_one_of_several_waits_fails_the_others_end_too(url: str, service: FakeService) -> None:
    def hear(envelope: Envelope) -> None:
        if envelope.event.type == "run_finished":
            raise ValueError("of the callback")

    async with Orchestrator(url=url) as orchestrator:
        waiting = asyncio.create_task(orchestrator.gather(["one", "two"], on_event=hear))
        await until(lambda: service.following == 2)
        service.finish(next(iter(service.runs)))
        with pytest.raises(ValueError, match="of the callback"):
            await waiting
        await until(lambda: not service.following)


async def test_settings_and_an_address_beside_them_are_refused() -> None:
    with pytest.raises(Misconfigured, match="give them alone"):
        Orchestrator(settings(), url="http://127.0.0.1:1")
