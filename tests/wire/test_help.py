"""`--help` of every command, word for word."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import COMMANDS, cli
from tests.wire.conftest import Golden


@pytest.mark.parametrize("name", ["", *COMMANDS, "policy explain", "policy test", "policy replay"])
def test_the_help_of_a_command(name: str, golden: Golden) -> None:
    arguments = [*name.split(), "--help"]
    done = CliRunner().invoke(cli, arguments, prog_name="deputize", terminal_width=100)
    assert done.exit_code == 0
    golden(f"help/{name.replace(' ', '-') or 'deputize'}.txt", done.output)
