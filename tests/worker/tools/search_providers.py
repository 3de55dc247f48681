"""Search providers: their settings, what they were asked, and their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from deputize.shared.errors import ToolError
from deputize.shared.settings import Settings, ToolSettings
from deputize.worker.tools.base import ToolResult
from deputize.worker.tools.web_search import WebSearch
from tests.internet import PUBLIC, Internet, response
from tests.toolbench import Toolbench

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
