"""What `deputize prove` starts: the checks of a proof, repeated here on its base with its patch, without any service.

`python -m deputize.worker.proofs FOLDER` reads from its input what is asked, and works in the folder, which the command
has made and removes. It prints what it found as JSON, and ends with the command.
"""

from __future__ import annotations

from ...shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...shared.errors import DeputizeError, RepositoryFailed
from ...shared.git.delivery import objects_over, patched_tree
from ...shared.git.own import Patience
from ...shared.git.remote import remote_of
from ...shared.ids import new_id
from ...shared.own_process import keep_memory_private, send_on_death_of_parent
from ...shared.patch_format import parse_patch, printable_path, without
from ...shared.patches.directory import Directory
from ...shared.patches.merge import MergePlan
from ...shared.request import DelegationRequest, GitWorkspace
from ...shared.runs.record import Claim
from ...shared.settings import Settings
from ..core.emit import Emitter, RunUpdate
from ..core.run_context import RunContext
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.project_tools import check_shown
from ..services import offer_of
from ..threads import run_in_thread
from ..verification.protected.paths import Globs
from ..verification.verifier import Verifier
from ..workspace.cloned import GitSource
from ..workspace.source import SourceRules
from ..workspace.tree_copy import CopyTally
from ..workspace.workspace import Workspace


class NoRecord:
    """Takes what a run writes, and keeps nothing of it."""

    def write(self, id: str, fence: str, update: Callable[[], RunUpdate]) -> asyncio.Future[Any]:
        update()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result("written")
        return done

    def publish(self, id: str, frame: str) -> None: ...

    def flush(self) -> None: ...


async def repeated(settings: Settings, folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is found in the folder, or why nothing is: a ``misfit`` of the patch, or it is all ``untried``.

    ``asked`` has the ``request`` with the checks and the workspace, the ``patch``, the delivered ``commit`` with the
    paths that it lacks (``undelivered``), and patterns of ``paths``.
    """
    request, patch = DelegationRequest.model_validate(asked["request"]), asked["patch"]
    url = urlsplit(request.workspace.url if isinstance(request.workspace, GitWorkspace) else "")
    hosts = [f"http://{url.netloc}" if url.scheme == "http" else url.netloc] if url.netloc else []
    own = {"home": folder, "workspace_root": None, "workspace_sources": None, "local": True, "git_hosts": hosts}
    try:
        await run_in_thread(check_shown, settings)  # its own home is private, too
        settings, globs = settings.model_copy(update=own), Globs(asked["paths"])
        paths = {path for part in parse_patch(patch) for path in (part.old_path, part.new_path) if path}
        if "misfit" in (found := await _verified(settings, request, patch)):
            return found
        other = await run_in_thread(_other_commit, settings, request, asked)
        return {"outside": [printable_path(path) for path in sorted(paths) if not globs.match(path)], **found, **other}
    except (DeputizeError, OSError) as error:
        return {"untried": str(error)}


async def _verified(settings: Settings, request: DelegationRequest, patch: str) -> dict[str, Any]:
    """Returns the ``verification`` of the patch on its base, or its ``misfit``. Raises DeputizeError and OSError."""
    enabled = settings.sandbox.enabled
    problem = await Bubblewrap.selftest(settings.workspaces) if enabled else "switched off by DEPUTIZE_SANDBOX"
    offer = offer_of(settings, sandbox_problem=problem)
    claim = Claim(new_id(), "", 1, 0, request, request.limits, [], {}, {})
    run = RunContext.of(claim, Emitter(NoRecord(), claim, settings.secrets, lambda: None))
    spec, fill, tally, most = request.workspace, None, CopyTally(), offer.profile.disk_bytes
    if isinstance(spec, GitWorkspace):
        note(f"the base {spec.ref} is cloned from {spec.url}")
        fill = GitSource(spec, claim.id, settings, most, tally).fill
    workspace = await Workspace.create(spec, claim.id, settings.workspaces, SourceRules(), 1, most, tally, restore=fill)
    try:
        await offer.project_tools(claim, workspace, note)  # by the files of the base, as in a run
        if why := await run_in_thread(_apply, workspace.path, patch):
            return {"misfit": why}
        note("the checks run on base, candidate and canary")
        async with Verifier(run, offer, workspace) as verifier:
            return {"verification": (await verifier.verify()).to_dict()}
    finally:
        workspace.close()


def _apply(folder: Path, patch: str) -> str:
    """Applies the patch. Returns why it does not fit: each of its files has to be what it was before the run."""
    with Directory(folder) as files:
        plan, parts = MergePlan(files), parse_patch(patch)
        for part in parts:
            there = files.read(part.old_path) if part.old_path and part.old_id else None
            if part.old_path and part.old_id and (there is None or there.id != part.old_id):
                plan.refused.setdefault(part.path, "it is another file")
        plan.add(parts)
        if plan.refused:
            path, why = next(iter(plan.refused.items()))
            return f"the patch does not fit the base: {printable_path(path)}: {why}"
        plan.write()
    return ""


def _other_commit(settings: Settings, request: DelegationRequest, asked: Mapping[str, Any]) -> dict[str, str]:
    """Returns why the commit differs from the base with the patch (``other``), or is ``uncompared``; else {}."""
    spec, commit = request.workspace, asked["commit"]
    if not (commit and isinstance(spec, GitWorkspace) and spec.ref):
        return {}
    try:
        remote = remote_of(spec.url, settings)
        with objects_over(settings, remote, spec.ref, Patience(spec.url)) as own:
            own.run("fetch", "--no-tags", "--depth=2", remote.address, commit)
            there = own.run("rev-parse", f"{commit}^@", f"{commit}^{{tree}}").decode().split()
            tree = patched_tree(own, spec.ref, without(asked["patch"], asked["undelivered"]))
    except RepositoryFailed as error:
        return {"uncompared": str(error)}
    return {} if there == [spec.ref, tree] else {"other": "it is not the base with the patch"}


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the command's own errors


if __name__ == "__main__":
    send_on_death_of_parent(signal.SIGKILL)
    keep_memory_private()
    answer = asyncio.run(repeated(Settings.load(), Path(sys.argv[1]), json.load(sys.stdin)))
    print(json.dumps(answer))  # noqa: T201 - what the command reads
