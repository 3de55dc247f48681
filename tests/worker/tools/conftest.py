"""Fixtures for the tests of single tools."""

from tests.toolbench import bare_desk, desk

__all__ = ["bare_desk", "desk"]
