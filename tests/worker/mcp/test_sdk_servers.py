"""Servers made with the SDK: what they answer becomes results, over streamable HTTP, SSE and a program's pipes."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from deputize.shared.errors import ErrorType
from deputize.worker.mcp.config import Server
from deputize.worker.mcp.streams import reached
from deputize.worker.tools.base import Effect
from tests.processes.leaks import ROOT
from tests.runs.toolbench import Toolbench
from tests.waiting import until
from tests.worker.mcp.opening import Opened, opened
from tests.worker.mcp.servers.sdk import PNG, server


@asynccontextmanager
async def served(app: Any, port: int = 0) -> AsyncIterator[str]:
    """The address of an ASGI application on loopback."""
    web = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=0))
    serving = asyncio.create_task(web.serve())
    await until(lambda: web.started or serving.done())
    try:
        yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
    finally:
        web.should_exit = True
        await serving
        watching = [task for task in asyncio.all_tasks() if "_shutdown_watcher" in repr(task)]  # of the SSE library
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the server writes what it sees."""
    return tmp_path / "journal"


@pytest.fixture(params=["http", "http as JSON", "sse", "program"])
async def sdk(request: pytest.FixtureRequest, bare_desk: Toolbench, journal: Path) -> AsyncIterator[Opened]:
    """The server over each transport; the program runs outside of the sandbox, so that it starts quickly."""
    if request.param == "program":
        args = ["-m", "tests.worker.mcp.servers.sdk", str(journal)]
        entry = {"command": sys.executable, "args": args, "sandbox": False, "cwd": str(ROOT)}
        async with opened(bare_desk, {"sdk": entry}) as found:
            yield found
        return
    app = server(journal)
    sse = request.param == "sse"
    web = app.sse_app() if sse else app.streamable_http_app(json_response=request.param != "http")
    async with served(web) as url, opened(bare_desk, {"sdk": {"url": f"{url}/{'sse' if sse else 'mcp'}"}}) as found:
        yield found


@pytest.mark.requirement("S002-044", "S004-022")
async def test_what_good_servers_answer(sdk: Opened) -> None:
    """All in one, because the program among them takes a second to start."""
    assert sdk.warnings == []
    await _structured(sdk)
    await _files(sdk)
    await _failures(sdk)


async def _structured(sdk: Opened) -> None:
    result = await sdk.call("mcp__sdk__weather", city="Bern")
    assert result.data == {"city": "Bern", "degrees": 21.5} == json.loads(result.content)
    assert result.title == "sdk: Forecast"
    missing = await sdk.call("mcp__sdk__weather")
    assert missing.error_type is ErrorType.INVALID_TOOL_PARAMS


async def _files(sdk: Opened) -> None:
    picture = await sdk.call("mcp__sdk__picture")
    path = picture.content.rpartition(" ")[2].rstrip("]")
    assert picture.content == f"[image image/png, {len(PNG)} bytes, saved as {path}]"
    assert path.startswith(".deputize/mcp/call-")
    assert sdk.desk.read(path) == PNG
    assert "audio audio/wav, 4 bytes" in (await sdk.call("mcp__sdk__sound")).content
    lines = (await sdk.call("mcp__sdk__resources")).content.splitlines()
    assert lines[:3] == ["Four:", "[resource memo://1]", "remember the milk"]
    assert lines[3].startswith("[resource memo://2 application/pdf, 5 bytes, saved as .deputize/mcp/call-")
    assert lines[3].endswith(".pdf]")
    assert lines[4] == "[resource memo://3: left out, it is not valid base64]"
    assert lines[5] == "[resource notes: memo://4 (text/plain, All notes)]"


async def _failures(sdk: Opened) -> None:
    failed = await sdk.call("mcp__sdk__fail")
    assert (failed.success, failed.error_type) == (False, ErrorType.EXECUTION_FAILED)
    assert failed.error is not None
    assert failed.error.endswith("the printer is on fire")
    loud = await sdk.call("mcp__sdk__fail", loudly=True)
    assert loud.error is not None
    assert len(loud.error) <= 1000
    assert loud.content.count("line") > 1500
    assert (await sdk.call("mcp__sdk__say_nothing")).error == "the server reported a failure without a reason"


@pytest.mark.requirement("P-15")
async def test_progress_is_reported_and_a_cancelled_call_is_cancelled(
    sdk: Opened, journal: Path, request: pytest.FixtureRequest
) -> None:
    assert (await sdk.call("mcp__sdk__count", upto=3)).content == "counted to 3"
    as_json = "as JSON" in request.node.name  # an answer in one piece has no room for news, and it is dropped unseen
    if not as_json:
        assert sdk.desk.news[0] == (None, {"progress": 1.0, "total": 3.0, "message": "at 1"})
    call = asyncio.create_task(sdk.call("mcp__sdk__wait"))
    await until(journal.exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: as_json or journal.read_text() == "waiting\ncancelled\n")
    assert (await sdk.call("mcp__sdk__weather", city="Oslo")).success


# HTTP that goes wrong


def legacy(answers: dict[str, Callable[[], Response]], sessions: set[str] | None = None) -> Any:
    """An ASGI application that shakes hands as of old, and answers calls of ``good``; of others, as the test decides.

    With ``sessions`` it opens some, and knows no others.
    """

    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method, id = message.get("method"), message.get("id")
        if id is None:
            return Response(status_code=202)
        headers: dict[str, str] = {}
        if sessions is not None and method == "initialize":
            headers["mcp-session-id"] = secrets.token_hex(4)
            sessions.add(headers["mcp-session-id"])
        elif sessions is not None and (named := request.headers.get("mcp-session-id")) and named not in sessions:
            return PlainTextResponse("who are you?", 404)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "legacy", "version": "1"},
            },
            "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("good", *answers)]},
            "tools/call": {"content": [{"type": "text", "text": "fine"}]},
        }
        if method == "tools/call" and (other := answers.get(message["params"]["name"])):
            return other()
        if method in results:
            return JSONResponse({"jsonrpc": "2.0", "id": id, "result": results[method]}, headers=headers)
        return PlainTextResponse("what?", 400)

    return Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST", "DELETE"])])


