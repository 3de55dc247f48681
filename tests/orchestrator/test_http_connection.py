"""The connection to a service: what it does before any request."""

from __future__ import annotations

import ssl

from deputize.orchestrator.http_connection import tls_context


def test_only_tls_loads_the_certificate_authorities() -> None:
    assert tls_context("https").cert_store_stats()["x509_ca"] > 0
    empty = tls_context("http")
    assert (empty.cert_store_stats()["x509_ca"], empty.verify_mode) == (0, ssl.CERT_REQUIRED)
