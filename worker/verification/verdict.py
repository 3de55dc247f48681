"""The conclusion from a check's states on its grounds: for each check, and for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import get_args

from ...shared.facts import SUFFICIENT, Check, CheckOutcome, GroundState, Suspicion, Verdict
from ...shared.text import count
from ..sandbox.environment import MOUNT
from .reports.states import Report, TestState
from .runners.execution import NO_TESTS_RAN, Observed

GOOD: Sequence[CheckOutcome] = ("evidence", "no_regression")
MAX_LISTED = 20
"""Tests of one kind that a result lists."""
_STILL = "it fails as it did before the run"
_REFUTING = {"failed": "fails", "missing": "did not run any more", "skipped": "was skipped, and was not before"}
_UNDECIDED = {
    "unsteady": "gave different results in two executions on the same files",
    "removed": "passed before, and is gone with the run's changes of its file",
    "unseen": "fails, and was left out before the run because another one failed",
    "silenced": "failed before, and is skipped now",
}
_ACCEPTED_AS = {"passed": "assertion", "skipped": "skip", None: "cases"}
"""The kind of suspicion that accepts what became of a test that failed before, by its state now."""
_HINT = "; if the task asks for that, `accept` takes {} beside your own `protect`"
_BY_CHANCE = {"flickering": "fails by chance: before the run, two executions on the same files gave different results"}
STATES: Mapping[tuple[GroundState, GroundState], tuple[CheckOutcome, str]] = {
    ("green", "green"): ("no_regression", "it succeeds, as it did before the run"),
    ("red", "green"): ("evidence", "it failed before the run and succeeds now"),
    ("trouble", "green"): ("evidence", "it could not succeed before the run and succeeds now"),
    ("green", "red"): ("refuted", "it succeeded before the run and fails now"),
    ("red", "red"): ("preexisting", _STILL),
    ("trouble", "red"): ("preexisting", "it could not succeed before the run, and fails now"),
    ("green", "trouble"): ("refuted", "it succeeded before the run, and now it does not"),
    ("red", "trouble"): ("refuted", "it failed before the run, and now it has no result"),
    ("trouble", "trouble"): ("inconclusive", "it had no result before the run or after it"),
}
"""By the states on base and candidate, where no tests are known. Any state that is unknown is inconclusive."""
WORST: Mapping[CheckOutcome, Verdict] = {"tampered": "refuted", "refuted": "refuted", "inconclusive": "inconclusive"}
"""Outcomes of one check that decide the verdict on all, the worst first."""
NO_COMMAND = "no command failed before the run, and files in the demanded state prove nothing about their behaviour"


@dataclass(slots=True)
class Judgement:
    """The outcome of one check, with the tests that decide it."""

    outcome: CheckOutcome
    why: str
    tests: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    is_untrusted: bool = False
    """Whether it would be good, but for what the code under test did: a canary may still show that it lies."""
    own: bool = False
    """Whether all evidence is tests that the run wrote."""
    is_open: bool = False
    """Whether tests that the run wrote may still be evidence."""

    @property
    def listed(self) -> dict[str, list[str]]:
        return {kind: sorted(ids)[:MAX_LISTED] for kind, ids in self.tests.items() if ids}


@dataclass(frozen=True, slots=True)
class Observations:
    """The executions of one check on base and candidate, once or twice each.

    ``own_files`` are the check's own. ``changed`` are the run's changes that the check sees.
    """

    base: Observed
    candidate: Observed
    base_again: Observed | None = None
    candidate_again: Observed | None = None
    own_files: Collection[str] = ()
    changed: Collection[str] = ()
    beside_code: Collection[str] | None = ()
    """The names of tests that it added in a language whose reports do not name files; None where it changed some."""
    is_unreadable: bool = False
    """Whether it is a runner of tests that could not be made to report them."""
    accepted: Collection[str] = ()
    """What the request lets the run do to tests in the files that it changed, by kinds of suspicion."""

    @property
    def new_passes(self) -> set[str]:
        """The tests that pass and did not before."""
        before, now = self.base.report or Report(), self.candidate.report or Report()
        return now.of("passed") - before.of("passed")

    @property
    def placed(self) -> Report | None:
        """What the candidate reports, with the places of tests from before the run: its own may be falsified."""
        before, now = self.base.report or Report(), self.candidate.report
        return now and replace(now, places=now.places | before.places)

    def with_more(self, base: Observed, candidate: Observed) -> Observations:
        """Returns the same with the states of tests that were executed once more."""
        return replace(
            self,
            base_again=_with_others(self.base, self.base_again, base),
            candidate_again=_with_others(self.candidate, self.candidate_again, candidate, silence_differs=True),
        )

    def lost(self, left: Observed) -> set[str]:
        """Returns the tests that pass before the run and with its code, and are gone as it left them: without need."""
        passed = [(each.report or Report()).of("passed") for each in (self.base, self.candidate)]
        return (passed[0] & passed[1]) - (left.report or Report()).tests.keys()

    def notices_as_much(self, base: Collection[str], candidate: Collection[str]) -> bool:
        """Whether tests still depend on the code, by those that pass on base and candidate where all of it is broken.

        Tests may have other names. Where they may be removed, those that are left count.
        """
        first, second = (each.report or Report() for each in (self.base, self.candidate))
        before, now = first.of("passed") - {*base}, second.of("passed") - {*candidate}
        if self.new_passes and not self.new_passes & now:
            return False
        if "names" not in self.accepted and "cases" in self.accepted:
            return before & second.tests.keys() <= now
        return len(now) >= len(before)

    def judge(self) -> Judgement:
        """Returns the outcome, without a canary."""
        if "unknown" in (self.base.state, self.candidate.state):
            return Judgement("inconclusive", self.candidate.why or self.base.why)
        knows_tests = any(each.report and each.report.tests for each in (self.base, self.candidate))
        judgement = self._by_tests() if knows_tests else self._by_states()
        if judgement.outcome in (*GOOD, "improved") and (why := self._why_untrusted()):
            return Judgement("inconclusive", why, judgement.tests, is_untrusted=True)
        return judgement

    def _why_untrusted(self) -> str:
        """Returns what the code under test did to the libraries or the files of its tests, and did not on the base."""
        on_base = self.base.report or Report()
        for seen in (self.candidate, self.candidate_again):
            if bent := (seen.report.bent if seen and seen.report else frozenset[str]()) - on_base.bent:
                return f"{min(bent)} was replaced while the tests ran"
            if seen and (rewritten := sorted(seen.rewritten - self.base.rewritten)):
                return f"{rewritten[0]} was changed while the command ran, and its tests depend on it"
        return ""

    def _by_states(self) -> Judgement:
        base, candidate = self.base, self.candidate
        outcome, why = STATES[base.state, candidate.state]
        if outcome in ("refuted", "evidence") and self._flickers(lambda one: one.state):
            return Judgement("inconclusive", "it gave different results in two executions on the same files")
        if self.is_unreadable and base.state == candidate.state == "red":
            return Judgement("preexisting", f"{_STILL}, and it cannot be made to report its tests")
        reason = candidate.why if candidate.state == "trouble" else ""
        return Judgement(outcome, f"{why}: {reason}" if reason else why)

    def _flickers(self, of: Callable[[Observed], object]) -> bool:
        pairs = ((self.base, self.base_again), (self.candidate, self.candidate_again))
        return any(again is not None and of(again) != of(one) for one, again in pairs)

    def _by_tests(self) -> Judgement:
        before, now = self.base.report or Report(), self.candidate.report or Report()
        tests = self._compared(before, now)
        if self.base.state == self.candidate.state == "trouble":
            return Judgement("inconclusive", f"it had no result before the run or after it: {self.candidate.why}")
        if any(tests[kind] for kind in _REFUTING):
            return Judgement("refuted", _words(tests, _REFUTING), tests)
        if any(tests[kind] for kind in _UNDECIDED):
            asked = [kind for kind, ids in (("cases", tests["removed"]), ("skip", tests["silenced"])) if ids]
            why = _words(tests, _UNDECIDED) + _HINT.format(" and ".join(asked)) * bool(asked)
            return Judgement("inconclusive", why, tests)
        exit_code, finished = self.candidate.exit_code, now.finished and self.candidate.report is not None
        if self.candidate.why == NO_TESTS_RAN:
            return Judgement("inconclusive", NO_TESTS_RAN, tests)
        if self.candidate.state == "trouble" or not finished:
            again = self.candidate_again
            if again and again.state == "green":
                return Judgement("inconclusive", "it ended in two different ways", tests)
            return Judgement("refuted", self.candidate.why or "the runner of the tests did not end as it should", tests)
        explained = tests["preexisting"] or tests["flickering"]
        if exit_code and not explained and self.base.exit_code != exit_code:
            return Judgement("refuted", f"its tests pass, and it fails with exit code {exit_code}", tests)
        return self._green(tests) if self.candidate.state == "green" else self._red(tests)

    def _green(self, tests: dict[str, set[str]]) -> Judgement:
        """Returns the judgement on a command that succeeds, and whose tests did not get worse."""
        before, now = self.base.report or Report(), self.candidate.report or Report()
        silent = _silent(before, now)
        if "cases" in self.accepted:
            silent &= {place.file for place in now.places.values()}
        if silent:
            why = f"{min(silent)} could not be loaded before the run, and does not show that its tests pass now"
            return Judgement("inconclusive", why, tests)
        gone = {id for id in before.of("failed") if _is_test(id, before)} - now.tests.keys()
        proving = now.of("passed") - self._written(now)
        rewritten = before.of("failed") & self._written(now)
        turned_green = self.base.state != "green" and proving and not (gone or rewritten or tests["flickering"])
        if tests["fixed"] or turned_green:
            return Judgement("evidence", _evidence(tests), tests)
        if self.base.state != "green" and (rewritten or not proving):
            why = "it succeeds now, by tests that the run wrote or changed itself"
            if self._as_accepted(before, now):
                return Judgement("no_regression", f"{why}, as `accept` allows", tests)
            return Judgement("inconclusive", why + _HINT.format("assertion") * bool(rewritten), tests)
        return Judgement("no_regression", "all tests pass that passed before the run", tests, is_open=True)

    def _as_accepted(self, before: Report, now: Report) -> bool:
        """Whether the request accepts what the run did to each test that failed before: changed, skipped or removed."""
        left = before.of("failed") - (now.of("passed") - self._written(now))
        return bool(left) and all(_ACCEPTED_AS.get(now.tests.get(id)) in self.accepted for id in left)

    @staticmethod
    def _red(tests: dict[str, set[str]]) -> Judgement:
        """Returns the judgement on a command that fails, and whose tests did not get worse."""
        if tests["fixed"]:
            return Judgement("improved", _evidence(tests), tests)
        if tests["flickering"] and not tests["preexisting"]:
            return Judgement("inconclusive", _words(tests, _BY_CHANCE), tests)
        return Judgement("preexisting", f"{_STILL}: the same tests fail", tests)

    def _compared(self, before: Report, now: Report) -> dict[str, set[str]]:
        """Returns the tests by what became of them."""
        ran_before, good_before = before.of("passed", "failed"), before.of("passed")
        unsteady = self._unsteady(self.candidate, self.candidate_again)
        flickering = self._unsteady(self.base, self.base_again)
        own = of_files(now, self.own_files)
        failing = now.of("failed")
        there = {name_without_parameters(id) for id in now.tests}
        missing = {
            id
            for id in ran_before
            if id not in now.tests and name_without_parameters(id) not in there and _is_test(id, before)
        }
        in_changed = of_files(before, self.changed)
        missing -= in_changed if "cases" in self.accepted else set()
        removed = missing & good_before & in_changed
        broken_files = {id for id in before.of("failed") if not _is_test(id, before)}
        unseen = {id for id in failing - own - before.tests.keys() if before.stopped}
        found: dict[str, set[str]] = {
            "fixed": {
                id
                for id in now.of("passed") - self._written(now)
                if before.tests.get(id) == "failed"
                or (id not in before.tests and (id in own or id.partition("::")[0] in broken_files))
            },
            "failed": {id for id in failing if id in own or before.tests.get(id) != "failed"} - unseen,
            "missing": missing - removed,
            "removed": removed,
            "unseen": unseen,
            "skipped": now.of("skipped") & good_before,
            "silenced": now.of("skipped") & before.of("failed"),
            "preexisting": {id for id in failing if id not in own and before.tests.get(id) == "failed"},
        }
        if not found["fixed"]:  # nothing was mended, so that the skip is all that the run did to it
            found |= {"skipped": found["skipped"] | found["silenced"], "silenced": set[str]()}
        if "skip" in self.accepted:
            found |= {kind: found[kind] - in_changed for kind in ("skipped", "silenced")}
        found = {kind: ids - flickering - unsteady for kind, ids in found.items()}
        touched = good_before | ran_before | set(now.tests)
        return found | {"flickering": flickering & touched, "unsteady": (unsteady - flickering) & touched}

    def _written(self, report: Report) -> set[str]:
        """Returns the tests that the run may have written itself: that they pass proves nothing."""
        found = of_files(report, self.changed) - of_files(report, self.own_files)
        unknown = {id for id, place in report.places.items() if not place.file}
        added = self.beside_code
        return found | (unknown if added is None else {id for id in unknown if id.rpartition("::")[2] in added})

    @staticmethod
    def _unsteady(one: Observed, again: Observed | None) -> set[str]:
        """Returns the tests whose state differs between two runs on the same files."""
        if again is None:
            return set()
        first, second = (each.report.tests if each.report else dict[str, TestState]() for each in (one, again))
        return {id for id in first.keys() | second.keys() if first.get(id) != second.get(id)}


def _with_others(
    first: Observed, again: Observed | None, more: Observed, *, silence_differs: bool = False
) -> Observed | None:
    """Returns the second execution with the tests that did something else in a third one than at first.

    ``silence_differs``: a test that failed differs, too, where the third execution was cut off before its report.
    """
    if not first.report or not (more.report or silence_differs):
        return again
    known, third = again.report.tests if again and again.report else first.report.tests, more.report or Report()
    other = {id: state for id, state in third.tests.items() if first.report.tests.get(id) not in (None, state)}
    unknown = first.report.of("failed") - third.tests.keys() if silence_differs and more.state == "trouble" else ()
    tests = {id: state for id, state in {**known, **other}.items() if id not in unknown}
    return replace(again or first, report=replace(first.report, tests=tests))


def of_files(report: Report, paths: Collection[str]) -> set[str]:
    """Returns the tests that are defined in one of these files."""
    inside, ends = {f"{MOUNT}/{path}" for path in paths}, tuple(f"/{path}" for path in paths)
    files = {id: report.places[id].file for id in report.tests if id in report.places}
    return {
        id for id, file in files.items() if (file in inside if file.startswith(f"{MOUNT}/") else file.endswith(ends))
    }


def _silent(before: Report, now: Report) -> set[str]:
    """Returns files of tests that could not be loaded before, and have no passing test now, or one without cases."""
    files = {place.file for id, place in before.places.items() if before.tests.get(id) == "failed" and not place.name}

    def of(ids: set[str]) -> set[str]:
        return {now.places[id].file if id in now.places else f"{MOUNT}/{id.partition('::')[0]}" for id in ids}

    passing, empty = of(now.of("passed")), of({id for id in now.of("skipped") if id.endswith("[NOTSET]")})
    return {file for file in files if PurePosixPath(file).suffix and (file not in passing or file in empty)}


def name_without_parameters(id: str) -> str:
    """Returns a test's id without its parameters, which the code under test may list."""
    return id.partition("[")[0]


