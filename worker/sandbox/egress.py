"""The network of commands that may reach hosts: an HTTP proxy on the sandbox's own loopback, served from outside.

No route leads out of a sandbox. The worker accepts the connections, so the sandbox contains neither a process nor a
file of the proxy, and a command that ignores the proxy reaches nothing.
"""

from __future__ import annotations

import socket
from typing import Protocol

from ...shared.settings.services import PROXY_PORT as PORT
from .ports import Report

_PROXIED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
VARIABLES = {
    **dict.fromkeys(_PROXIED, f"http://127.0.0.1:{PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""The variables by which programs find the proxy."""
TRUSTED = "/etc/deputize-authorities.pem"
"""Where the sandbox has what commands trust, if that is more than the system's authorities."""
_TRUSTING = {
    **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"), TRUSTED),
    **dict.fromkeys(("NODE_EXTRA_CA_CERTS", "npm_config_cafile", "CARGO_HTTP_CAINFO"), TRUSTED),
    **dict.fromkeys(("BUNDLE_SSL_CA_CERT", "AWS_CA_BUNDLE", "DENO_CERT"), TRUSTED),
}
"""The variables by which programs find it."""


class Egress(Protocol):
    """Decides which hosts commands reach."""

    @property
    def trusted(self) -> bytes:
        """The certificate authorities that commands have to trust, in PEM; empty for those of the system."""
        ...

    async def serve(self, listener: socket.socket, report: Report) -> None:
        """Serves one command's proxy on ``listener``, which it owns, until it is cancelled.

        ``report`` is called with a sentence for each host that it refuses.
        """
        ...


def variables(trusted: bytes) -> dict[str, str]:
    """Returns the variables of commands that may reach hosts."""
    return {**VARIABLES, **_TRUSTING} if trusted else VARIABLES
