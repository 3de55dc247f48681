"""What follows from the states of a check: the table of outcomes, with tests known and not known."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from deputize.shared.facts import Check, CheckOutcome, GroundState, Suspicion, Verdict
from deputize.worker.verification.reports.states import Place, Report, TestState
from deputize.worker.verification.runners.execution import NO_TESTS_RAN, Observed
from deputize.worker.verification.verdict import STATES, Observations, demoted, of_canary, verdict_of, with_as_left

ONE: dict[str, Any] = {"a[1]": "passed"}
TWO: dict[str, Any] = {"a[1]": "passed", "a[2]": "passed"}
MIXED: dict[str, Any] = {"a[1]": "passed", "a[2]": "failed"}
UNREAD: dict[str, Any] = {"a.py": "failed"}
READ: dict[str, Any] = {"a.py::test": "passed"}
KNOWN: tuple[GroundState, ...] = ("green", "red", "trouble")


def seen(*, code: int | None = None, state: GroundState | None = None, finished: bool = True, **tests: Any) -> Observed:
    """A run of a known runner, whose exit code fits its tests unless it is given."""
    report = Report(tests=tests, finished=finished)
    failed = bool(report.of("failed"))
    code = int(failed) if code is None else code
    return Observed(state or ("red" if code or failed or not finished else "green"), code, report=report)


def outcome(before: Observed, now: Observed, **more: Any) -> tuple[str, dict[str, list[str]]]:
    judgement = Observations(before, now, **more).judge()
    return judgement.outcome, judgement.listed


def test_every_pair_of_states_has_an_outcome() -> None:
    assert set(STATES) == set(product(KNOWN, KNOWN))
    for before, now in STATES:
        assert Observations(Observed(before), Observed(now)).judge().outcome == STATES[before, now][0]


@pytest.mark.parametrize("state", get_args(GroundState))
def test_what_this_worker_cannot_run_decides_nothing(state: GroundState) -> None:
    unknown = Observed("unknown", why="no sandbox")
    for pair in ((unknown, Observed(state)), (Observed(state), unknown)):
        judgement = Observations(*pair).judge()
        assert (judgement.outcome, judgement.why) == ("inconclusive", "no sandbox")


@pytest.mark.parametrize(
    ("again", "found"),
    [
        ((Observed("green"), Observed("red")), "refuted"),
        ((Observed("red"), Observed("red")), "inconclusive"),
        ((Observed("green"), Observed("green")), "inconclusive"),
    ],
)
def test_a_command_that_differs_on_the_same_files_refutes_nothing(again: tuple[Observed, Observed], found: str) -> None:
    more = {"base_again": again[0], "candidate_again": again[1]}
    assert outcome(Observed("green"), Observed("red"), **more)[0] == found


@pytest.mark.parametrize(
    ("before", "now", "found", "listed"),
    [
        (seen(a="failed"), seen(a="passed"), "evidence", {"fixed": ["a"]}),
        (seen(a="passed"), seen(a="passed"), "no_regression", {}),
        (seen(a="passed"), seen(a="failed"), "refuted", {"failed": ["a"]}),
        (seen(a="passed", b="passed"), seen(a="passed"), "refuted", {"missing": ["b"]}),
        (seen(a="failed", b="passed"), seen(b="passed"), "refuted", {"missing": ["a"]}),
        (seen(a="passed"), seen(a="skipped"), "refuted", {"skipped": ["a"]}),
        (seen(a="failed"), seen(a="skipped"), "refuted", {"skipped": ["a"]}),
        (seen(a="passed", b="failed"), seen(a="skipped", b="passed"), "refuted", {"skipped": ["a"], "fixed": ["b"]}),
        (
            seen(a="failed", b="failed"),
            seen(a="skipped", b="passed"),
            "inconclusive",
            {"silenced": ["a"], "fixed": ["b"]},
        ),
        (seen(a="skipped"), seen(a="skipped"), "no_regression", {}),
        (seen(a="passed"), seen(a="passed", b="failed"), "refuted", {"failed": ["b"]}),
        (seen(a="failed"), seen(a="failed"), "preexisting", {"preexisting": ["a"]}),
        (
            seen(a="failed", b="failed"),
            seen(a="failed", b="passed"),
            "improved",
            {"fixed": ["b"], "preexisting": ["a"]},
        ),
        (
            seen(a="failed", b="passed"),
            seen(a="failed", b="failed"),
            "refuted",
            {"failed": ["b"], "preexisting": ["a"]},
        ),
        (seen(a="failed"), seen(a="failed", code=0), "preexisting", {"preexisting": ["a"]}),
        (seen(a="passed"), seen(a="passed", code=1), "refuted", {}),
        (seen(a="passed", code=2), seen(a="passed", code=2), "preexisting", {}),
        (seen(a="passed", code=2), seen(a="passed"), "evidence", {}),
        (seen(a="passed"), seen(a="passed", finished=False), "refuted", {}),
        (seen(a="passed"), Observed("green", 0), "refuted", {"missing": ["a"]}),
        (Observed("red", 1), seen(a="passed"), "evidence", {}),
        (Observed("green", 0), seen(a="failed"), "refuted", {"failed": ["a"]}),
        (seen(state="trouble", a="passed"), seen(state="trouble"), "inconclusive", {}),
        (seen(a="passed"), seen(state="trouble", a="passed"), "refuted", {}),
        (seen(**TWO), seen(**ONE), "no_regression", {}),
        (seen(**MIXED), seen(**ONE), "no_regression", {}),
    ],
    ids=str,
)
def test_where_tests_are_known_each_of_them_counts(
    before: Observed, now: Observed, found: str, listed: dict[str, list[str]]
) -> None:
    assert outcome(before, now) == (found, listed)


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (seen(a="failed"), seen(a="passed"), "1 test that failed before passes now"),
        (seen(a="failed", b="failed"), seen(a="passed", b="passed"), "2 tests that failed before pass now"),
        (
            seen(a="failed", b="failed"),
            seen(a="failed", b="passed"),
            "1 test that failed before passes now; 1 still fails, as before the run",
        ),
        (seen(a="passed", code=2), seen(a="passed"), "it failed before the run and succeeds now"),
    ],
)
def test_evidence_is_stated_with_what_still_fails(before: Observed, now: Observed, why: str) -> None:
    assert Observations(before, now).judge().why == why


def test_a_test_of_the_check_itself_must_pass_whatever_it_did_before() -> None:
    before, now = seen(own="failed", other="failed"), seen(own="failed", other="failed")
    assert now.report
    now.report.places.update(own=Place("/workspace/tests/own.py", "test"), other=Place("/workspace/other.py", "test"))
    assert outcome(before, now) == ("preexisting", {"preexisting": ["other", "own"]})
    assert outcome(before, now, own_files=["tests/own.py"])[0] == "refuted"


def test_a_file_that_could_not_be_read_before_is_no_missing_test() -> None:
    before, now = seen(**UNREAD), seen(**READ)
    assert before.report
    before.report.places["a.py"] = Place("/workspace/a.py", "")
    assert outcome(before, now) == ("evidence", {"fixed": ["a.py::test"]})


def test_a_test_that_flickers_on_the_base_is_listed_and_not_counted() -> None:
    before, now = seen(a="passed", b="passed"), seen(a="failed", b="passed")
    again = {"base_again": seen(a="failed", b="passed"), "candidate_again": now}
    assert outcome(before, now, **again) == ("inconclusive", {"flickering": ["a"]})
    both = seen(a="failed", b="failed")
    assert outcome(before, both, **again | {"candidate_again": both})[0] == "refuted"


def test_a_test_that_flickers_on_the_candidate_alone_decides_nothing() -> None:
    before, now = seen(a="passed"), seen(a="failed")
    more = {"base_again": before, "candidate_again": seen(a="passed")}
    assert outcome(before, now, **more) == ("inconclusive", {"unsteady": ["a"]})


def placed(found: Observed, **files: str) -> Observed:
    assert found.report
    found.report.places.update({id: Place(f"/workspace/{file}", "test") for id, file in files.items()})
    return found


def test_what_fails_by_chance_before_and_passes_by_chance_now_is_no_evidence() -> None:
    before, now = seen(a="failed", b="passed"), seen(a="passed", b="passed")
    assert outcome(before, now, base_again=before)[0] == "evidence"
    assert outcome(before, now, base_again=now) == ("no_regression", {"flickering": ["a"]})
    assert outcome(Observed("red", 1), Observed("green", 0), base_again=Observed("green", 0))[0] == "inconclusive"


def test_a_test_that_the_run_has_written_proves_nothing() -> None:
    before, now = seen(a="failed"), placed(seen(a="passed"), a="tests/a.py")
    assert outcome(before, now, changed=["b.py"]) == ("evidence", {"fixed": ["a"]})
    assert outcome(before, now, changed=["tests/a.py"])[0] == "inconclusive"
    assert outcome(before, now, changed=["tests/a.py"], own_files=["tests/a.py"])[0] == "evidence"
    nothing = Observed("trouble", 5, report=Report(), why=NO_TESTS_RAN)
    assert outcome(nothing, now, changed=["tests/a.py"])[0] == "inconclusive"
    unplaced = placed(seen(a="passed"))
    assert unplaced.report
    unplaced.report.places["a"] = Place("", "a")
    assert outcome(before, unplaced, beside_code=None)[0] == "inconclusive"
    assert outcome(before, unplaced, beside_code={"a"})[0] == "inconclusive"
    assert outcome(before, unplaced, beside_code={"b"})[0] == "evidence"


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        (seen(a="passed", b="passed"), "assertion"),
        (seen(a="skipped", b="passed"), "skip"),
        (seen(b="passed"), "cases"),
    ],
)
def test_what_the_request_lets_the_run_do_to_tests_leaves_a_verdict_that_is_passed(now: Observed, kind: str) -> None:
    before, now = placed(seen(a="failed", b="passed"), a="a.py", b="a.py"), placed(now, a="a.py", b="a.py")
    refused = outcome(before, now, changed=["a.py"], accepted={"assertion", "skip", "cases"} - {kind})[0]
    assert refused in ("inconclusive", "refuted")
    assert outcome(before, now, changed=["a.py"], accepted=[kind])[0] == "no_regression"
    assert outcome(before, placed(seen(a="failed", b="failed"), b="a.py"), accepted=[kind])[0] == "refuted"


@pytest.mark.parametrize(("kind", "now"), [("skip", seen(a="skipped", c="passed")), ("cases", seen(c="passed"))])
def test_only_tests_of_changed_files_may_be_skipped_or_removed(kind: str, now: Observed) -> None:
    before = placed(seen(a="passed", c="passed"), a="a.py", c="c.py")
    found = Observations(before, now, changed=["a.py"]).judge()
    assert found.outcome != "no_regression"
    assert Observations(before, now, changed=["a.py"], accepted=[kind]).judge().outcome == "no_regression"
    assert Observations(before, now, changed=["b.py"], accepted=[kind]).judge().outcome == "refuted"


def test_the_reason_names_the_kind_that_the_request_may_accept() -> None:
    before, now = placed(seen(a="passed", c="passed"), a="a.py", c="c.py"), seen(c="passed")
    assert "`accept` takes cases" in Observations(before, now, changed=["a.py"]).judge().why
    before, now = placed(seen(a="failed"), a="a.py"), placed(seen(a="passed"), a="a.py")
    assert "`accept` takes assertion" in Observations(before, now, changed=["a.py"]).judge().why


def test_a_test_that_is_gone_with_its_file_is_refuted_only_if_it_failed() -> None:
    before, now = placed(seen(a="passed", b="failed", c="passed"), a="tests/a.py", b="tests/a.py"), seen(c="passed")
    assert outcome(before, now)[1] == {"missing": ["a", "b"]}
    assert outcome(before, now, changed=["tests/a.py"]) == ("refuted", {"missing": ["b"], "removed": ["a"]})
    before, now = placed(seen(a="passed", c="passed"), a="tests/a.py"), seen(c="passed")
    assert outcome(before, now, changed=["tests/a.py"]) == ("inconclusive", {"removed": ["a"]})


def test_a_test_that_was_left_out_before_may_have_failed_then() -> None:
    before, now = seen(a="failed"), seen(a="passed", b="failed")
    assert outcome(before, now)[0] == "refuted"
    assert before.report
    before.report.stopped = True
    assert outcome(before, now) == ("inconclusive", {"fixed": ["a"], "unseen": ["b"]})


def test_a_runner_of_tests_that_cannot_be_read_is_not_refuted_by_what_failed_before() -> None:
    assert outcome(Observed("red"), Observed("red"), is_unreadable=True)[0] == "preexisting"
    assert outcome(Observed("green"), Observed("red"), is_unreadable=True)[0] == "refuted"


def test_where_no_tests_ran_nothing_is_decided_unless_there_were_some() -> None:
    nothing = Observed("trouble", 0, report=Report(), why=NO_TESTS_RAN)
    unread = seen(**UNREAD)
    assert unread.report
    unread.report.places["a.py"] = Place("/workspace/a.py", "")
    assert outcome(unread, nothing)[0] == "inconclusive"
    assert outcome(seen(a="passed"), nothing)[0] == "refuted"


def test_places_from_before_the_run_are_believed_first() -> None:
    before, now = placed(seen(a="failed"), a="tests/a.py"), placed(seen(a="passed", b="passed"), a="x.py", b="b.py")
    found = Observations(before, now)
    assert found.placed
    assert [found.placed.places[id].file for id in "ab"] == ["/workspace/tests/a.py", "/workspace/b.py"]
    assert found.new_passes == {"a", "b"}


def test_a_runner_that_ends_in_two_ways_decides_nothing() -> None:
    before, now = seen(a="passed"), seen(a="passed", finished=False)
    more = {"base_again": before, "candidate_again": seen(a="passed")}
    assert outcome(before, now, **more)[0] == "inconclusive"


@pytest.mark.parametrize(
    ("broken", "found", "is_noticed"),
    [
        (["a"], seen(a="failed"), True),
        (["a"], seen(a="passed"), False),
        (["a"], seen(a="passed", code=1), False),
        ([], Observed("green", 0), False),
        ([], Observed("red", 1), True),
        ([], Observed("trouble"), True),
    ],
)
def test_a_canary_must_not_pass(broken: list[str], found: Observed, is_noticed: bool) -> None:
    assert (of_canary(broken, found) is None) is is_noticed


def checks(*outcomes: CheckOutcome) -> list[Check]:
    return [Check(item={}, outcome=each, why=f"why {each}", strength="tests") for each in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([], "unverified"),
        (["evidence"], "verified"),
        (["no_regression", "evidence"], "verified"),
        (["no_regression"], "passed"),
        (["improved"], "improved"),
        (["improved", "evidence", "no_regression"], "improved"),
        (["evidence", "preexisting"], "improved"),
        (["preexisting"], "inconclusive"),
        (["preexisting", "no_regression"], "inconclusive"),
        (["evidence", "inconclusive"], "inconclusive"),
        (["improved", "inconclusive"], "inconclusive"),
        (["evidence", "inconclusive", "refuted"], "refuted"),
        (["evidence", "tampered"], "refuted"),
    ],
)
def test_every_command_must_succeed_and_one_must_have_failed_before(outcomes: list[CheckOutcome], verdict: str) -> None:
    found, why = verdict_of(checks(*outcomes))
    assert found == verdict
    assert bool(why) is (verdict not in ("verified", "unverified"))


@pytest.mark.parametrize("outcomes", [*product(get_args(CheckOutcome), repeat=2)])
def test_a_check_beside_another_never_improves_what_it_is_alone(outcomes: tuple[CheckOutcome, CheckOutcome]) -> None:
    order = ("refuted", "inconclusive", "improved", "passed", "verified")
    together = order.index(verdict_of(checks(*outcomes))[0])
    alone = [order.index(verdict_of(checks(each))[0]) for each in outcomes]
    proves = "evidence" in outcomes or "improved" in outcomes
    assert together <= max(alone)
    assert together == min(alone) or proves
    assert order[together] not in ("verified", "passed") or {*outcomes} <= {"evidence", "no_regression"}


def test_files_as_demanded_are_no_evidence_about_what_they_do() -> None:
    of_file = Check(item={}, outcome="evidence", why="it failed before the run and succeeds now")
    assert verdict_of([of_file])[0] == "passed"
    assert verdict_of([of_file, *checks("no_regression")])[0] == "passed"
    assert verdict_of([of_file, *checks("preexisting")])[0] == "improved"
    assert verdict_of([of_file, *checks("evidence")])[0] == "verified"


@pytest.mark.parametrize(
    ("now", "left", "found"),
    [
        (seen(a="passed"), seen(a="passed"), "evidence"),
        (seen(a="passed"), seen(a="passed", b="passed"), "evidence"),
        (seen(a="passed"), seen(b="passed"), "inconclusive"),
        (seen(a="passed", b="passed"), seen(a="passed"), "inconclusive"),
        (seen(a="passed"), seen(a="failed"), "inconclusive"),
        (seen(a="passed"), seen(a="passed", code=1), "inconclusive"),
        (seen(a="passed"), Observed("trouble", 4, why="it could not be started (exit code 127)"), "inconclusive"),
        (Observed("green", 0), Observed("red", 1), "inconclusive"),
        (Observed("green", 0), Observed("green", 0), "evidence"),
    ],
    ids=str,
)
def test_what_fails_as_the_run_left_it_proves_nothing(now: Observed, left: Observed, found: str) -> None:
    before = seen(a="failed") if now.report else Observed("red", 1)
    judgement = with_as_left(Observations(before, now).judge(), now, left)
    assert judgement.outcome == found
    assert ("with the run's own changes" in judgement.why) is (found == "inconclusive")


@pytest.mark.parametrize("now", [seen(a="failed"), seen(a="passed", b="failed"), seen(a="skipped")], ids=str)
def test_what_succeeds_only_as_the_run_left_it_is_not_decided(now: Observed) -> None:
    judgement = Observations(seen(a="failed", b="failed"), now).judge()
    assert with_as_left(judgement, now, seen(a="passed")).outcome == "inconclusive"
    assert with_as_left(judgement, now, seen(a="failed")).outcome == judgement.outcome


def test_a_script_that_only_the_run_wrote_is_named_as_what_is_missing() -> None:
    gone = Observed("trouble", 127, why="it could not be started (exit code 127)")
    judgement = with_as_left(Observations(gone, gone).judge(), gone, Observed("green", 0))
    assert "with the run's own changes at protected paths it succeeds" in judgement.why


@pytest.mark.parametrize(
    ("left", "found"),
    [
        (["t::fixed", "t::new"], "evidence"),
        (["t::fixed"], "inconclusive"),
        (["t::fixed", "u::new"], "inconclusive"),
        (["t::old", "t::new"], "inconclusive"),
    ],
)
def test_a_test_may_have_another_name_where_as_many_pass_in_its_file(left: list[str], found: str) -> None:
    before: dict[str, Any] = {"t::fixed": "failed", "t::old": "passed"}
    after: dict[str, Any] = dict.fromkeys(before, "passed")
    whole: dict[str, Any] = dict.fromkeys(left, "passed")
    judgement = Observations(seen(**before), now := seen(**after)).judge()
    assert with_as_left(judgement, now, seen(**whole)).outcome == found


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_a_suspicion_that_is_not_accepted_takes_every_success_away(verdict: Verdict) -> None:
    skip, leave = Suspicion(path="a.py", line=3, kind="skip"), Suspicion(path="b.py", kind="exit")
    assert demoted(verdict, "why", [], []) == (verdict, "why")
    assert demoted(verdict, "why", [skip, leave], ["exit", "skip"]) == (verdict, "why")
    found, why = demoted(verdict, "why", [skip, leave], ["skip"])
    succeeds = verdict in ("verified", "passed", "improved")
    assert found == ("inconclusive" if succeeds else verdict)
    assert why.startswith("b.py may bend the checks (exit)" if succeeds else "why")


def test_a_test_is_not_the_runs_own_because_a_changed_file_elsewhere_has_its_name() -> None:
    place = Place("/workspace/test/s.js", "adds")
    before = Observed("red", 1, report=Report({"adds": "failed"}, {"adds": place}))
    now = Observed("green", 0, report=Report({"adds": "passed"}, {"adds": place}))
    assert Observations(before, now, changed=["s.js"]).judge().outcome == "evidence"
    assert Observations(before, now, changed=["test/s.js"]).judge().tests["fixed"] == set()


def observed(report: Report, state: GroundState = "green", rewritten: frozenset[str] = frozenset()) -> Observed:
    return Observed(state, 0 if state == "green" else 1, report=report, rewritten=rewritten)


@pytest.mark.parametrize(
    ("on_base", "now", "why"),
    [
        (
            {},
            {"bent": frozenset({"unittest.case.TestCase.assertEqual"})},
            "unittest.case.TestCase.assertEqual was replaced",
        ),
        ({"bent": frozenset({"a.b", "a.d"})}, {"bent": frozenset({"a.b"})}, ""),
        ({"bent": frozenset({"a.b"})}, {"bent": frozenset({"a.b", "a.c"})}, "a.c was replaced"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_library_that_was_replaced_takes_a_good_outcome_back(
    on_base: dict[str, Any], now: dict[str, Any], why: str, again: bool
) -> None:
    base = observed(Report({"a": "failed"}, **on_base), "red")
    bent = observed(Report({"a": "passed"}, **now))
    plain = observed(Report({"a": "passed"}))
    found = Observations(base, plain if again else bent, candidate_again=bent if again else None).judge()
    assert (found.outcome, found.why.startswith(why)) == ("inconclusive" if why else "evidence", True)


@pytest.mark.parametrize(("before", "outcome"), [(frozenset[str](), "inconclusive"), (frozenset({"t.py"}), "evidence")])
def test_a_file_of_tests_that_is_changed_meanwhile_takes_a_good_outcome_back(
    before: frozenset[str], outcome: str
) -> None:
    base = observed(Report({"a": "failed"}), "red", before)
    found = Observations(base, observed(Report({"a": "passed"}), rewritten=frozenset({"t.py"}))).judge()
    assert (found.outcome, "t.py was changed" in found.why) == (outcome, outcome == "inconclusive")


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        ({"new.py::t": "passed"}, "evidence"),
        ({"new.py::t": "passed", "new.py::u": "skipped"}, "evidence"),
        ({"new.py::t": "passed", "new.py::u[NOTSET]": "skipped"}, "inconclusive"),
        ({"new.py::t": "skipped"}, "inconclusive"),
        ({}, "inconclusive"),
    ],
)
def test_a_file_that_could_not_be_loaded_must_show_a_passing_test(now: dict[str, TestState], outcome: str) -> None:
    places = {id: Place("/workspace/new.py", "t") for id in now} | {"old.py::t": Place("/workspace/old.py", "t")}
    before = Report({"new.py": "failed", "old.py::t": "passed"}, {"new.py": Place("/workspace/new.py", "")})
    found = Observations(observed(before, "red"), observed(Report({**now, "old.py::t": "passed"}, places))).judge()
    assert found.outcome == outcome
