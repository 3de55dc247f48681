"""The facts of a result: file changes, the outcomes of checks, and what the run had read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, computed_field

from .request_options import Effort, Require
from .wire import Wire


class FileChange(Wire):
    """A fact about one file, from the manifests before and after, regardless of what changed it."""

    path: str
    """Relative to the workspace."""
    change: Literal["created", "modified", "deleted", "renamed"]
    """The change of the file between the start of the run and its end."""
    from_: str | None = Field(default=None, alias="from")
    """The earlier path of a renamed file."""
    base_hash: str | None = None
    """SHA-256 of the content at the start, hexadecimal; null for a created file."""
    new_hash: str | None = None
    """SHA-256 of the content at the end, hexadecimal; null for a deleted file."""
    added_lines: int = 0
    """Lines of text that only the new content has."""
    removed_lines: int = 0
    """Lines of text that only the earlier content has."""
    in_patch: bool = True
    """False for a file that is too large for the patch, or of a kind that no patch can carry."""
    size: int | None = None
    """Bytes of the new content; null for a deleted file, or where it is not known."""


class StepChange(Wire):
    """The change of a step at one path, whatever program made it; also at a path that git ignores."""

    path: str
    """Relative to the workspace."""
    change: Literal["created", "modified", "deleted", "renamed"]
    """The change of the file between the step before and this one."""
    from_: str | None = Field(default=None, alias="from")
    """The earlier path of a renamed file."""
    added: int | None = None
    """Lines; null where the content is not text, too large, or not kept."""
    removed: int | None = None
    """Lines; null as for ``added``."""


Ground = Literal["base", "candidate", "canary"]
"""Where a check runs: the files before the run, these with its changes, and these with something broken."""
GroundState = Literal["green", "red", "trouble", "unknown"]
"""``trouble``: it did not end in time, or could not start; ``unknown``: this worker could not run it."""
CheckOutcome = Literal["evidence", "no_regression", "improved", "preexisting", "refuted", "tampered", "inconclusive"]
Verdict = Literal["verified", "passed", "improved", "refuted", "inconclusive", "unverified"]
Strength = Literal["tests", "exitCode"]
VERDICTS: tuple[Verdict, ...] = ("verified", "passed", "improved", "unverified", "inconclusive", "refuted")
"""From the one that proves most to the one that proves least."""
SUFFICIENT: Mapping[Require, frozenset[Verdict]] = {
    "verified": frozenset({"verified"}),
    "passed": frozenset({"verified", "passed"}),
    "improved": frozenset({"verified", "passed", "improved"}),
}
"""The verdicts that meet each requirement."""


class Check(Wire):
    """One check, what it was on each ground, and what follows from that.

    ``evidence``: it failed before and succeeds now. ``no_regression``: it succeeds now, which proves no more.
    ``improved``: less fails than before, and something still does. ``preexisting``: it fails as it did before.
    ``tampered``: it did not notice what was broken for that purpose.
    """

    item: dict[str, Any]
    """As requested, with digests in the place of the files' contents."""
    outcome: CheckOutcome
    """The conclusion from the executions."""
    why: str = ""
    """The reason for the outcome, in a sentence."""
    base: GroundState | None = None
    """How it ended on the files before the run. Null: it was not executed there."""
    candidate: GroundState | None = None
    """How it ended on the files with the run's changes. Null: it was not executed there."""
    canary: GroundState | None = None
    """Red is right. Null: there was none, or none was needed."""
    as_left: GroundState | None = None
    """How it ended on the files exactly as the run left them. Null: the run changed no protected path."""
    strength: Strength | None = None
    """``tests``: each test was reported. ``exitCode``: nothing but the exit code is known. Null: no command."""
    own_tests: bool = False
    """Whether all evidence is tests that the run wrote: they fail on the base's code, and pass now."""
    exit_code: int | None = None
    """That of the candidate."""
    output_tail: str = ""
    """The end of what it printed on the candidate: shown, and never believed."""
    duration_ms: int = 0
    """Milliseconds of all executions together."""
    tests: dict[str, list[str]] = Field(default_factory=dict)
    """Of a known runner: the first tests that are ``fixed``, ``failed``, ``missing``, ``skipped``, ``preexisting``,
    ``flickering`` (before the run), ``unsteady`` (with its changes), ``removed`` with the file that the run changed,
    ``silenced`` (failed before and skipped now, beside ``fixed`` ones), or ``unseen`` before the run, as the runner
    stopped at another failure."""


