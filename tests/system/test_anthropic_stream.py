"""The stream that the API's documentation prints, overload inside it included, served by uvicorn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Reply
from deputize.worker.models.credentials import Credentials
from tests.waiting import until_sync
from tests.worker.models.asking import IMPATIENT, parts_of, retries

pytestmark = pytest.mark.system

DOCUMENTED = b"""event: message_start
data: {"type": "message_start", "message": {"id": "msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY", "type": "message", "role": \
"assistant", "content": [], "model": "claude-opus-4-6", "stop_reason": null, "stop_sequence": null, "usage": \
{"input_tokens": 25, "output_tokens": 1}}}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}

"""
OVERLOADED = b"""event: error
data: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

"""
THE_REST = b"""event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "!"}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 0}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence":null}, "usage": \
{"output_tokens": 15}}

event: message_stop
data: {"type": "message_stop"}

"""


@pytest.fixture
def documented() -> Iterator[str]:
    """An endpoint whose first stream is overloaded and whose second is not."""
    streams = iter([DOCUMENTED + OVERLOADED, DOCUMENTED + THE_REST])

    async def messages(_: Request) -> Response:
        return Response(next(streams), media_type="text/event-stream")

    app = Starlette(routes=[Route("/v1/messages", messages, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until_sync(lambda: server.started, timeout=45)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


async def test_the_documented_overload_inside_a_stream_is_borne(documented: str) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("any-test-key"), "ANTHROPIC_BASE_URL": SecretStr(documented)}
    parts = await parts_of(AnthropicModel("m", Credentials(endpoint), IMPATIENT), "hello")
    await close_models()
    (retry,) = retries(parts)
    assert "overloaded_error" in retry.error
    assert retry.wasted.input_tokens == 25
    assert isinstance(parts[-1], Reply)
    assert (parts[-1].text, parts[-1].usage.output_tokens) == ("Hello!", 15)
