"""Whom this process trusts in TLS."""

from __future__ import annotations

from functools import lru_cache
from ssl import SSLContext

import httpx2


@lru_cache(maxsize=1)
def trust_store() -> SSLContext:
    """The machine's certificate authorities, or SSL_CERT_FILE's. Made once a process: reading them takes 40 ms."""
    return httpx2.create_ssl_context()
