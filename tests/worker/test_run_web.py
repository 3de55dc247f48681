"""Whole runs that use the web: what the policy lets through, and what the model reads where it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import StepStatus
from deputize.shared.events import RunStarted
from deputize.shared.request import ApprovalMode
from tests.network.internet import redirect, response
from tests.runs.bench import call, open_bench, say, script
from tests.worker.web.servers import Talk, saying, serving

PAGE = saying(response("<h1>Guide</h1><p>Use <code>delegate()</code>.</p>"))


async def fetched(
    redis_url: str, home: Path, talk: Talk, *, allowed: list[str], mode: str = "sandboxed", url: str = "http://{at}/"
) -> Any:
    """The step of a web_fetch of this server, in a run of its own with the default kit."""
    async with serving(talk) as at:
        tools = {"private_hosts": [at], "allowed_hosts": allowed}
        async with open_bench(redis_url, home / "home", tools=tools) as bench:
            model = script(home, [call("web_fetch", url=url.format(at=at))], [say("done")])
            result = await bench.run(model=model, approval_mode=ApprovalMode(mode))
            assert result.success
            started = [e.event for e in await bench.events(result.delegation_id) if isinstance(e.event, RunStarted)]
            assert "web_fetch" in started[0].tools
            (step,) = await bench.steps(result)
            return step


@pytest.mark.requirement("S001-002", "S003-040", "S004-020")
@pytest.mark.parametrize(("allowed", "mode"), [(["local*"], "sandboxed"), (["LOCALHOST"], "ask"), ([], "auto")])
async def test_an_allowed_host_is_fetched(redis_url: str, tmp_path: Path, allowed: list[str], mode: str) -> None:
    step = await fetched(redis_url, tmp_path, PAGE, allowed=allowed, mode=mode)
    assert (step.status, step.result) == (StepStatus.COMPLETED, "# Guide\n\nUse `delegate()`.")
    assert step.title.startswith("Fetched http://localhost:")


@pytest.mark.parametrize(("allowed", "mode"), [(["docs.example"], "sandboxed"), ([], "ask"), (["*"], "readOnly")])
async def test_another_host_is_not_and_the_model_learns_what_would_allow_it(
    redis_url: str, tmp_path: Path, allowed: list[str], mode: str
) -> None:
    step = await fetched(redis_url, tmp_path, PAGE, allowed=allowed, mode=mode)
    assert step.status is StepStatus.FAILED
    assert step.error.startswith("denied: ")
    if mode == "readOnly":
        assert "read-only" in step.error
    else:
        assert step.error.startswith("denied: web_fetch connects to localhost. ")
        assert "DEPUTIZE_TOOLS_ALLOWED_HOSTS" in step.error
        assert "approvalMode auto" in step.error


async def test_an_allowed_host_does_not_lead_to_another_one(redis_url: str, tmp_path: Path) -> None:
    """Whatever may be fetched: a redirect cannot widen it."""
    step = await fetched(redis_url, tmp_path, saying(redirect("http://docs.example/")), allowed=["localhost"])
    assert step.status is StepStatus.FAILED
    assert "It redirects to http://docs.example/ on another site; call web_fetch with that URL" in step.error


@pytest.mark.parametrize(
    ("url", "host"), [("http://localhost@docs.example/", ""), ("http://localhost.docs.example/", "docs.example")]
)
async def test_a_host_that_only_looks_allowed_is_not(redis_url: str, tmp_path: Path, url: str, host: str) -> None:
    step = await fetched(redis_url, tmp_path, PAGE, allowed=["localhost"], url=url)
    assert step.status is StepStatus.FAILED
    assert ("denied: " in step.error) == bool(host)


async def test_in_every_mode_this_machine_is_out_of_reach(redis_url: str, tmp_path: Path) -> None:
    step = await fetched(redis_url, tmp_path, PAGE, allowed=["*"], mode="auto", url="http://127.0.0.1:8080/")
    assert step.error == (
        "http://127.0.0.1:8080/ cannot be fetched: 127.0.0.1 is not an allowed target: it is a loopback address. "
        "Only public pages can be fetched, and private hosts that the operator has listed in private_hosts."
    )


async def test_pages_asked_for_in_one_turn_are_fetched_side_by_side(redis_url: str, tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await both.wait()  # each answer waits for the other request
        writer.write(response("a page", "text/plain"))

    async with serving(talk) as at:
        tools = {"private_hosts": [at], "allowed_hosts": ["localhost"]}
        async with open_bench(redis_url, tmp_path / "home", tools=tools) as bench:
            calls = [call("web_fetch", url=f"http://{at}/{name}") for name in "ab"]
            result = await bench.run(model=script(tmp_path, calls, [say("done")]))
            assert [step.result for step in await bench.steps(result)] == ["a page", "a page"]


@pytest.mark.requirement("S001-051")
async def test_a_long_page_is_cut_for_the_model_and_kept_whole_for_its_tools(redis_url: str, tmp_path: Path) -> None:
    words = "".join(f"<p>paragraph {number}</p>" for number in range(5000))
    async with serving(saying(response(words))) as at:
        tools = {"private_hosts": [at], "allowed_hosts": ["localhost"]}
        async with open_bench(redis_url, tmp_path / "home", tools=tools) as bench:
            asked = [call("web_fetch", url=f"http://{at}/")], [call("grep", pattern="paragraph 4999", path=".deputize")]
            result = await bench.run(model=script(tmp_path, *asked, [say("done")]))
            page, found = await bench.steps(result)
    assert len(page.result) < 9000
    assert '<system_hint type="tool_output_omitted" tool="web_fetch" reason="too_long"' in page.result
    assert "paragraph 4999" in found.result