def _is_test(id: str, report: Report) -> bool:
    """Whether the id is that of a test, and not of a file that could not be read."""
    place = report.places.get(id)
    return place is None or bool(place.name)


def _words(tests: Mapping[str, set[str]], kinds: Mapping[str, str]) -> str:
    found = [
        f"{sorted(tests[kind])[0]}{f' (and {len(tests[kind]) - 1} more)' if len(tests[kind]) > 1 else ''} {words}"
        for kind, words in kinds.items()
        if tests[kind]
    ]
    return "; ".join(found)


def _evidence(tests: Mapping[str, set[str]]) -> str:
    fixed, still = len(tests["fixed"]), len(tests["preexisting"])
    words = f"{count(fixed, 'test')} that failed before {'passes' if fixed == 1 else 'pass'} now"
    rest = f"; {still} still {'fails' if still == 1 else 'fail'}, as before the run" if still else ""
    return (words if fixed else STATES["red", "green"][1]) + rest


def of_canary(broken: Collection[str], seen: Observed) -> str | None:
    """Returns why what was broken on purpose went unnoticed, or None where it was noticed.

    ``broken``: the tests that cannot pass, where they are known.
    """
    passed = sorted(set(broken) & seen.report.of("passed")) if seen.report else []
    if passed:
        return f"{passed[0]} was broken on purpose, and is reported to pass"
    if seen.state == "green":
        return "something that it must notice was broken on purpose, and it still succeeds"
    return None


