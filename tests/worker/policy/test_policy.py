"""The policy: rules in order, the first opinion counts, silence denies, and what the mode makes of a question."""

from __future__ import annotations

import itertools

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.request import ApprovalMode
from deputize.worker.policy import RULES, decide, denial
from deputize.worker.policy.base import Decision, PolicyCall, PolicyContext, Rule, Verdict
from deputize.worker.policy.builtin_rules import ask_before_changes
from deputize.worker.tools.base import (
    AnyTool,
    Availability,
    Effect,
    Kind,
    Origin,
    Params,
    Source,
    Tool,
    ToolContext,
    ToolResult,
    Touches,
)
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.submit_result import SubmitResult

MODES = list(ApprovalMode)
INSIDE = [Kind.EDIT, Kind.DELETE, Kind.MOVE, Kind.EXECUTE]
LOOKING = [Kind.READ, Kind.SEARCH, Kind.THINK]
LEAVING = [Kind.FETCH, Kind.OTHER]


class NoParams(Params):
    pass


def call_of(
    kind: Kind, *, hosts: tuple[str, ...] = (), command: str | None = None, source: Source | None = None, **traits: bool
) -> PolicyCall:
    """A call of a tool of this kind, with these of its traits set."""

    class Sample(Tool[NoParams]):
        """A tool of one kind."""

        name = f"some_{kind}"
        effect = Effect.EFFECTFUL
        params = NoParams

        async def run(self, ctx: ToolContext, params: NoParams) -> ToolResult:
            return ToolResult("done")

    Sample.kind = kind
    Sample.origin = Origin(source or ("mcp" if kind is Kind.OTHER else "builtin"))
    Sample.availability = Availability(needs_sandbox=traits.pop("needs_sandbox", False))
    for name, value in traits.items():
        setattr(Sample, name, value)
    return PolicyCall(Sample(), Touches(hosts=hosts, command=command))


@pytest.mark.requirement("S004-009")
@pytest.mark.parametrize(("kind", "mode"), list(itertools.product(LOOKING, MODES)))
@pytest.mark.parametrize("broken", [None, "no bubblewrap"])
def test_looking_is_allowed_in_every_mode(kind: Kind, mode: ApprovalMode, broken: str | None) -> None:
    assert decide(call_of(kind), PolicyContext(mode, broken)).decision is Decision.ALLOW


IN_MODES = {
    "a change inside": ([*map(call_of, INSIDE), call_of(Kind.OTHER, source="discovered")], "deny ask allow allow"),
    "what leaves the workspace": (
        [*map(call_of, LEAVING), call_of(Kind.READ, hosts=("a.example",))],
        "deny ask ask allow",
    ),
    "a tool that wants approval, though its effects stay": (
        [call_of(kind, needs_approval=True) for kind in INSIDE + LOOKING],
        "deny ask ask allow",
    ),
    "a tool that the operator trusts": ([call_of(Kind.OTHER, trusted=True)], "deny allow allow allow"),
}
"""The decisions in readOnly, ask, sandboxed and auto."""


@pytest.mark.requirement("S002-054", "S002-081", "S004-009", "S004-010", "S002-080")
@pytest.mark.parametrize("what", IN_MODES)
def test_a_call_is_judged_by_the_mode(what: str) -> None:
    calls, decisions = IN_MODES[what]
    modes = [ApprovalMode.READ_ONLY, ApprovalMode.ASK, ApprovalMode.SANDBOXED, ApprovalMode.AUTO]
    for call in calls:
        assert " ".join(decide(call, PolicyContext(mode)).decision for mode in modes) == decisions, call


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


def test_without_the_sandbox_what_it_would_contain_is_asked_about_by_default() -> None:
    for call in (call_of(Kind.EDIT), call_of(Kind.OTHER, source="discovered")):
        assert decide(call, PolicyContext(ApprovalMode.SANDBOXED, "no bubblewrap")).decision is Decision.ASK


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


