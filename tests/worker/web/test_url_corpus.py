"""Every row of the corpus of URLs, through the whole tool: fetched or refused, and nothing dialled that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ToolError
from deputize.worker.tools.base import ToolResult
from deputize.worker.tools.web_fetch import TIMEOUT_SECONDS, WebFetch
from tests.internet import Internet, redirect, response
from tests.toolbench import Toolbench

CORPUS = Path(__file__).parents[2] / "corpus" / "urls.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
SERVERS = {
    "drip": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nx",
    "huge-header": b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000_000 + b"\r\nContent-Length: 2\r\n\r\nok",
    "br-bomb": response(b"\x8b\x03\x80" * 100, "text/plain", Content_Encoding="br"),
    "early-close": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nhalf a page",
}


def internet(row: dict[str, Any]) -> Internet:
    """The row's names, redirects and server; whatever else is asked for is a page."""
    answers = [redirect(location) for location in row.get("redirects", [])]
    answers += [SERVERS[row["server"]]] if "server" in row else []

    def answer(host: str, path: str) -> bytes:
        return answers.pop(0) if answers else response("a page", "text/plain")

    return Internet(row["dns"], answer, hangs_up=row.get("server") == "early-close")


async def fetched(row: dict[str, Any], net: Internet, desk: Toolbench) -> ToolResult:
    seconds = 0.5 if row.get("server") == "drip" else TIMEOUT_SECONDS  # the row is about its end
    tool = WebFetch(network=net, seconds=seconds)
    try:
        return await tool.run(desk.context(), tool.parse({"url": row["url"]}))
    except ToolError as error:
        return ToolResult.failed(error)


@pytest.mark.requirement("S003-040", "S004-020")
@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
async def test_a_url_is_fetched_or_refused_as_the_corpus_says(row: dict[str, Any], bare_desk: Toolbench) -> None:
    net = internet(row)
    result = await fetched(row, net, bare_desk)
    if "dial" in row:  # a rebinding name: fine, as long as what was judged is what was dialled
        assert {address for address, _ in net.dialled} <= {row["dial"]}
        assert len(net.asked) == 1
        return
    assert result.success == (row["verdict"] == "allow"), result.for_model
    first_answers = {address for answers in row["dns"].values() for address in answers[0]}
    literal = {row["url"].split("/")[2]} if row["verdict"] == "allow" else set()
    assert {address for address, _ in net.dialled} <= first_answers | literal
    if row["verdict"] == "allow":
        assert result.content == "a page"
    elif "redirects" not in row and "server" not in row:
        assert net.dialled == []


def test_the_corpus_is_whole() -> None:
    assert len(ROWS) == 125
    assert {row["verdict"] for row in ROWS} == {"allow", "refuse"}
