"""What is printed about the address that a service listens on."""

from __future__ import annotations

import pytest

from deputize.orchestrator.sockets import bound_url, listen, url_of


@pytest.mark.parametrize(
    ("host", "bound", "reached"), [("0.0.0.0", "0.0.0.0", "127.0.0.1"), ("127.0.0.1", "127.0.0.1", "127.0.0.1")]
)
def test_the_address_that_was_bound_and_the_one_to_reach_it_by(host: str, bound: str, reached: str) -> None:
    with listen(host, 0) as listening:
        port = listening.getsockname()[1]
        assert bound_url(listening) == f"http://{bound}:{port}"
        assert url_of(listening) == f"http://{reached}:{port}"
