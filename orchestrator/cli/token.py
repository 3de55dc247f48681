"""`deputize token`: prints the token for other programs that call this machine's stack."""

from __future__ import annotations

import click

from orchestrator.cli import output
from orchestrator.cli.connect import load_settings, stack_here
from orchestrator.cli.errors import Exit
from shared.errors import Unavailable


@click.command()
@click.pass_context
def token(ctx: click.Context) -> Exit:
    """Print the token of the service: the one of DEPUTIZE_TOKEN, or that of the stack on this machine."""
    settings = load_settings(ctx)
    if settings.token is not None:
        output.line(settings.token.get_secret_value())
        return Exit.SUCCEEDED
    stack = stack_here(settings)
    if stack is None:
        raise Unavailable("no service runs on this machine; start one with `deputize up`, or set DEPUTIZE_TOKEN")
    if not stack.token:
        raise Unavailable("the service on this machine asks for no token; it was started with --no-token")
    output.line(stack.token)
    return Exit.SUCCEEDED
