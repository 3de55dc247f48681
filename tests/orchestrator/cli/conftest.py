"""Fixtures for tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.policy import SHARED, engine
from deputize.shared.settings import Settings


@pytest.fixture(scope="module")
def policy_context() -> Iterator[click.Context]:
    """The parent of commands that share one engine of the policy: each of its own would cost two seconds."""
    settings = Settings()
    with engine(settings) as ask:
        ask(settings, {"test": []})
        context = click.Context(cli)
        context.meta[SHARED] = ask
        yield context
