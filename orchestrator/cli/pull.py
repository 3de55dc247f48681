"""`deputize pull`: fetches files from the workspace of a run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...shared.errors import NotFound
from ...shared.text import count, did_you_mean
from . import completion, output
from .connect import asynchronous, connect, full_id, load_settings
from .errors import Exit
from .values import DIRECTORY

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.facts import FileChange
    from ...shared.patches.directory import Directory as Target
    from ..client import Client
    from ..workspace_files import WorkspaceFile


@click.command()
@click.argument("id", shell_complete=completion.delegations)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--into", type=DIRECTORY, metavar="DIR", help="Where to put them; it is made if it is missing.")
@click.option("--overwrite", is_flag=True, help="Replace files that have another content here.")
@click.option("--json", "as_json", is_flag=True, help="The outcome of each file, as one JSON object.")
@asynchronous
async def pull(id: str, paths: tuple[str, ...], into: Path | None, overwrite: bool, as_json: bool) -> Exit:
    """Fetch files from the workspace of a run, while it goes on, too.

    PATH is a file, a directory or a pattern. Without one: the changed files that are not in the patch, or all changed
    files of a run that began in an empty directory. They go to the current directory, or to DIR; files that were
    changed there since are kept. ID may be shortened to its beginning or its end; @last is the newest
    one without a parent.
    """
    from ...shared.patch_format import check_path
    from ...shared.patches.directory import Directory as Target

    async with connect(load_settings()) as service:
        client = service.client
        delegation = await client.get(await full_id(client, id))
        wanted = await _wanted(client, delegation, paths)
        for each in wanted:
            check_path(each.file.name)
        (into or Path()).mkdir(parents=True, exist_ok=True)
        folder = (into or Path()).absolute()
        with Target(folder) as target:
            refused = {} if overwrite else _refused(target, folder, wanted)
            for file in () if refused else (each.file for each in wanted):
                with target.writing(file.name, executable=file.executable) as writing:
                    async for chunk in client.file(delegation.id, file.name):
                        writing.write(chunk)
    _print(folder, [] if refused else [each.file for each in wanted], refused, as_json)
    return Exit.FAILED if refused else Exit.SUCCEEDED


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A file to fetch, and its entry in the result."""

    file: WorkspaceFile
    change: FileChange | None


def _print(folder: Path, fetched: Sequence[WorkspaceFile], refused: dict[str, str], as_json: bool) -> None:
    if as_json:
        paths = [file.path for file in fetched]
        output.json_line(json.dumps({"directory": str(folder), "fetched": paths, "refused": refused}))
    elif refused:
        output.note(f"nothing was fetched: {count(len(refused), 'file')} would be lost in {folder}")
        output.lines((f"  {path}: {why}" for path, why in refused.items()), err=True)
    else:
        output.line(f"{count(len(fetched), 'file')} fetched into {folder}")
        output.lines(f"  {file.path}, {output.size(file.size)}" for file in fetched)


async def _wanted(client: Client, delegation: Delegation, paths: Sequence[str]) -> list[_Fetch]:
    """Returns the files to fetch. Raises NotFound with close names for a path that is none."""
    changes = {change.path: change for change in (delegation.result.file_changes if delegation.result else [])}
    listed = [file for file in (await client.files(delegation.id)).items if file.kind == "file"]
    files = {file.name: _Fetch(file, changes.get(file.path)) for file in listed}
    if not paths:
        is_copy = delegation.request.workspace.kind != "empty"
        chosen = [each for each in files.values() if each.change and not (is_copy and each.change.in_patch)]
        if not chosen:
            holds = f"the patch holds every change; `deputize apply {delegation.id}` takes them over"
            raise NotFound(holds if changes else f"{delegation.id} has changed no file yet; name the files to fetch")
        return chosen
    found: dict[str, _Fetch] = {}
    for path in paths:
        asked = path.rstrip("/").removeprefix("./")
        names = [name for name, each in files.items() if _fits(asked, name) or _fits(asked, each.file.path)]
        if not names:
            near = did_you_mean(path[:100], files, cutoff=0.6) or f"it has {count(len(files), 'file')}"
            raise NotFound(f"{delegation.id} has no file {path}; {near}")
        found |= {name: files[name] for name in names}
    return list(found.values())


def _fits(asked: str, name: str) -> bool:
    return asked in (name, ".") or name.startswith(f"{asked}/") or fnmatchcase(name, asked)


def _refused(target: Target, folder: Path, wanted: Sequence[_Fetch]) -> dict[str, str]:
    """Returns the paths where another content would be lost, and why."""
    from ...shared.patches.directory import FOLDER

    refused: dict[str, str] = {}
    for each in wanted:
        path, change = each.file.path, each.change
        there = target.kind(each.file.name)
        if there is None:
            continue
        if not there.is_file:
            refused[path] = f"{there.name} is here" + ("" if there.mode == FOLDER else "; --overwrite replaces it")
        elif change is None or _digest(folder / each.file.name) not in (change.base_hash, change.new_hash):
            refused[path] = "it has another content here; --overwrite replaces it"
    return refused


def _digest(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
