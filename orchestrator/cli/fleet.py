"""`deputize tools` and `deputize workers`: the fleet's tools and workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from . import formatting, output
from .connect import connect, load_settings
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.fleet import ToolCard, WorkerCard
    from ...shared.settings import Settings


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@click.pass_context
def tools(ctx: click.Context, as_json: bool) -> Exit:
    """List the tools that workers have announced."""
    found = asyncio.run(_tools(load_settings(ctx)))
    width = max((len(tool.name) for tool in found), default=0)
    for tool in found:
        first = tool.description.strip().partition("\n")[0]
        if as_json:
            output.json_line(tool.to_json())
        else:
            output.line(f"{tool.name:{width}}  {tool.kind:8}  {formatting.cut(first, 90)}")
    if not found:
        output.line("no worker has announced its tools yet; start one with `deputize up`", err=True)
    return Exit.SUCCEEDED


async def _tools(settings: Settings) -> list[ToolCard]:
    async with connect(settings) as service:
        return await service.client.tools()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@click.pass_context
def workers(ctx: click.Context, as_json: bool) -> Exit:
    """List the workers that are alive."""
    found = asyncio.run(_workers(load_settings(ctx)))
    width = max((len(worker.name) for worker in found), default=0)
    for worker in found:
        sandbox = "sandbox works" if worker.sandbox is None else f"no sandbox: {worker.sandbox}"
        load = f"{worker.running}/{worker.concurrency} running  {worker.model}  {formatting.tokens(worker.usage)}"
        line = f"{worker.name:{width}}  {load}  {sandbox}  {worker.version}".rstrip()
        if as_json:
            output.json_line(worker.to_json())
        else:
            output.line(line)
    if not found:
        output.line("no worker is alive; start one with `deputize worker`, or all with `deputize up`", err=True)
    return Exit.SUCCEEDED


async def _workers(settings: Settings) -> list[WorkerCard]:
    async with connect(settings) as service:
        return await service.client.workers()
