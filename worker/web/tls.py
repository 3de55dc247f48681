"""The certificate authorities that this process trusts."""

from __future__ import annotations

from functools import lru_cache
from ssl import SSLContext

import httpx2


@lru_cache(maxsize=1)
def trust_store() -> SSLContext:
    """Returns the machine's certificate authorities, or SSL_CERT_FILE's. Cached: reading them takes 40 ms."""
    return httpx2.create_ssl_context()
