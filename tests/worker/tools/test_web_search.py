"""web_search: what the providers are asked, what becomes of their answers, and the message when they fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.shared.settings import Settings, ToolSettings
from deputize.worker.toolkit.registry import available_tools, default_kit
from deputize.worker.tools.base import Kind, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.web_search import WebSearch
from tests.network.internet import PUBLIC, Internet, redirect, response
from tests.runs.bench import call, open_bench, say, script
from tests.runs.toolbench import Toolbench
from tests.worker.web.servers import falling_silent, saying, serving

KEY = "brave-secret-key-1234"
SEARXNG: dict[str, Any] = {"search_provider": "searxng", "search_url": "http://search.test/"}
BRAVE: dict[str, Any] = {"search_provider": "brave", "search_key": KEY}
PROVIDERS = pytest.mark.parametrize("provider", [SEARXNG, BRAVE], ids=["searxng", "brave"])

Answer = Callable[[dict[str, str]], bytes]
"""What was asked → the whole response."""


def net(answer: Answer | bytes) -> Internet:
    """Both providers' servers; SearXNG's lies on a private address."""

    def at(host: str, path: str) -> bytes:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        return answer if isinstance(answer, bytes) else answer(asked)

    return Internet({"search.test": [["10.0.0.5"]], "api.search.brave.com": [[PUBLIC]]}, at)


def asked_of(web: Internet) -> list[dict[str, str]]:
    return [{name: values[0] for name, values in parse_qs(urlsplit(path).query).items()} for _, path in web.requested]


async def search(desk: Toolbench, web: Internet, provider: dict[str, Any], /, **arguments: Any) -> ToolResult:
    tool = WebSearch(network=web).configured(Settings(tools=ToolSettings(**provider)))
    assert tool is not None
    try:
        return await tool.run(desk.context(), tool.parse({"query": "how to delegate", **arguments}))
    except ToolError as error:
        return ToolResult.failed(error)


def answered(provider: dict[str, Any], results: list[dict[str, Any]]) -> bytes:
    """The provider's answer with these results, each with title, url, text and when."""
    if provider is SEARXNG:
        hits = [{**hit, "content": hit.get("text"), "publishedDate": hit.get("when")} for hit in results]
        return response(json.dumps({"query": "q", "results": hits}), "application/json")
    hits = [{**hit, "description": hit.get("text"), "page_age": hit.get("when")} for hit in results]
    return response(json.dumps({"type": "search", "web": {"results": hits}}), "application/json")


def numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [{"title": f"Page {n}", "url": f"https://a.example/{n}", "text": "."} for n in range(first, last + 1)]


def pages(provider: dict[str, Any], size: int, most: int) -> Answer:
    """A provider with ``most`` results, ``size`` a page at the most."""

    def answer(asked: dict[str, str]) -> bytes:
        number = int(asked["pageno"]) - 1 if provider is SEARXNG else int(asked["offset"])
        here = min(size, int(asked.get("count", size)))
        return answered(provider, numbered(number * here + 1, min((number + 1) * here, most)))

    return answer


@pytest.mark.requirement("S003-039", "S004-021")
@PROVIDERS
async def test_results_are_a_numbered_list_for_the_model_and_data_for_programs(
    bare_desk: Toolbench, provider: dict[str, Any]
) -> None:
    found = [
        {
            "title": "Delegating &amp; <strong>more</strong>",
            "url": "https://a.example/x?y",
            "text": "How\n<strong>to</strong>  do it",
            "when": "2026-01-31T10:00:00",
        },
        {"title": None, "url": "https://b.example/", "text": None, "when": None},
        {"title": "no way to fetch it", "url": "javascript:alert(1)"},
        {"title": "no address"},
    ]
    result = await search(bare_desk, net(answered(provider, found)), provider)
    assert result.content == (
        "1. Delegating & more\n   https://a.example/x?y\n   2026-01-31 - How to do it\n"
        "2. (no title)\n   https://b.example/"
    )
    assert result.data == [
        {"title": "Delegating & more", "url": "https://a.example/x?y", "snippet": "How to do it", "date": "2026-01-31"},
        {"title": "(no title)", "url": "https://b.example/", "snippet": "", "date": ""},
    ]
    assert (result.title, result.metadata) == (
        "Found 2 results",
        {"query": "how to delegate", "provider": provider["search_provider"], "count": 2, "freshness": "noLimit"},
    )


