"""What HTTP clients of tests share."""

from ssl import PROTOCOL_TLS_CLIENT, SSLContext

PLAIN_HTTP = SSLContext(PROTOCOL_TLS_CLIENT)
"""Knows no authorities: loading those takes longer than most tests, whose servers have no TLS."""
