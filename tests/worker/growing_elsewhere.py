"""The worker's functions that take a text and read nothing of it: they keep it, name something by it, or hand it on.

One that begins to read its text belongs into ``READS`` (``growing.py``), as each of the packages does that is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from deputize.shared.delegation import Usage
from deputize.shared.git.evidence import executed_by_hosts
from deputize.shared.patch_format import parse_patch
from deputize.shared.patches.siblings import Side
from deputize.shared.request import DelegationRequest
from deputize.worker.core import conversation, prompt
from deputize.worker.mcp import config
from deputize.worker.merges import culprits
from deputize.worker.models import thinking
from deputize.worker.models.base import Reply
from deputize.worker.policy.shell import redirections
from deputize.worker.sandbox import process
from deputize.worker.web import credentials, proxy_connection
from deputize.worker.workspace.files import Files
from tests.worker.growing_checks import raw

NOT_OF_RUNS = (
    *("worker/adapters", "worker/celery_pool", "worker/economy", "worker/environments"),
    *("worker/fleet", "worker/linux"),
    *(
        "worker/promises",
        "worker/standby",
        "worker/tracing",
        "worker/__main__.py",
        "worker/contracts.py",
        "worker/redis_record.py",
        "worker/services.py",
    ),
    *("worker/proofs", "worker/task.py", "worker/text/compute_limit.py", "worker/threads.py"),
)
"""What takes texts of the operator and of the worker alone, or is measured where it is called."""
_FILES = Files(Path("/"))


def _asked(text: str) -> None:
    with suppress(ValueError):
        prompt.first_message(DelegationRequest(task=text, context=text, expected_outcome=text), text)


def _related(text: str) -> None:
    patch = f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+{text.replace(chr(10), ' ')}\n"
    culprits.Relation([Side(id, parse_patch(patch)) for id in ("dlg_a", "dlg_b")], text)


def _with_calls(text: str) -> Reply:
    """Returns a reply of as many calls as the text has words, all with one id, as some endpoints send it."""
    calls = [{"type": "tool_use", "id": "", "name": word, "input": {}} for word in text.split("a")]
    return Reply(content=calls, calls=[], stop_reason="tool_use", usage=Usage())


READS_ELSEWHERE: Mapping[str, Callable[[str], object]] = {
    "worker/web/credentials.py:may_lead_elsewhere": credentials.may_lead_elsewhere,
    "worker/web/proxy_connection.py:end_to_end": lambda text: proxy_connection.end_to_end([(b"connection", raw(text))]),
    "shared/git/evidence.py:executed_by_hosts": lambda text: executed_by_hosts([text] * 9),
    "worker/policy/shell/redirections.py:without_redirections": redirections.without_redirections,
    "worker/policy/shell/redirections.py:without_documents": redirections.without_documents,
    "worker/policy/shell/redirections.py:commands_with_input": lambda text: [*redirections.commands_with_input(text)],
    "worker/core/conversation.py:calls_in": lambda text: conversation.calls_in(conversation.user_message(text)),
    "worker/core/conversation.py:joined": lambda text: conversation.joined(text, text),
    "worker/core/conversation.py:user_message": lambda text: conversation.user_message(text, text),
    "worker/core/prompt.py:continued_task": lambda text: prompt.continued_task((text,), text, [text], text),
    "worker/core/prompt.py:first_message": _asked,
    "worker/core/prompt.py:repeated_calls": lambda text: prompt.repeated_calls({text: text}, 3),
    "worker/mcp/config.py:exposed": lambda text: config.exposed("docs", text, ()),
    "worker/mcp/config.py:matches": lambda text: config.matches(text, ["*a*b*c", "[a-z]*_*"]),
    "worker/merges/culprits.py:Relation.__init__": _related,
    "worker/models/base.py:Reply.sendable": lambda text: _with_calls(text).sendable(set()),
    "worker/models/thinking.py:has_thinking": lambda text: thinking.has_thinking(raw(text)),
    "worker/models/thinking.py:without_thinking": lambda text: thinking.without_thinking(
        conversation.user_message(text)
    ),
    "worker/sandbox/process.py:split_leftovers": lambda text: process.split_leftovers(raw(f"{text}\nn\n{text}"), "n"),
    "worker/workspace/files.py:Files.full": _FILES.full,
    "worker/workspace/files.py:Files.relative": _FILES.relative,
}
_HANDED_ON: Mapping[str, str] = {
    "shared/git/delivery.py": "Delivery.of",
    "shared/git/signing.py": "made_commit",
    "worker/web/refusals.py": "Refusals.__init__ Refusals.note Refusals.note_denied",
    "worker/attempts.py": "entries_before Attempt.trace_of Attempt.report_progress Attempt.note_files",
    "worker/core/conversation.py": (
        "Conversation.__init__ Conversation.restart Conversation.apart Conversation.ask Conversation.answer "
        "current_entries"
    ),
    "worker/core/emit.py": (
        "Record.write Record.publish Emitter.__init__ Emitter.emit Emitter.count Emitter.notify "
        "Emitter.request_permission Emitter.ask_again Emitter.withdraw_permissions Emitter.emit_marked "
        "Emitter.delta Emitter.store_message Emitter.set_call_state Emitter.set Emitter.end"
    ),
    "worker/core/last_write.py": "result_of",
    "worker/instructions/part.py": "ProjectInstructions.text",
    "worker/core/ledger.py": (
        "Ledger.__init__ Ledger.check Ledger.waiting Ledger.start Ledger.finish Ledger.finished Ledger.left "
        "Ledger.resolve"
    ),
    "worker/core/limits.py": (
        "LimitReached.__init__ Meter.set_price Meter.check_wait Meter.lend Meter.book Meter.restored"
    ),
    "worker/core/loop.py": "Loop.close_calls",
    "worker/core/model_calls.py": "compact reply_from_log",
    "worker/core/prompt.py": "system_prompt",
    "worker/core/run_context.py": (
        "StepLog.start StepLog.update not_executed in_doubt RunContext.report_error RunContext.checkpoint"
    ),
    "worker/core/run_contracts.py": "EndpointWait.call PrefixWait.request",
    "worker/core/supervision.py": "Supervision.cancelled",
    "worker/core/tool_calls.py": "ToolCalls.known",
    "worker/core/waits.py": "Waits.noted Waits.without_slot Waits.without_clock Waits.reported",
    "worker/core/without_model.py": "done_within",
    "worker/mcp/config.py": ("prefix without_effect expanded Config.read"),
    "worker/mcp/connection.py": "Connection.call",
    "worker/mcp/source.py": "McpServers.__init__",
    "worker/mcp/subreaper.py": "described",
    "worker/mcp/tools.py": "result_of McpTool.__init__ tools_of",
    "worker/mcp/transport.py": "program_of needed FreeProgram.__init__",
    "worker/merges/culprits.py": "Relation.nearest",
    "worker/merges/turned_green.py": "TurnedGreen.kept_in",
    "worker/models/__init__.py": "open_model",
    "worker/models/anthropic.py": "AnthropicModel.__init__ AnthropicModel.open AnthropicModel.refusal "
    "check_response price_of",
    "worker/models/base.py": "Reply.without_calls undated",
    "worker/models/caching.py": "encode_prefix with_breakpoints shared_prefixes",
    "worker/models/credentials.py": (
        "Names.of_table Credentials.__init__ Credentials.of Credentials.get Credentials.digest Credentials.masked"
    ),
    "worker/models/endpoint.py": "Endpoint.get Endpoint.post",
    "worker/models/platforms.py": "Signer.signed",
    "worker/models/rate_limits.py": "limits_in",
    "worker/models/scripted.py": "TemplateContext.text load_script ScriptedModel.__init__ ScriptedModel.open",
    "worker/permission.py": "details_of",
    "worker/run_files.py": "collect_outputs",
    "worker/sandbox/bounds.py": "Member.__init__ Member.kill Member.report RunBounds.kill_largest_writer "
    "WorkerBounds.set_up",
    "worker/sandbox/bubblewrap.py": (
        "Bubblewrap.program Bubblewrap.outcome Bubblewrap.has_begun NoSandbox.__init__ NoSandbox.program "
        "NoSandbox.outcome NoSandbox.has_begun"
    ),
    "worker/sandbox/environment.py": "is_below system_program program packaged_program refusal_reason secrets_in",
    "worker/sandbox/kept_environments.py": "outside",
    "worker/sandbox/layers.py": "Layer.of_workspace",
    "worker/sandbox/namespaces.py": "MountNamespace.__init__ MountNamespace.path writable_mount_refusal",
    "worker/sandbox/options.py": "guarded refuse_nul without_script memfd",
    "worker/sandbox/ports.py": "python_with",
    "worker/sandbox/process.py": "Process.__init__",
    "worker/sandbox/project_tools.py": "shown_paths find_tools on_path is_kept",
    "worker/sandbox/protections.py": "Protection.problems judged printed_at_start",
    "worker/sandbox/seccomp.py": "program",
    "worker/sandbox/shells.py": (
        "BackgroundShell.read BackgroundShellManager.start BackgroundShellManager.start_monitor "
        "BackgroundShellManager.lookup BackgroundShellManager.remove"
    ),
    "worker/sandbox/egress.py": "variables",
    "worker/sandbox/trials.py": "Canaries.workspace asked_of_commands try_egress",
    "worker/subagents/children.py": (
        "ChildPermissions.hear ChildPermissions.catch_up ChildPermissions.close Children.submit "
        "Children.send Children.wait SubagentRunner.child"
    ),
    "worker/subagents/inheritance.py": "Inheritance.request",
    "worker/toolkit/discovery.py": "DiscoveredTool.__init__ DiscoveredTool.probe",
    "worker/toolkit/offer.py": "Offers.of",
    "worker/toolkit/registry.py": "Registry.unregister Registry.get Registry.of_server Registry.kit prepare_kit",
    "worker/toolkit/run_tools.py": "UnavailableTool.parse",
    "worker/toolkit/sources.py": (
        "SchemaTool.__init__ ToolSourceContext.add_missing ToolSourceContext.wants ToolSourceContext.may_be_missing"
    ),
    "worker/tournament/part.py": "facts_of",
    "worker/verification/known_verdicts.py": "attempt_key KnownVerdicts.of KnownVerdicts.note",
    "worker/verification/variation.py": "lay",
    "worker/web/credential_connection.py": "distrusted",
    "worker/web/credentials.py": "Credential.of Credential.hidden_in Credentials.__init__ reachable",
    "worker/web/egress_proxy.py": "proxy_to",
    "worker/web/proxy_connection.py": "Connections.judge",
    "worker/workspace/archive_formats.py": "BadEntry.__init__ Entry.read entries_of",
    "worker/workspace/artifacts.py": "Artifacts.latest Artifacts.edit_lock Artifacts.read Artifacts.add",
    "worker/workspace/file_entries.py": (
        "is_private is_being_written entries_of lstat tool_error not_allowed not_a_file too_large"
    ),
    "worker/workspace/files.py": (
        "Files.__init__ Files.contains Files.real Files.open_fd Files.read Files.head Files.stat Files.write "
        "Files.scan Files.walk Files.private_path Files.write_private ShownFiles.open_fd ShownFiles.write named"
    ),
    "worker/workspace/generation.py": "apply_state",
    "worker/workspace/laid_out.py": "lay_out",
    "worker/workspace/locks.py": "file_lock edit_lock",
    "worker/workspace/manifest.py": (
        "scan git_folder differing is_refreshed read_content digest_of read_link open_file"
    ),
    "worker/workspace/notes.py": "Notes.add format_notes",
    "worker/workspace/objects.py": "Objects.note Objects.path Objects.put Objects.adopt",
    "worker/workspace/snapshot_store.py": (
        "SnapshotStore.__init__ SnapshotStore.put SnapshotStore.get SnapshotStore.names SnapshotStore.delete "
        "StoredRun.fill"
    ),
    "worker/workspace/snapshots.py": "Snapshots.take",
    "worker/workspace/source.py": "SourceRules.check open_source held_source write_new",
    "worker/workspace/tree_changes.py": "remove parent_of",
    "worker/workspace/tree_copy.py": "SourceUnreadable.__init__ SourceTooLarge.__init__ special_sentences reported",
    "worker/workspace/workspace.py": "Workspace.create Workspace.open Workspace.note_changes Workspace.compare",
}
HANDED_ON = [f"{file}:{name}" for file, names in _HANDED_ON.items() for name in names.split()]
