"""Untrusted JSON Schemas: bounded when declared, and validated in processes that can be killed."""
