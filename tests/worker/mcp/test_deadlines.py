"""How long a server is waited for, and what is said of filters that fit nothing."""

from __future__ import annotations

import asyncio

from deputize.shared.errors import ErrorType
from tests.toolbench import Toolbench
from tests.worker.mcp.entries import raw
from tests.worker.mcp.opening import opened


async def test_news_put_off_the_end_of_a_call(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw(idleSeconds=1)}) as found:
        assert (await found.call("mcp__raw__tick", times=25)).content == "ticked"


async def test_a_call_may_take_no_longer_than_the_file_says_whatever_it_reports(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw(callSeconds=0.5)}) as found:
        result = await found.call("mcp__raw__tick", times=1000)
    assert result.error_type is ErrorType.TIMEOUT
    assert "it took more than 0.5 seconds" in (result.error or "")


async def test_a_server_that_does_not_list_its_tools_is_not_waited_for(desk: Toolbench) -> None:
    async with asyncio.timeout(20), opened(desk, {"mute": raw("mute"), "raw": raw()}, seconds=3) as found:
        assert found.notes()[0] == "asked for its tools"
        assert found.missing == ["mcp__mute__"]
        assert "it did not list its tools within" in found.warnings[0]
        assert "mcp__raw__echo" in found.tools


async def test_a_server_is_waited_for_as_long_as_its_own_entry_says(desk: Toolbench) -> None:
    servers = {"deaf": raw("deaf", connectSeconds=1), "raw": raw(connectSeconds=60)}
    async with asyncio.timeout(15), opened(desk, servers, seconds=0.001) as found:
        assert "it did not answer within 1 seconds" in found.warnings[0]
        assert "mcp__raw__echo" in found.tools


async def test_patterns_that_fit_no_tool_are_told_of(desk: Toolbench) -> None:
    servers = {"raw": raw(includeTools=["eco", "say*"], excludeTools=["say mch"], trust=["di"], timeot=3, envFile="x")}
    async with opened(desk, servers) as found:
        assert [*found.tools] == [f"mcp__raw__say_{what}" for what in ("much", "too_much", "nothing")]
    for said in (
        "list of allowed tools names 'eco', which is none of its tools; did you mean 'echo'?",
        "list of denied tools names 'say mch', which is none of its tools; did you mean 'say much'?",
        "trust names 'di', which is none of its tools; did you mean 'die'?",
        "its key timeot is not known and has no effect; did you mean timeout?",
        "its key envFile is not known and has no effect; did you mean env?",
    ):
        assert len([warning for warning in found.warnings if said in warning]) == 1, said
    assert len(found.warnings) == 5
