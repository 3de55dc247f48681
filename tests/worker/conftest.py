"""Fixtures for tests that call tools in a workspace."""

from tests.toolbench import bare_desk, desk

__all__ = ["bare_desk", "desk"]
