"""What HTTP clients of tests share."""

from deputize.orchestrator.client import tls_context

PLAIN_HTTP = tls_context("http")
"""Knows no authorities: loading those takes longer than most tests, whose servers have no TLS."""
