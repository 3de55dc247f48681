"""Web search providers: one interface, one class per provider, all over guarded connections."""

from __future__ import annotations

import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

import httpx2

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.settings import ToolSettings
from ...shared.text import clip
from .dial import GuardedTransport, Network, read_trust_store
from .fetch import WebPage, fetch
from .targets import ForbiddenTarget, target

Freshness = Literal["noLimit", "oneDay", "oneWeek", "oneMonth", "oneYear"]
BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
BRAVE_PAGE = 20
BRAVE_CHARS, BRAVE_WORDS = 400, 50
MAX_TITLE, MAX_SNIPPET, MAX_URL = 200, 400, 2000
MAX_READ = 10_000
"""Characters of any text of a result that are read."""
_TAG = re.compile(r"<[^<>]{0,200}>")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search request. ``count`` is the number of results wanted in total."""

    query: str
    count: int
    freshness: Freshness


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result. ``date`` is the page's, in the provider's format, or empty."""

    title: str
    url: str
    snippet: str
    date: str


class SearchProvider(ABC):
    """A search engine with a JSON API, at an address set by the operator, which may be private."""

    name: str

    def __init__(
        self, url: str, settings: ToolSettings, network: Network | None, headers: Mapping[str, str] | None = None
    ) -> None:
        try:
            self._where = target(url)
        except ForbiddenTarget as error:
            raise Misconfigured(f"search_url {url!r}: {error}") from None
        self.host = self._where.host
        """The host connected to."""
        self._network = network
        own = {"User-Agent": settings.user_agent, "Accept": "application/json", "Accept-Encoding": "gzip"}
        self._headers = own | dict(headers or {})
        self._transport()

    @abstractmethod
    async def page(self, search: SearchQuery, number: int) -> list[SearchHit]:
        """Returns one page of results, counted from 0; empty if there are no more. Raises ToolError with a remedy."""

    async def ask(self, params: dict[str, str | int]) -> WebPage:
        await read_trust_store()
        try:
            async with self._transport() as transport:
                return await fetch(transport, str(self._where.url.copy_merge_params(params)), self._headers)
        except httpx2.RequestError as error:
            raise _provider_error(f"request failed - {clip(str(error), 300) or type(error).__name__}") from None

    def _transport(self) -> GuardedTransport:
        return GuardedTransport([self._where.host_port], network=self._network)


class SearXNG(SearchProvider):
    """A self-hosted SearXNG, whose JSON format must be enabled."""

    name = "searxng"
    _RANGES: Mapping[Freshness, str] = {"oneDay": "day", "oneWeek": "week", "oneMonth": "month", "oneYear": "year"}

    async def page(self, search: SearchQuery, number: int) -> list[SearchHit]:
        params: dict[str, str | int] = {"q": search.query, "format": "json", "pageno": number + 1}
        if when := self._RANGES.get(search.freshness):
            params["time_range"] = when
        answer = await self.ask(params)
        if answer.status == 403:
            raise _provider_error(
                "HTTP 403: its JSON format is off. The operator must add json to search.formats in its settings.yml"
            )
        content = _json(answer)
        hits = [_hit(each, "content", "publishedDate") for each in _mappings(content.get("results"))]
        if not hits and number == 0 and (silent := content.get("unresponsive_engines")):
            raise _provider_error(f"none of its engines answered: {clip(json.dumps(silent), 300)}")
        return _usable(hits)


class Brave(SearchProvider):
    """The Brave Search API."""

    name = "brave"
    _RANGES: Mapping[Freshness, str] = {"oneDay": "pd", "oneWeek": "pw", "oneMonth": "pm", "oneYear": "py"}

    async def page(self, search: SearchQuery, number: int) -> list[SearchHit]:
        query = search.query
        if len(query) > BRAVE_CHARS or len(query.split()) > BRAVE_WORDS:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"query is too long: this provider takes {BRAVE_CHARS} characters and {BRAVE_WORDS} words. Shorten it.",
            )
        params: dict[str, str | int] = {"q": query, "count": min(search.count, BRAVE_PAGE), "offset": number}
        if when := self._RANGES.get(search.freshness):
            params["freshness"] = when
        answer = await self.ask(params)
        results = _mapping(_json(answer).get("web")).get("results")
        return _usable(_hit(each, "description", "page_age") for each in _mappings(results))


def create_provider(settings: ToolSettings, network: Network | None = None) -> SearchProvider | None:
    """Returns the configured provider, or None. Raises Misconfigured if a setting is missing."""
    match settings.search_provider:
        case None:
            return None
        case "searxng":
            if not settings.search_url:
                raise Misconfigured("search_provider searxng needs search_url, the address of your SearXNG")
            return SearXNG(f"{settings.search_url.rstrip('/').removesuffix('/search')}/search", settings, network)
        case "brave":
            if not settings.search_key:
                raise Misconfigured("search_provider brave needs search_key, its subscription token")
            token = {"X-Subscription-Token": settings.search_key.get_secret_value()}
            return Brave(settings.search_url or BRAVE_URL, settings, network, token)


def _provider_error(why: str) -> ToolError:
    return ToolError(
        ErrorType.EXECUTION_FAILED, f"the search provider cannot be used: {why}. Go on without web_search."
    )


def _json(answer: WebPage) -> Mapping[str, Any]:
    """Returns the JSON object of a response. Raises ToolError with a reason that never quotes the response, which may
    repeat our key."""
    match answer.status:
        case 401 | 403 | 422:
            raise _provider_error(
                f"HTTP {answer.status}: it does not accept our key. The operator must check search_key"
            )
        case 429:
            raise _provider_error("HTTP 429: too many requests. Wait for a minute before you search again, or use less")
        case status if not answer.ok:
            raise _provider_error(f"HTTP {status} - {answer.url.partition('?')[0]}")
        case _:
            pass
    with suppress(ValueError, RecursionError):
        content = json.loads(answer.body)
        if isinstance(content, dict):
            return cast("dict[str, Any]", content)
    raise _provider_error(
        f"it answered with {answer.content_type or 'an unknown type'} instead of a JSON object. The operator must "
        "check search_url, and that this provider answers in JSON"
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [_mapping(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _hit(result: Mapping[str, Any], snippet: str, date: str) -> SearchHit:
    url = result.get("url")
    return SearchHit(
        title=clip(_plain(result.get("title")), MAX_TITLE) or "(no title)",
        url=url if isinstance(url, str) else "",
        snippet=clip(_plain(result.get(snippet)), MAX_SNIPPET),
        date=_plain(result.get(date))[:10],
    )


def _plain(value: Any) -> str:
    """Returns one line of text without markup."""
    return " ".join(html.unescape(_TAG.sub("", value[:MAX_READ])).split()) if isinstance(value, str) else ""


def _usable(hits: Iterable[SearchHit]) -> list[SearchHit]:
    """Returns the hits with URLs that web_fetch accepts."""
    usable: list[SearchHit] = []
    for hit in hits:
        with suppress(ForbiddenTarget):
            if len(hit.url) <= MAX_URL and target(hit.url):
                usable.append(hit)
    return usable