TESTS_PASS = "tests pass"  # noqa: S105 - no password
"""The claim about tests."""


class SummaryClaim(Wire):
    """A statement of the summary, judged by the run's steps and file changes, not by its words."""

    claim: str
    """That the tests pass, or that a file changed which the summary names in code marks."""
    evidence: str | None
    """The id of the step that shows it; null where no step does."""
    verdict: Literal["proved", "refuted", "unproved"]
    """Whether the steps and file changes prove it or refute it."""
    why: str = ""
    """The evidence of the steps and file changes."""


class Suspicion(Wire):
    """An added line, or a file, that may bend the checks."""

    path: str
    """Relative to the workspace."""
    line: int | None = None
    """The line's number in the new content, from 1; null for a whole file."""
    kind: str
    """The kind of suspicion, by the name that ``accept`` of the request takes."""


class Verification(Wire):
    """The worker's own findings about the result."""

    verdict: Verdict = "unverified"
    """``verified``: every command succeeds, and one that failed before shows that. ``passed``: every command succeeds.
    ``improved``: less fails than before. ``refuted``: something fails that did not before, or the checks were bent.
    ``inconclusive``: they could not decide. ``unverified``: no checks were requested."""
    require: Require | None = None
    """The verdict that a success needs; null where no checks were requested."""
    checks: list[Check] = Field(default_factory=list)
    """The requested checks, in the order of the request."""
    restored: list[str] = Field(default_factory=list)
    """Protected paths that the run had changed: the checks ran with them as they were before. A fact, no judgement.
    They are applied, delivered and merged only where that is asked for."""
    released: list[str] = Field(default_factory=list, exclude_if=lambda paths: not paths)
    """Protected paths that checks saw as the run left them, as the tests stay as they were. They are applied, too."""
    tampered: bool = False
    """Whether a check did not notice what was broken for that purpose."""
    rounds: int = 0
    """How often the result went back to the model because it was refuted."""
    why: str = ""
    """The reason for the verdict, where it is not ``verified``."""
    suspicions: list[Suspicion] = Field(default_factory=list)
    """Changes that may bend the checks. One that the request does not accept makes the verdict ``inconclusive``."""
    claims: list[SummaryClaim] = Field(default_factory=list)
    """Those that were recognized, also where nothing was checked; none of them decides the verdict."""

    @property
    def is_met(self) -> bool:
        """Whether the verdict is what was required; also where nothing was checked.

        Results of earlier versions have no requirement: they succeeded unless they were refuted.
        """
        if self.require is None:
            return self.verdict != "refuted"
        return self.verdict in SUFFICIENT[self.require]

    def shortfall(self, require: Require | None = None) -> str:
        """Returns why the verdict is less than what was required, in a clause; "" where it is not.

        Whatever acts on a result by itself asks here. ``require`` is that of the request: results of earlier versions
        have none. Where it is not known either, such a result must have passed, unless nothing was checked.
        """
        required = self.require or require or (None if self.verdict == "unverified" else "passed")
        if required is None or self.verdict in SUFFICIENT[required]:
            return ""
        why = f": {self.why}" if self.why else ""
        if self.verdict == "refuted":
            return f"the checks refute the result{why}"
        return f"the verdict is {self.verdict}, and {required} is required{why}"

    @classmethod
    def incomplete(cls, why: str) -> Self:
        """Returns what a run has whose checks were not made to their end."""
        return cls(verdict="inconclusive", why=f"the checks were not completed: {why}")


class GitFacts(Wire):
    """What a delegation over a git repository began with, and what of it was delivered, if anything was."""

    base: str
    """The commit that was cloned."""
    branch: str | None = None
    """The branch that was pushed; null where nothing was delivered."""
    commit: str | None = None
    """The commit that was pushed; null where nothing was delivered."""
    pull_request_url: str | None = None
    """Null where no pull request was opened."""
    left_out: list[str] = Field(default_factory=list, exclude_if=lambda paths: not paths)
    """Changed paths that were not delivered: the checks had put them back, or they are too large for the patch."""


