"""`deputize settings`: what can be set, its default, and what is in force here."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from . import formatting, output
from .connect import load_settings
from .errors import Exit

LONGEST = 60


@click.command()
@click.option("--toml", is_flag=True, help="As a deputize.toml, with what each setting means.")
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@click.pass_context
def settings(ctx: click.Context, toml: bool, as_json: bool) -> Exit:
    """List the settings: variable, value in force, and the default where it is another one.

    Values of secrets are not shown. `deputize settings --toml > deputize.toml` begins a file of your own.
    """
    from ...shared.settings.listing import as_toml, setting_lines

    if toml and as_json:
        raise click.UsageError("--toml and --json are two forms; give one", ctx)
    lines = setting_lines(load_settings(ctx))
    if toml:
        for text in as_toml(lines):
            output.line(text)
    elif as_json:
        for line in lines:
            output.json_line(json.dumps(asdict(line), ensure_ascii=False))
    else:
        rows = [
            (line.variable, _shown(line.value), "" if line.is_default else f"default: {_shown(line.default)}")
            for line in lines
        ]
        for text in formatting.columns(rows, left={0, 1, 2}):
            output.line(text)
    return Exit.SUCCEEDED


def _shown(value: str) -> str:
    return formatting.cut(value, LONGEST) or "unset"
