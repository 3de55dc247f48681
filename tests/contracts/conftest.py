"""Fixtures for the questions asked of every tool."""

from tests.runs.toolbench import bare_desk, desk

__all__ = ["bare_desk", "desk"]