def demoted(
    verdict: Verdict, why: str, suspicions: Sequence[Suspicion], accepted: Collection[str]
) -> tuple[Verdict, str]:
    """Returns the verdict, with suspicions that the request does not accept: then nothing in its favour is believed."""
    open_ones = [each for each in suspicions if each.kind not in accepted]
    if not open_ones or verdict not in SUFFICIENT["improved"]:
        return verdict, why
    first = open_ones[0]
    place = f"{first.path}:{first.line}" if first.line else first.path
    more = f" (and {len(open_ones) - 1} more)" if len(open_ones) > 1 else ""
    return "inconclusive", f"{place} may bend the checks ({first.kind}){more}; `accept` takes kinds that are right here"


def verdict_of(checks: Sequence[Check]) -> tuple[Verdict, str]:
    """Returns the verdict on all checks, and the reason where it is not ``verified``."""
    if not checks:
        return "unverified", ""
    of = {outcome: [check for check in checks if check.outcome == outcome] for outcome in get_args(CheckOutcome)}
    for outcome, verdict in WORST.items():
        if of[outcome]:
            return verdict, of[outcome][0].why
    failing = [*of["improved"], *of["preexisting"]]
    if failing:
        is_better = of["improved"] or of["evidence"]
        return "improved" if is_better else "inconclusive", failing[0].why
    if any(check.strength for check in of["evidence"]):
        return "verified", ""
    return "passed", next((check.why for check in of["no_regression"]), NO_COMMAND)


