"""The policy: rules in order, the first opinion counts, silence denies, and what the mode makes of a question."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.request import ApprovalMode
from deputize.worker.policy import RULES, decide, denial
from deputize.worker.policy.base import Decision, PolicyCall, PolicyContext, Rule, Verdict
from deputize.worker.policy.rules import ask_before_changes
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool, Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.context import ToolContext, Touches
from deputize.worker.tools.traits import Origin

MODES = list(ApprovalMode)
INSIDE = [Kind.EDIT, Kind.DELETE, Kind.MOVE, Kind.EXECUTE]
LOOKING = [Kind.READ, Kind.SEARCH, Kind.THINK]
LEAVING = [Kind.FETCH, Kind.OTHER]


class NoParams(Params):
    pass


def tool_of(kind: Kind, *, needs_sandbox: bool = False) -> AnyTool:
    class Sample(Tool[NoParams]):
        """A tool of one kind."""

        name = f"some_{kind}"
        effect = Effect.EFFECTFUL
        params = NoParams

        async def run(self, ctx: ToolContext, params: NoParams) -> ToolResult:
            return ToolResult("done")

    Sample.kind = kind
    Sample.needs_sandbox = needs_sandbox
    Sample.origin = Origin("mcp" if kind is Kind.OTHER else "builtin")
    return Sample()


def call_of(kind: Kind, *, hosts: tuple[str, ...] = (), needs_sandbox: bool = False) -> PolicyCall:
    return PolicyCall(tool_of(kind, needs_sandbox=needs_sandbox), Touches(hosts=hosts))


@pytest.mark.requirement("S004-009")
@pytest.mark.parametrize(("kind", "mode"), list(itertools.product(LOOKING, MODES)))
@pytest.mark.parametrize("broken", [None, "no bubblewrap"])
def test_looking_is_allowed_in_every_mode(kind: Kind, mode: ApprovalMode, broken: str | None) -> None:
    assert decide(call_of(kind), PolicyContext(mode, broken)).decision is Decision.ALLOW


@pytest.mark.requirement("S002-054", "S002-081", "S004-009", "S004-010", "S002-080")
@pytest.mark.parametrize("kind", INSIDE)
def test_a_change_inside_is_judged_by_the_mode(kind: Kind) -> None:
    assert {mode: decide(call_of(kind), PolicyContext(mode)).decision for mode in MODES} == {
        ApprovalMode.READ_ONLY: Decision.DENY,
        ApprovalMode.ASK: Decision.ASK,
        ApprovalMode.SANDBOXED: Decision.ALLOW,
        ApprovalMode.AUTO: Decision.ALLOW,
    }


@pytest.mark.parametrize("call", [*map(call_of, LEAVING), call_of(Kind.READ, hosts=("a.example",))])
def test_what_leaves_the_workspace_is_asked_about_unless_all_is_allowed(call: PolicyCall) -> None:
    assert {mode: decide(call, PolicyContext(mode)).decision for mode in MODES} == {
        ApprovalMode.READ_ONLY: Decision.DENY,
        ApprovalMode.ASK: Decision.ASK,
        ApprovalMode.SANDBOXED: Decision.ASK,
        ApprovalMode.AUTO: Decision.ALLOW,
    }


def test_a_discovered_tool_runs_in_the_sandbox_and_is_judged_like_a_command() -> None:
    call = call_of(Kind.OTHER)
    call.tool.origin = Origin("discovered")
    assert {mode: decide(call, PolicyContext(mode)).decision for mode in MODES} == {
        ApprovalMode.READ_ONLY: Decision.DENY,
        ApprovalMode.ASK: Decision.ASK,
        ApprovalMode.SANDBOXED: Decision.ALLOW,
        ApprovalMode.AUTO: Decision.ALLOW,
    }
    assert decide(call, PolicyContext(ApprovalMode.SANDBOXED, "no bubblewrap")).decision is Decision.ASK


@pytest.mark.parametrize("kind", INSIDE + LOOKING)
def test_a_tool_that_wants_approval_is_asked_about_though_its_effects_stay(kind: Kind) -> None:
    call = call_of(kind)
    call.tool.needs_approval = True
    assert {mode: decide(call, PolicyContext(mode)).decision for mode in MODES} == {
        ApprovalMode.READ_ONLY: Decision.DENY,
        ApprovalMode.ASK: Decision.ASK,
        ApprovalMode.SANDBOXED: Decision.ASK,
        ApprovalMode.AUTO: Decision.ALLOW,
    }


@pytest.mark.requirement("S002-080")
@pytest.mark.parametrize("mode", MODES)
def test_without_the_sandbox_what_needs_it_is_denied_in_every_mode(mode: ApprovalMode) -> None:
    verdict = decide(call_of(Kind.EXECUTE, needs_sandbox=True), PolicyContext(mode, "no bubblewrap"))
    assert verdict == Verdict(
        Decision.DENY,
        "some_execute needs the sandbox, which does not work on this worker: no bubblewrap",
        "require_sandbox",
        ErrorType.SANDBOX_UNAVAILABLE,
    )


def test_without_the_sandbox_edits_are_asked_about_by_default() -> None:
    assert decide(call_of(Kind.EDIT), PolicyContext(ApprovalMode.SANDBOXED, "no bubblewrap")).decision is Decision.ASK


@pytest.mark.requirement("S004-010")
def test_what_mutates_and_what_looks() -> None:
    assert [kind for kind in Kind if kind.mutates] == INSIDE
    assert {kind for kind in Kind if kind.looks} == set(LOOKING)


def opinion(decision: Decision | None, name: str) -> Rule:
    def rule(call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
        return Verdict(decision, f"because of {name}", name) if decision else None

    return rule


@pytest.mark.parametrize("opinions", list(itertools.product([None, *Decision], repeat=3)))
def test_the_first_opinion_counts_and_silence_denies(opinions: tuple[Decision | None, ...]) -> None:
    rules = [opinion(each, f"rule {number}") for number, each in enumerate(opinions)]
    verdict = decide(call_of(Kind.EDIT), PolicyContext(ApprovalMode.ASK), rules)
    spoken = [(each, f"rule {number}") for number, each in enumerate(opinions) if each]
    assert (verdict.decision, verdict.rule) == (spoken[0] if spoken else (Decision.DENY, "default"))


@pytest.mark.parametrize(("decision", "mode"), list(itertools.product([Decision.ALLOW, Decision.DENY], MODES)))
def test_no_mode_touches_allow_and_deny(decision: Decision, mode: ApprovalMode) -> None:
    verdict = decide(call_of(Kind.EXECUTE), PolicyContext(mode), [opinion(decision, "sure")])
    assert verdict == Verdict(decision, "because of sure", "sure")


def test_a_question_nobody_can_answer_is_denied_with_its_reason() -> None:
    error = denial(decide(call_of(Kind.EDIT), PolicyContext(ApprovalMode.ASK)))
    assert error is not None
    assert error.type is ErrorType.PERMISSION_DENIED
    assert error.message == (
        "denied: some_edit changes something (edit). This needs a person's approval, and interactive approval is off "
        "here; a delegation with approvalMode sandboxed or auto may do it."
    )
    assert denial(Verdict(Decision.ALLOW, "because", "rule")) is None
    denied = denial(Verdict(Decision.DENY, "because", "rule"))
    assert denied
    assert denied.message == "denied: because."


NOT_INTERACTIVE = "This needs a person's approval, and interactive approval is off here; "
AUTO = "a delegation with approvalMode auto may do it"


@pytest.mark.parametrize("mode", [ApprovalMode.ASK, ApprovalMode.SANDBOXED])
def test_what_leaves_the_workspace_is_denied_with_what_would_allow_it(mode: ApprovalMode) -> None:
    fetch, other = call_of(Kind.FETCH, hosts=("docs.example",)), call_of(Kind.OTHER)
    said = [error and error.message for error in (denial(decide(call, PolicyContext(mode))) for call in (fetch, other))]
    remedy = f"the operator can add the host to DEPUTIZE_TOOLS_ALLOWED_HOSTS, and {AUTO}. Go on without, and say so"
    assert said == [
        f"denied: some_fetch connects to docs.example. {NOT_INTERACTIVE}{remedy}.",
        f"denied: some_other acts outside the workspace. {NOT_INTERACTIVE}{AUTO}.",
    ]


def test_a_read_only_run_is_told_so() -> None:
    error = denial(decide(call_of(Kind.EXECUTE), PolicyContext(ApprovalMode.READ_ONLY)))
    assert error is not None
    assert error.message.startswith("denied: this delegation is read-only (approvalMode readOnly)")


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_every_builtin_tool_may_do_its_work_by_default(tool: AnyTool) -> None:
    touches = Touches(hosts=("docs.example",) if tool.kind is Kind.FETCH else ())
    call = PolicyCall(tool, touches)
    assert denial(decide(call, PolicyContext(ApprovalMode.SANDBOXED, allowed_hosts=["*.example"]))) is None
    denied = denial(decide(call, PolicyContext(ApprovalMode.READ_ONLY)))
    assert (denied is None) == tool.kind.looks


def test_every_rule_says_its_own_name() -> None:
    calls = [call_of(kind, needs_sandbox=True, hosts=hosts) for kind in Kind for hosts in ((), ("a.example",))]
    calls += [PolicyCall(tool_of(Kind.EXECUTE), Touches(command=line)) for line in ("ls", "sudo id")]
    situations = [PolicyContext(ApprovalMode.ASK, broken, ["a.*"]) for broken in (None, "broken")]
    for rule in RULES:
        verdicts = [rule(call, policy_context) for call in calls for policy_context in situations]
        assert {verdict.rule for verdict in verdicts if verdict} == {rule.__name__}


@pytest.mark.parametrize(
    ("host", "decision"),
    [
        ("docs.example.org", Decision.ALLOW),
        ("DOCS.example.org", Decision.ALLOW),
        ("example.org", Decision.ASK),
        ("docs.example.org.evil.net", Decision.ASK),
    ],
)
def test_a_host_that_the_operator_allows_needs_nobodys_approval(host: str, decision: Decision) -> None:
    policy_context = PolicyContext(ApprovalMode.SANDBOXED, None, ["*.Example.org"])
    assert decide(call_of(Kind.FETCH, hosts=(host,)), policy_context).decision is decision


def test_every_host_of_a_call_must_be_allowed() -> None:
    call = call_of(Kind.FETCH, hosts=("a.example", "b.example"))
    assert decide(call, PolicyContext(ApprovalMode.SANDBOXED, None, ["a.example"])).decision is Decision.ASK


def test_allowed_hosts_are_for_fetching_only_and_not_in_read_only_mode() -> None:
    elsewhere = call_of(Kind.OTHER, hosts=("a.example",))
    assert decide(elsewhere, PolicyContext(ApprovalMode.SANDBOXED, None, ["*"])).decision is Decision.ASK
    fetch = call_of(Kind.FETCH, hosts=("a.example",))
    assert decide(fetch, PolicyContext(ApprovalMode.READ_ONLY, None, ["*"])).decision is Decision.DENY


def test_a_tool_that_the_operator_trusts_needs_nobodys_approval() -> None:
    call = call_of(Kind.OTHER)
    call.tool.trusted = True
    assert {mode: decide(call, PolicyContext(mode)).decision for mode in MODES} == {
        ApprovalMode.READ_ONLY: Decision.DENY,
        ApprovalMode.ASK: Decision.ALLOW,
        ApprovalMode.SANDBOXED: Decision.ALLOW,
        ApprovalMode.AUTO: Decision.ALLOW,
    }


@pytest.mark.parametrize(
    ("call", "source", "why"),
    [
        (call_of(Kind.EDIT), "builtin", "some_edit changes something (edit)"),
        (call_of(Kind.OTHER), "discovered", "some_other changes something (other)"),
        (call_of(Kind.OTHER), "mcp", "some_other acts outside the workspace"),
        (call_of(Kind.FETCH), "builtin", "some_fetch acts outside the workspace"),
        (
            call_of(Kind.FETCH, hosts=("a.example", "b.example")),
            "builtin",
            "some_fetch connects to a.example, b.example",
        ),
    ],
)
def test_a_question_says_what_it_is_about_and_which_rule_asks(
    call: PolicyCall, source: Literal["builtin", "mcp", "discovered"], why: str
) -> None:
    call.tool.origin = Origin(source)
    verdict = decide(call, PolicyContext(ApprovalMode.ASK))
    assert (verdict.decision, verdict.reason, verdict.rule) == (Decision.ASK, why, "ask_before_changes")


def test_a_permission_names_the_rule_that_gave_it() -> None:
    fetch, trusted = call_of(Kind.FETCH, hosts=("a.example",)), call_of(Kind.OTHER)
    trusted.tool.trusted = True
    policy_context = PolicyContext(ApprovalMode.ASK, None, ["a.example"])
    assert [decide(call, policy_context).rule for call in (fetch, trusted)] == ["allow_trusted", "allow_trusted"]


def test_the_rule_about_changes_has_no_opinion_of_what_changes_nothing() -> None:
    assert [ask_before_changes(call_of(kind), PolicyContext(ApprovalMode.ASK)) for kind in LOOKING] == [None] * len(
        LOOKING
    )
