"""Fixtures for tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.policy import SHARED, PolicyProcess
from deputize.shared.settings import Settings


@pytest.fixture(scope="module")
def policy_context() -> Iterator[click.Context]:
    """The parent of commands that ask one process about the policy: each of its own would cost two seconds."""
    process = PolicyProcess()
    process.ask(Settings(), {"test": []})
    context = click.Context(cli)
    context.meta[SHARED] = process
    yield context
    process.close()