class MergeSide(Wire):
    """The change of one delegation at a path."""

    id: str
    """The delegation."""
    change: Literal["created", "modified", "deleted", "renamed"]
    """The kind of its change."""
    text: str = ""
    """Its lines with signs, as in a patch, at most 2,000 characters; of a text that both changed those about the same
    place. Empty for all but texts."""


class MergeConflict(Wire):
    """What two delegations did to a path and excludes each other; with one side, what fits nothing that was there."""

    path: str
    """Relative to the workspace."""
    sides: list[MergeSide]
    """One entry per delegation that changed the path."""
    why: str | None = None
    """Why the one side does not fit."""


class Incompatible(Wire):
    """Delegations whose results fail the checks together, and not without each other: as a rule two."""

    ids: list[str]
    """The delegations."""
    checks: int
    """How many merges were checked to find them."""
    why: str
    """Why the checks refute exactly these together."""


class MergeFacts(Wire):
    """The outcome of a merge: without conflicts it has all results, and each that is incompatible is named."""

    conflicts: list[MergeConflict] = Field(default_factory=list)
    """Where there is one, nothing was merged."""
    incompatible: list[Incompatible] = Field(default_factory=list)
    """Groups of results that fail the checks together."""
    compatible: list[str] | None = None
    """All but one of each incompatible group: not refuted together. Null where that is not known."""
    left_out: list[str] = Field(default_factory=list, exclude_if=lambda paths: not paths)
    """Changed paths that were not merged, as the checks of a result had put them back; left out where there are none.
    """


class AttemptFacts(Wire):
    """One attempt at a task, which is a delegation of its own."""

    id: str
    """The delegation."""
    model: str | None = None
    """The model that was asked for; null is the configured one."""
    effort: Effort | None = None
    """The effort that was asked for; null is the model's own default."""
    verdict: Verdict
    """The verdict of its checks."""
    ending: str
    """How it ended, and why, in words."""
    patch: str
    """SHA-256 of its patch, hexadecimal: equal ones are the same changes."""
    protected: int
    """How many protected paths it changed."""
    added_lines: int
    """Lines that its changes added."""
    removed_lines: int
    """Lines that its changes removed."""
    cost_usd: float | None = None
    """US dollars; null where the price is not known."""


class TournamentFacts(Wire):
    """The attempts at a task, and the one whose files, verdict and summary the result has."""

    attempts: list[AttemptFacts]
    """Those that were begun, in the order of their begin."""
    taken: str | None = None
    """The best attempt, whether it is a success or not; null where none has ended."""
    winner: str | None = None
    """The best attempt where its verdict is the one that was required; null where none has it."""
    passed: int
    """How many have the verdict that was required."""
    of: int
    """How many ended by themselves; those that were cancelled do not count."""


class Trust(Wire):
    """The sources that a conversation has read, so that its words can be judged by their origin.

    What a parent had read counts for its children, and what a child had read for its parent.
    """

    sources: list[str] = Field(default_factory=list)
    """``parent``, ``workspace``, ``web``, ``mcp:SERVER`` and ``subagent:ID``, each once, in the order of reading."""
    tainted_by: list[str] = Field(default_factory=list)
    """Those of the sources that are neither the operator's nor the parent's, and so may have been written to mislead:
    the web, MCP servers that the operator does not trust, and subagents that were tainted themselves."""
    neutralized: int = 0
    """How many places in what was read imitated control markup, and were made harmless (``shared/markup.py``)."""

    @computed_field
    @property
    def tainted(self) -> bool:
        """Whether ``taintedBy`` has entries."""
        return bool(self.tainted_by)

    def plus(self, other: Trust) -> Trust:
        """Returns the union: what was read by a reader of both."""
        return Trust(
            sources=[*dict.fromkeys((*self.sources, *other.sources))],
            tainted_by=[*dict.fromkeys((*self.tainted_by, *other.tainted_by))],
            neutralized=self.neutralized + other.neutralized,
        )

    def handed_on(self) -> Trust:
        """Returns the part that also counts for those who read what this conversation has written."""
        return Trust(sources=self.tainted_by, tainted_by=self.tainted_by)

    def read_from(self, id: str) -> Trust:
        """Returns the trust that the reader of this result takes over; ``id`` is the delegation that it is from."""
        source = [f"subagent:{id}"]
        return Trust(sources=source, tainted_by=source if self.tainted else []).plus(self.handed_on())
