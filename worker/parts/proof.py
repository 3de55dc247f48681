"""The proof of a verified result: a statement of the run and its checks, signed with the newest key of the fleet.

The key is read from its file to sign, and is gone with the signature: no sandbox shows the file, no setting has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ...shared.delegation import StepStatus, ToolAgentResult
from ...shared.errors import Invalid, Misconfigured, RepositoryFailed
from ...shared.git.delivery import SECONDS
from ...shared.git.notes import attach_note
from ...shared.git.own import Patience
from ...shared.ids import moment_of
from ...shared.proof.statement import digest, statement_of, why_none, written
from ...shared.request import GitWorkspace
from ...shared.runs.record import PROOF
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..core.run import NO_MODEL
from ..policy.rule_file import FileRule
from ..threads import release_slot, run_in_thread
from ..tools.base import AnyTool, Kind


class Proof(Part):
    """Signs what is stated of one run, where its result is verified."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._model, self._most_output = NO_MODEL, 0
        self._kit: Mapping[str, AnyTool] = {}

    async def begin(self, work: Work) -> RunOutcome | None:
        if work.loop:
            calls = work.loop.model_calls
            self._model, self._most_output = calls.model.name, calls.max_output_tokens
            self._kit = work.loop.tool_calls.kit
        return None

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        run, facts = self._attempt.context, self._attempt.facts
        if facts is None or why_none(result, facts.patch):
            return result
        began = datetime.fromtimestamp(moment_of(run.claim.id), UTC)
        statement = statement_of(run.claim.request, result, facts.patch, began, self._internal(result))
        try:
            if any(run.emit.mask.text(text) != text for text in (facts.patch, written(statement).decode())):
                raise Invalid("values that must not leave the service are in the patch or in the checks")
            if envelope := await run_in_thread(self._signed, statement):
                run.emit.set({PROOF: envelope.decode()})
                await run_in_thread(self._attach, result, envelope)
        except (Misconfigured, RepositoryFailed, Invalid, OSError) as error:
            run.report_error(f"the proof: {error}", "proof")
        return result

    def _signed(self, statement: dict[str, Any]) -> bytes | None:
        """Returns the envelope; None where there is no key. Raises Misconfigured. Blocks."""
        from ...shared.proof.envelope import signed  # few runs need the libraries
        from ...shared.proof.keys import signer_in

        signer = signer_in(self._attempt.services.settings.proof_key_folder)
        return signed(statement, signer) if signer else None

    def _internal(self, result: ToolAgentResult) -> dict[str, Any]:
        request, profile = self._attempt.context.claim.request, self._attempt.offer.profile
        own = self._attempt.services.rules
        rules = [rule.fields.model_dump_json() for rule in own if isinstance(rule, FileRule)]
        return {
            "model": self._model,
            "parameters": {"effort": request.effort, "maxOutputTokens": self._most_output},
            "approvalMode": request.approval_mode.value,
            "policy": {"sha256": digest(json.dumps(rules))},
            "sandbox": {"sha256": digest(profile.model_dump_json())},
            "tools": sorted(self._kit),
            "hosts": sorted({*profile.allowed_hosts, *self._fetched()}),
            "subagents": [source[9:] for source in result.trust.sources if source.startswith("subagent:")],
        }

    def _fetched(self) -> set[str]:
        """Returns the hosts of which tools have fetched something; commands reach those that the profile allows."""
        fetching = {name for name, tool in self._kit.items() if tool.kind is Kind.FETCH}
        done = [each for each in self._attempt.context.steps.ended if each.status is StepStatus.COMPLETED]
        urls = [str(each.arguments.get("url", "")) for each in done if each.tool_name in fetching]
        return {host for url in urls if (host := urlsplit(url).hostname)}

    def _attach(self, result: ToolAgentResult, envelope: bytes) -> None:
        """Attaches the envelope to the delivered commit, where the request asks for that. Blocks."""
        request, commit = self._attempt.context.claim.request, result.git.commit if result.git else None
        if commit and isinstance(request.workspace, GitWorkspace) and request.deliver and request.deliver.attestation:
            settings, url = self._attempt.services.settings, request.workspace.url
            release_slot()
            attach_note(settings, url, commit, result.delegation_id, envelope, Patience(seconds=SECONDS))
