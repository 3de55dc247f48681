"""The delivery of a delegation that has ended, when it is asked for afterwards, and what a request may ask of one."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import SplitResult

from ..shared.delegation import Delegation, ToolAgentResult, shortfall_of
from ..shared.errors import Conflict, Invalid, RepositoryFailed, Unavailable
from ..shared.facts import GitFacts
from ..shared.git.delivery import SECONDS, Delivery
from ..shared.git.evidence import RunNotes
from ..shared.git.notes import attach_note
from ..shared.git.own import Patience
from ..shared.git.pull_requests import api_hosts, no_api
from ..shared.git.remote import check_branch, check_ref, check_url
from ..shared.masking import SecretMask
from ..shared.request import DelegationRequest, Deliver, GitWorkspace
from ..shared.runs.keys import record_key
from ..shared.runs.record import MODEL, REFUSALS
from ..shared.settings import Settings
from ..shared.text import shortened, visible
from ..shared.wording import where

_SAMPLE = "dlg_" + 26 * "0"
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def check_git(request: DelegationRequest, settings: Settings) -> None:
    """Raises Invalid for a repository that may not be cloned, and for a delivery that cannot be."""
    workspace, wanted = request.workspace, request.deliver
    if isinstance(workspace, GitWorkspace):
        check_url(workspace.url, settings)
        if workspace.ref is not None:
            check_ref(workspace.ref, "/workspace/ref")
    elif wanted is not None:
        raise Invalid.at("/deliver", "only changes of a git workspace can be delivered; `patch` has those of others")
    if wanted is not None:
        check_wanted(request, wanted, settings, "/deliver")


def check_wanted(request: DelegationRequest, wanted: Deliver, settings: Settings, pointer: str = "") -> None:
    """Raises Invalid for a branch that git does not allow, and for a pull request where nothing can make it."""
    if unknown := sorted({*_PLACEHOLDER.findall(wanted.branch)} - {"{id}"}):
        what = f"{shortened(visible(', '.join(unknown)), 100)} is not filled in, only {{id}} is"
        raise Invalid.at(f"{pointer}/branch", f"{what}; choose a name without other braces")
    check_branch(wanted.branch_of(_SAMPLE), f"{pointer}/branch")
    assert isinstance(request.workspace, GitWorkspace)
    url = check_url(request.workspace.url, settings)
    if wanted.pull_request and not (isinstance(url, SplitResult) and url.hostname in api_hosts(settings)):
        raise Invalid.at(f"{pointer}/pullRequest", no_api(settings))
    if wanted.pull_request and settings.git_credentials_file is None:
        raise Invalid.at(f"{pointer}/pullRequest", "the API needs a token; see DEPUTIZE_GIT_CREDENTIALS_FILE")


def _ended_with(delegation: Delegation, wanted: Deliver, named: str | None) -> tuple[ToolAgentResult, GitFacts]:
    """Returns the result, and what of it is delivered. Raises Conflict where that excludes what is wanted.

    ``named`` is the branch, where the caller has named one.
    """
    result, id = delegation.result, delegation.id
    if result is None:
        raise Conflict(f"{id} is {delegation.status}; its changes can be delivered when it has ended")
    if result.git is None and isinstance(delegation.request.workspace, GitWorkspace):
        raise Conflict(f"{id} never cloned its repository: nothing to deliver. `deputize show {id}` has the reason")
    if result.git is None:
        raise Conflict(f"{id} did not work on a git repository; `deputize apply` takes its changes over")
    if result.git.commit and named not in (None, result.git.branch):
        raise Conflict(f"{id} was already delivered as the branch {result.git.branch}, so it cannot become {named}")
    if result.git.commit and result.git.left_out and wanted.with_protected:
        raise Conflict(f"{id} was already delivered, and a run is delivered once: {where(result.git)}")
    return result, result.git


async def notes_of(redis: Any, id: str, settings: Settings) -> RunNotes:
    """Returns what the record of an ended run has for the evidence in its pull request."""
    model, refusals = await redis.hmget(record_key(id), MODEL, REFUSALS)
    return RunNotes(model or "", json.loads(refusals or "[]"), settings.url)


async def delivered(
    delegation: Delegation, wanted: Deliver | None, patch: str, notes: RunNotes, settings: Settings
) -> GitFacts | None:
    """Delivers the changes of an ended delegation, unless that is done; returns what was.

    Raises Conflict where there is nothing that can be, Invalid, and Unavailable where the host does not answer.
    """
    named = wanted.branch_of(delegation.id) if wanted and "branch" in wanted.model_fields_set else None
    again = wanted is not None  # then the body of its pull request is brought up to date
    wanted = wanted or delegation.request.deliver or Deliver()
    result, begun = _ended_with(delegation, wanted, named)
    if begun.commit and not (wanted.pull_request and (again or not begun.pull_request_url)):
        return None
    check_wanted(delegation.request, wanted, settings)
    if why := shortfall_of(delegation.request, result):
        raise Conflict(
            f"nothing was delivered: {why}; `deputize apply {delegation.id} --into DIR` takes the changes over anyway"
        )
    mask, left_out = SecretMask(settings.secrets).text, result.left_out if result.truncated else []
    own = delegation.request, wanted, begun.base, patch
    delivery = Delivery.of(result, *own, left_out, result.file_changes, notes, mask)
    try:
        if begun.commit:
            git = await asyncio.to_thread(delivery.with_pull_request, settings, begun, Patience(seconds=SECONDS))
        else:
            git = await asyncio.to_thread(delivery.run, settings, Patience(seconds=SECONDS))
    except (RepositoryFailed, OSError) as error:
        unreachable = isinstance(error, RepositoryFailed) and error.kind == "repository_unreachable"
        raise (Unavailable if unreachable else Conflict)(mask(str(error))) from None
    if git.commit is None:
        raise Conflict(f"there is nothing to deliver of {delegation.id}: {delivery.nothing}")
    return git


async def attest(
    delegation: Delegation, wanted: Deliver | None, git: GitFacts, envelope: str | None, settings: Settings
) -> None:
    """Attaches the envelope of a delegation's proof to its commit, where that is wanted. Raises as ``delivered``."""
    wanted, spec = wanted or delegation.request.deliver, delegation.request.workspace
    if not (envelope and git.commit and wanted and wanted.attestation and isinstance(spec, GitWorkspace)):
        return
    patience, note = Patience(seconds=SECONDS), envelope.encode()
    try:
        await asyncio.to_thread(attach_note, settings, spec.url, git.commit, delegation.id, note, patience)
    except (RepositoryFailed, OSError) as error:
        raise Unavailable(SecretMask(settings.secrets).text(str(error))) from None


async def note_delivered(redis: Any, id: str, git: GitFacts) -> None:
    """Adds what was delivered to the result, if it is still kept."""
    key = record_key(id)
    async with redis.pipeline() as pipe:
        await pipe.watch(key)
        if text := await pipe.hget(key, "result"):
            pipe.multi()
            pipe.hset(key, "result", json.dumps(json.loads(text) | {"git": git.to_dict()}, ensure_ascii=False))
            await pipe.execute()