def test_a_question_without_a_possible_answer_is_denied_with_its_reason() -> None:
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


def test_a_read_only_run_is_informed_of_it() -> None:
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


def test_every_rule_has_its_own_name() -> None:
    calls = [call_of(kind, needs_sandbox=True, hosts=hosts) for kind in Kind for hosts in ((), ("a.example",))]
    calls += [call_of(Kind.EXECUTE, command=line) for line in ("ls", "sudo id")]
    calls.append(PolicyCall(SubmitResult({"type": "object"}), Touches()))
    situations = [PolicyContext(ApprovalMode.ASK, broken, ["a.*"]) for broken in (None, "broken")]
    for rule in RULES:
        verdicts = [rule(call, policy_context) for call in calls for policy_context in situations]
        assert {verdict.rule for verdict in verdicts if verdict} == {rule.__name__}


@pytest.mark.parametrize(
    ("kind", "hosts", "mode", "decision"),
    [
        (Kind.FETCH, "docs.example.org", "sandboxed", Decision.ALLOW),
        (Kind.FETCH, "DOCS.example.org", "sandboxed", Decision.ALLOW),
        (Kind.FETCH, "example.org", "sandboxed", Decision.ASK),
        (Kind.FETCH, "docs.example.org.evil.net", "sandboxed", Decision.ASK),
        (Kind.FETCH, "a.example.org b.example", "sandboxed", Decision.ASK),
        (Kind.FETCH, "docs.example.org", "readOnly", Decision.DENY),
        (Kind.OTHER, "docs.example.org", "sandboxed", Decision.ASK),
    ],
)
def test_fetching_from_hosts_that_the_operator_allows_needs_no_approval(
    kind: Kind, hosts: str, mode: str, decision: Decision
) -> None:
    policy_context = PolicyContext(ApprovalMode(mode), None, ["*.Example.org"])
    assert decide(call_of(kind, hosts=(*hosts.split(),)), policy_context).decision is decision


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (call_of(Kind.EDIT), "some_edit changes something (edit)"),
        (call_of(Kind.OTHER, source="discovered"), "some_other changes something (other)"),
        (call_of(Kind.OTHER), "some_other acts outside the workspace"),
        (call_of(Kind.FETCH), "some_fetch acts outside the workspace"),
        (call_of(Kind.FETCH, hosts=("a.example", "b.example")), "some_fetch connects to a.example, b.example"),
    ],
)
def test_a_question_names_what_it_is_about_and_which_rule_asks(call: PolicyCall, why: str) -> None:
    verdict = decide(call, PolicyContext(ApprovalMode.ASK))
    assert (verdict.decision, verdict.reason, verdict.rule) == (Decision.ASK, why, "ask_before_changes")


def test_a_permission_names_the_rule_that_gave_it() -> None:
    fetch, trusted = call_of(Kind.FETCH, hosts=("a.example",)), call_of(Kind.OTHER, trusted=True)
    policy_context = PolicyContext(ApprovalMode.ASK, None, ["a.example"])
    assert [decide(call, policy_context).rule for call in (fetch, trusted)] == ["allow_trusted", "allow_trusted"]


def test_the_rule_about_changes_has_no_opinion_of_what_changes_nothing() -> None:
    found = [ask_before_changes(call_of(kind), PolicyContext(ApprovalMode.ASK)) for kind in LOOKING]
    assert found == [None] * len(LOOKING)


def test_a_question_names_what_a_git_host_executes() -> None:
    for path, told in (("src/a.py", False), (".github/workflows/ci.yml", True)):
        tool = next(each for each in BUILTIN if each.name == "write_file")
        arguments = {"path": path, "content": "x"}
        verdict = decide(PolicyCall.of(tool, tool.parse(arguments), arguments), PolicyContext(ApprovalMode.ASK))
        assert verdict.decision is Decision.ASK
        assert (f"a git host may execute {path} once it is pushed" in verdict.reason) is told