async def cut_off() -> AsyncIterator[bytes]:
    yield b'{"jsonrpc": "2.0",'
    raise ConnectionError


HUGE = b'{"jsonrpc": "2.0", "id": 1, "result": {"content": "' + b"x" * 9_000_000 + b'"}}'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: PlainTextResponse("no entry", 403), "'far': HTTP 403 Forbidden"),
        (lambda: PlainTextResponse("<html>oh no", 502), "outcome unknown: HTTP 502 Bad Gateway"),
        (lambda: PlainTextResponse("<html>hello", 200), "Unexpected content type"),
        (lambda: Response(b"{", 200, media_type="application/json"), "outcome unknown: Failed to parse JSON response"),
        (lambda: Response(HUGE, 200, media_type="application/json"), "the response is longer than"),
        (lambda: StreamingResponse(cut_off(), 200, media_type="application/json"), "the answer broke off"),
        (lambda: RedirectResponse("http://elsewhere.test/mcp"), "not followed"),
        (lambda: Response(b"x", 200, {"Content-Encoding": "gzip"}, "application/json"), "its response is compressed"),
        (lambda: Response(status_code=202), "202 Accepted"),
    ],
)
async def test_whatever_comes_over_http_the_model_gets_words(
    bare_desk: Toolbench, answer: Callable[[], Response], said: str
) -> None:
    async with (
        served(legacy({"bad": answer})) as url,
        opened(bare_desk, {"far": {"type": "streamable-http", "url": f"{url}/mcp"}}) as found,
    ):
        result = await found.call("mcp__far__bad")
        assert result.error_type is ErrorType.EXECUTION_FAILED
        assert result.error is not None
        assert said in result.error
        assert "'far'" in result.error
        assert (await found.call("mcp__far__good")).content == "fine"


async def test_headers_go_to_the_server_and_their_secret_to_no_other(bare_desk: Toolbench) -> None:
    seen: list[str] = []

    async def refused(request: Request) -> Response:
        seen.append(request.headers.get("authorization", ""))
        return PlainTextResponse("wrong token", 401)

    entry = {"url": "PLACE/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    async with served(Starlette(routes=[Route("/mcp", refused, methods=["GET", "POST"])])) as url:
        entry["url"] = f"{url}/mcp"
        async with opened(bare_desk, {"far": entry}, environ={"TOKEN": "t0ps3cret"}) as found:
            assert "HTTP 401 Unauthorized" in found.warnings[0]
            assert "t0ps3cret" not in "".join(found.warnings)
    assert seen[0] == "Bearer t0ps3cret"


async def test_a_server_that_was_away_is_used_again(bare_desk: Toolbench, journal: Path) -> None:
    async with AsyncExitStack() as stack:
        async with served(server(journal).streamable_http_app()) as url:
            found = await stack.enter_async_context(opened(bare_desk, {"sdk": {"url": f"{url}/mcp"}}, seconds=5))
        away = await found.call("mcp__sdk__count", upto=1)
        assert away.error is not None
        assert "cannot be reached" in away.error
        port = int(url.rpartition(":")[2])
        await stack.enter_async_context(served(server(journal).streamable_http_app(), port))
        assert (await found.call("mcp__sdk__count", upto=1)).content == "counted to 1"


async def test_a_call_that_a_restarted_server_refused_is_made_again(bare_desk: Toolbench) -> None:
    """It does not know the session any more, so it cannot have done anything, and the call need not be repeatable."""
    sessions: set[str] = set()
    async with (
        served(legacy({}, sessions)) as url,
        opened(bare_desk, {"far": {"url": f"{url}/mcp"}}) as found,
    ):
        (before,) = sessions
        assert found.tools["mcp__far__good"].effect is Effect.EFFECTFUL
        sessions.clear()
        assert (await found.call("mcp__far__good")).content == "fine"
        assert len(sessions - {before}) == 1


async def test_only_the_configured_address_may_be_private(bare_desk: Toolbench) -> None:
    """A redirect to another port of this machine is not followed, and a name in the file is no pass for others."""

    async def elsewhere(request: Request) -> Response:
        return RedirectResponse("http://127.0.0.1:9/mcp")

    async with (
        served(Starlette(routes=[Route("/mcp", elsewhere, methods=["GET", "POST"])])) as url,
        opened(bare_desk, {"far": {"url": f"{url}/mcp"}}) as found,
    ):
        assert "not followed" in found.warnings[0]
    async with opened(bare_desk, {"cloud": {"url": "http://169.254.169.254/mcp"}}) as found:
        assert "cloud's metadata address" in found.warnings[0]


@pytest.mark.parametrize("type", ["http", "sse"])
async def test_a_connection_may_be_idle_as_long_as_its_run_takes(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[httpx2.Timeout] = []

    class Client(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            waits.append(options["timeout"])
            super().__init__(**options)

    monkeypatch.setattr(httpx2, "AsyncClient", Client)
    server = Server.model_validate({"name": "s", "type": type, "url": "http://127.0.0.1:9/"})
    with suppress(ExceptionGroup, httpx2.TransportError):
        async with reached(server, lambda _: None, lambda: None):
            pass
    assert [wait.read for wait in waits] == [None]