@pytest.mark.requirement("S003-036")
@pytest.mark.parametrize(
    ("freshness", "searxng", "brave"),
    [
        ("noLimit", None, None),
        ("oneDay", "day", "pd"),
        ("oneWeek", "week", "pw"),
        ("oneMonth", "month", "pm"),
        ("oneYear", "year", "py"),
    ],
)
async def test_the_providers_are_asked_in_their_own_words(
    bare_desk: Toolbench, freshness: str, searxng: str | None, brave: str | None
) -> None:
    web = net(answered(SEARXNG, []))
    await search(bare_desk, web, SEARXNG, freshness=freshness)
    when = {"time_range": searxng} if searxng else {}
    assert asked_of(web) == [{"q": "how to delegate", "format": "json", "pageno": "1", **when}]
    assert (web.requested[0][0], web.requested[0][1].partition("?")[0]) == ("search.test", "/search")

    web = net(answered(BRAVE, []))
    await search(bare_desk, web, BRAVE, freshness=freshness, count=7)
    when = {"freshness": brave} if brave else {}
    assert asked_of(web) == [{"q": "how to delegate", "count": "7", "offset": "0", **when}]
    assert web.requested[0][1].startswith("/res/v1/web/search?")
    assert f"X-Subscription-Token: {KEY}" in web.heads[0]
    assert web.certified == ["api.search.brave.com"]


@pytest.mark.requirement("S003-014", "S003-036")
def test_the_parameters_are_those_of_both_designs() -> None:
    tool = WebSearch()
    assert tool.schema["required"] == ["query"]
    given = tool.schema["properties"]
    assert (given["count"]["default"], given["count"]["minimum"], given["count"]["maximum"]) == (10, 1, 50)
    assert (given["freshness"]["default"], given["freshness"]["enum"]) == (
        "noLimit",
        ["noLimit", "oneDay", "oneWeek", "oneMonth", "oneYear"],
    )
    assert tool.parse({"query": "x", "max_results": 3}) == tool.parse({"query": "x", "count": 3})
    for wrong in ({"count": 0}, {"count": 51}, {"freshness": "today"}, {"query": " "}, {"count": 5, "max_results": 6}):
        with pytest.raises(ToolError) as caught:
            tool.parse({"query": "x", **wrong})
        assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS


@PROVIDERS
@pytest.mark.parametrize(("count", "found"), [(1, 1), (10, 10), (25, 25), (50, 45)])
async def test_as_many_pages_are_asked_for_as_it_takes(
    bare_desk: Toolbench, provider: dict[str, Any], count: int, found: int
) -> None:
    result = await search(bare_desk, net(pages(provider, 20, 45)), provider, count=count)
    assert [hit["url"] for hit in result.data] == [f"https://a.example/{n}" for n in range(1, found + 1)]


@PROVIDERS
async def test_a_provider_that_repeats_itself_is_not_asked_for_ever(
    bare_desk: Toolbench, provider: dict[str, Any]
) -> None:
    web = net(answered(provider, numbered(1, 3)))
    result = await search(bare_desk, web, provider, count=50)
    assert (len(result.data), len(web.requested)) == (3, 2)


async def test_a_later_page_that_fails_leaves_the_ones_before(bare_desk: Toolbench) -> None:
    def answer(asked: dict[str, str]) -> bytes:
        if asked["offset"] == "0":
            return answered(BRAVE, numbered(1, 20))
        return response("{}", "application/json", "429 Too Many Requests")

    result = await search(bare_desk, net(answer), BRAVE, count=30)
    assert (result.success, len(result.data)) == (True, 20)
    assert "(There may be more results: the search provider cannot be used: HTTP 429" in result.content


@PROVIDERS
async def test_nothing_found_is_an_answer(bare_desk: Toolbench, provider: dict[str, Any]) -> None:
    result = await search(bare_desk, net(answered(provider, [])), provider)
    assert (result.success, result.content, result.title) == (
        True,
        "Nothing was found for 'how to delegate'. Try other or fewer words.",
        "Found 0 results",
    )


async def test_engines_that_did_not_answer_are_no_empty_result(bare_desk: Toolbench) -> None:
    content = json.dumps({"results": [], "unresponsive_engines": [["google", "timeout"]]})
    result = await search(bare_desk, net(response(content, "application/json")), SEARXNG)
    assert 'none of its engines answered: [["google", "timeout"]]' in (result.error or "")


FAILURES = [
    (response("{}", "application/json", "401 Unauthorized"), "HTTP 401: it does not accept our key. The operator must"),
    (
        response("{}", "application/json", "422 Unprocessable"),
        "HTTP 422: it does not accept our key. The operator must",
    ),
    (response("{}", "application/json", "429 Too Many"), "HTTP 429: too many requests. Wait"),
    (response("oops", "text/plain", "500 Server Error"), "HTTP 500 - http"),
    (redirect("https://login.example/"), "HTTP 302 - http"),
    (response("<h1>Welcome</h1>", "text/html"), "it answered with text/html instead of a JSON object"),
    (response("[1, 2]", "application/json"), "it answered with application/json instead of a JSON object"),
    (response("[" * 100_000, "application/json"), "instead of a JSON object"),
    (response('{"results"', "application/json"), "instead of a JSON object"),
    (b"no HTTP at all\r\n\r\n", "request failed - "),
]


