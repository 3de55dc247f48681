"""Fixtures for the tests of the web tools."""

from tests.toolbench import bare_desk, desk

__all__ = ["bare_desk", "desk"]
