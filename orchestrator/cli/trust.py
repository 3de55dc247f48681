"""`deputize trust`: review the configuration files in a directory, and record that they are trusted."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deputize.orchestrator.cli import output
from deputize.orchestrator.cli.errors import Exit
from deputize.shared.text import count

if TYPE_CHECKING:
    from deputize.shared.trust import TrustRecord, TrustRecords


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask; for scripts that know what lies there.")
@click.option("--list", "listing", is_flag=True, help="List the directories that are trusted.")
@click.option("--revoke", is_flag=True, help="Trust the directory no longer.")
def trust(folder: Path, yes: bool, listing: bool, revoke: bool) -> Exit:
    """Let the deputize.toml, mcp.json, .mcp.json and skills of a directory count as if you had named them.

    Shows them, with the files that they name and what has changed since they were trusted, and asks. They count as
    long as their contents stay the same. What the named programs load in turn is not looked at.
    """
    from deputize.shared.settings import environment
    from deputize.shared.trust import TrustRecords, configuration_folder

    records = TrustRecords(configuration_folder(environment()))
    if listing:
        for each in records.folders():
            output.line(each)
        return Exit.SUCCEEDED
    if not folder.is_dir():
        raise click.UsageError(f"{folder} is not a directory")
    folder = folder.resolve()
    if revoke:
        state = "is not trusted any more" if records.revoke(folder) else "was not trusted"
        output.line(f"{folder} {state}")
        return Exit.SUCCEEDED
    return _record(folder, records, yes=yes)


def _record(folder: Path, records: TrustRecords, *, yes: bool) -> Exit:
    from deputize.shared.trust import covered, digests

    files, before = covered(folder), records.of(folder)
    if not files:
        raise click.UsageError(f"{folder} has nothing to trust: no deputize.toml, mcp.json, .mcp.json or skills")
    if before and before.digests == digests(files):
        output.line(f"{folder} is trusted already, and nothing has changed")
        return Exit.SUCCEEDED
    for line in _shown(files, before):
        output.line(line, err=True)
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("confirmation needs a terminal; review the output, then use --yes")
    if not yes and not output.confirm(f"Trust {count(len(files), 'file')} as shown?"):
        return Exit.CANCELLED
    records.record(folder, files)
    output.line(f"{folder} is trusted: {count(len(files), 'file')}")
    return Exit.SUCCEEDED


def _shown(files: Mapping[str, bytes], before: TrustRecord | None) -> Iterator[str]:
    """Yields each new or changed file as a diff from the trusted version."""
    from deputize.shared.trust import digests, text_of

    known = before.digests if before else {}
    now = digests(files)
    for path in sorted({*known, *now}):
        if known.get(path) == now.get(path):
            continue
        how = "is gone" if path not in now else "has changed" if path in known else "is new"
        yield f"{path} {how}"
        old, new = before.texts.get(path, "") if before else "", text_of(files.get(path, b""))
        if new is None or (path in known and before and path not in before.texts):
            yield f"  {len(files.get(path, b''))} bytes that cannot be shown here; look at the file itself"
            continue
        yield from list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]