@PROVIDERS
@pytest.mark.parametrize(("answer", "why"), FAILURES)
async def test_a_provider_that_fails_is_an_error_that_suggests_what_to_do(
    bare_desk: Toolbench, provider: dict[str, Any], answer: bytes, why: str
) -> None:
    result = await search(bare_desk, net(answer), provider)
    assert result.error_type is ErrorType.EXECUTION_FAILED
    assert result.error is not None
    assert result.error.startswith("the search provider cannot be used: ")
    assert why in result.error
    assert result.error.endswith("Go on without web_search.")
    assert KEY not in result.for_model


@PROVIDERS
@pytest.mark.parametrize(
    "content",
    [{}, {"results": None, "web": None}, {"results": {}, "web": []}, {"results": [1, None, []], "web": {"results": 5}}],
)
async def test_answers_of_another_shape_hold_no_results(
    bare_desk: Toolbench, provider: dict[str, Any], content: dict[str, Any]
) -> None:
    result = await search(bare_desk, net(response(json.dumps(content), "application/json")), provider)
    assert result.content.startswith("Nothing was found")


async def test_a_searxng_that_forbids_json_is_an_error_that_names_the_setting_to_add(bare_desk: Toolbench) -> None:
    result = await search(bare_desk, net(response("", "text/html", "403 Forbidden")), SEARXNG)
    assert "The operator must add json to search.formats in its settings.yml" in (result.error or "")


async def test_a_key_that_is_repeated_by_the_provider_is_not_repeated_by_us(bare_desk: Toolbench) -> None:
    body = json.dumps({"error": {"detail": f"the token {KEY} is invalid"}})
    result = await search(bare_desk, net(response(body, "application/json", "401 Unauthorized")), BRAVE)
    assert not result.success
    assert KEY not in result.for_model + result.title + str(result.metadata)


@pytest.mark.parametrize("query", ["x" * 401, "word " * 51])
async def test_a_query_too_long_for_the_provider_is_reported(bare_desk: Toolbench, query: str) -> None:
    result = await search(bare_desk, net(b""), BRAVE, query=query)
    assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
    assert result.error == "query is too long: this provider takes 400 characters and 50 words. Shorten it."


async def test_a_provider_that_does_not_answer_is_left_at_the_time_limit(bare_desk: Toolbench) -> None:
    async with serving(falling_silent(b"HTTP/1.1 200 OK\r\n")) as at:
        settings = ToolSettings(search_provider="searxng", search_url=f"http://{at}")
        tool = WebSearch(settings, seconds=0.3)
        with pytest.raises(ToolError, match=r"did not answer within 0\.3 seconds") as caught:
            await tool.run(bare_desk.context(), tool.parse({"query": "x"}))
    assert caught.value.type is ErrorType.TIMEOUT


def offers(**tools: Any) -> list[str]:
    settings = Settings(tools=ToolSettings(**tools))
    kit = default_kit(settings)
    return [tool.name for tool in available_tools(settings) if tool.name == "web_search" and tool.name in kit]


@pytest.mark.requirement("S003-039")
def test_without_a_provider_there_is_no_web_search() -> None:
    assert "web_search" not in [tool.name for tool in available_tools(Settings())]
    assert "web_search" in [tool.name for tool in available_tools(Settings(tools=ToolSettings(**BRAVE)))]
    assert "web_search" not in [
        tool.name for tool in available_tools(Settings(tools=ToolSettings(**BRAVE, enable_web=False)))
    ]
    assert offers(**BRAVE) == []
    assert offers(**BRAVE, enable_web=True) == ["web_search"]
    assert offers(enable_web=True) == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"search_provider": "searxng"}, "needs search_url"),
        ({"search_provider": "searxng", "search_url": "search.test"}, "search_url 'search.test/search': only http"),
        ({"search_provider": "brave"}, "needs search_key"),
    ],
)
def test_half_a_configuration_is_the_operators_to_mend(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        available_tools(Settings(tools=ToolSettings(**settings)))


@pytest.mark.requirement("S004-021")
def test_it_searches_and_names_the_provider() -> None:
    tool = WebSearch(ToolSettings(**BRAVE))
    assert (tool.kind, tool.effect, tool.trusted) == (Kind.SEARCH, "pure", True)
    assert tool.touches(tool.parse({"query": "x"})).hosts == ("api.search.brave.com",)
    assert "web_search" in [tool.name for tool in BUILTIN]


@pytest.mark.requirement("S003-039")
async def test_in_a_run_it_needs_nobodys_approval_and_the_key_stays_with_us(redis_url: str, tmp_path: Path) -> None:
    found = [{"title": f"about {KEY}", "url": "https://a.example/", "text": "how"}]
    async with serving(saying(answered(BRAVE, found))) as at:
        tools = {**BRAVE, "search_url": f"http://{at}/search"}
        async with open_bench(redis_url, tmp_path / "home", tools=tools) as bench:
            model = script(tmp_path, [call("web_search", query="how")], [say("found")])
            result = await bench.run(model=model, tools=["web_search"])
            assert (result.success, result.errors) == (True, [])
            events = "".join(envelope.model_dump_json() for envelope in await bench.events(result.delegation_id))
    assert "about ***" in events
    assert KEY not in events
