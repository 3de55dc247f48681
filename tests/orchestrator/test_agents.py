"""`agent` in a request to the service: filled in before it is kept, refused where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.orchestrator.client import Client
from deputize.orchestrator.delegations import open_service
from deputize.shared.errors import Invalid, KeyReused
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import AgentSettings, Settings
from tests.orchestrator.serving import served


async def test_a_client_names_an_agent_and_the_service_fills_it_in(redis_url: str, tmp_path: Path) -> None:
    agents = {"reviewer": AgentSettings(system_prompt="You review.", limits={"max_turns": 7}, tools=["read_file"])}
    settings = Settings(redis_url=redis_url, home=tmp_path, agents=agents)
    async with open_service(settings, redis_url) as service, served(service) as url, Client(url) as client:
        asked = DelegationRequest(task="t", agent="reviewer", limits=Limits(max_tool_calls=9))
        for kept in ((await client.create(asked)).delegation, *(await client.create_many([asked]))):
            assert (kept.request.system_prompt, kept.request.tools) == ("You review.", ["read_file"])
            assert (kept.effective_limits.max_turns, kept.effective_limits.max_tool_calls) == (7, 9)
            await client.cancel(kept.id)
        with pytest.raises(Invalid, match=r"no agent 'revewer'; did you mean reviewer\?") as refused:
            await client.create_many([asked, DelegationRequest(task="t", agent="revewer")])
        assert [error["pointer"] for error in refused.value.errors] == ["/requests/1/agent"]


async def test_a_repeated_request_is_recognized_after_its_agent_has_changed(redis_url: str, tmp_path: Path) -> None:
    """What the caller sent is compared: the settings of agents are the operator's, and may change at any time."""
    asked = DelegationRequest(task="t", agent="reviewer", idempotency_key="k")
    for prompt, replayed in (("You review.", False), ("You review twice.", True)):
        agents = {"reviewer": AgentSettings(system_prompt=prompt, limits={"max_turns": 7})}
        settings = Settings(redis_url=redis_url, home=tmp_path, agents=agents)
        async with open_service(settings, redis_url) as service:
            accepted = await service.create(asked)
            assert (accepted.replayed, accepted.delegation.request.system_prompt) == (replayed, "You review.")
            with pytest.raises(KeyReused):  # what it left open its agent had filled in otherwise
                await service.create(asked.model_copy(update={"limits": Limits(max_turns=30)}))