def with_as_left(judgement: Judgement, now: Observed, left: Observed | None) -> Judgement:
    """Returns the judgement, inconclusive where the check does better, or worse, on everything as it was left."""
    if left is None:
        return judgement
    is_short = judgement.outcome in ("refuted", "preexisting", "improved") or now.state == "trouble"
    if is_short and left.ok:  # the task may have been to change what is protected
        why = f"{judgement.why}; with the run's own changes at protected paths it succeeds (if the task asks for them, "
        why += "leave their paths out of your own `protect`)"
        return replace(judgement, outcome="inconclusive", why=why, is_open=False)
    if judgement.outcome in GOOD and (worse := _worse(now, left, judgement.tests.get("fixed", ()))):
        why = f"{judgement.why}, but with the run's own changes at protected paths {worse}"
        return replace(judgement, outcome="inconclusive", why=why, is_open=False)
    return judgement


def _worse(now: Observed, left: Observed, fixed: Collection[str]) -> str:
    """Returns what is worse as the run left it.

    A test may have another name, where as many pass in its file; but not one that is the evidence.
    """
    if now.ok and not left.ok:
        return "it does not succeed"
    seen, whole = (each.report or Report() for each in (now, left))
    passed, as_left = seen.of("passed"), whole.of("passed")
    kept = {_name(id) for id in as_left}
    many, then = (Counter(_file(id, report) for id in report.of("passed")) for report in (seen, whole))
    fewer = {file for file in many if then[file] < many[file]}
    gone = [id for id in passed - as_left if _name(id) not in kept]
    gone = sorted(id for id in gone if id in fixed or _file(id, seen) in fewer)
    return f"{count(len(gone), 'test')} less {'passes' if len(gone) == 1 else 'pass'}: {gone[0]}" if gone else ""


def _file(id: str, report: Report) -> str:
    place = report.places.get(id)
    return place.file if place and place.file else id.partition("::")[0]


def _name(id: str) -> str:
    """Returns a test's name without its file, which may have been moved, and without parameters."""
    in_file = id.partition("[")[0].partition("::")[2]
    return in_file or ".".join(id.split(".")[-2:])
