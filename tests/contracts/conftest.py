"""Fixtures for the questions asked of every tool."""

from tests.toolbench import bare_desk, desk

__all__ = ["bare_desk", "desk"]
