"""What the view of one delegation makes of events: its tree, bars, causes, and the Markdown of summaries."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason, Usage
from deputize.shared.events import (
    AnyEvent,
    CheckCompleted,
    ErrorSeen,
    ModelRetried,
    PermissionAnswered,
    Replied,
    ResumedWaiting,
    RunQueued,
    RunResumed,
    RunRetried,
    StepStarted,
    TextDelta,
    TurnStarted,
    Waiting,
)
from deputize.shared.facts import Check, FileChange, StepChange, SummaryClaim, Verification
from deputize.shared.limits import Limits
from deputize.shared.request import After, DelegationRequest
from tests.orchestrator.web.modules import BEGAN, ID, asked, call, ended, events, finished, question, reply, started

REQUEST = DelegationRequest(task="x", after=[After(id="dlg_01k9zxv3q8h4t7m2n5p6r8s9t0")])
LINE = [
    (0, RunQueued(request=REQUEST)),
    (100, started()),
    (100, TurnStarted(turn=1)),
    (101, ModelRetried(turn=1, error="overloaded", delay_seconds=1.5)),
    (103, reply(1, "First.", "a", "b")),
    (103, StepStarted(step=call("a", 1, 103))),
    (103, StepStarted(step=call("b", 1, 103))),
    (104, question(104, call("b", 1, 103))),
    (104, Waiting(why="permission", detail="$ b (prm_1)")),
    (105, ended("a", 1, 103)),
    (106, PermissionAnswered(permission_id="prm_1", path=[ID], outcome="cancel", reason="no", by="ci")),
    (106, ResumedWaiting(seconds=2)),
    (106, ended("b", 1, 103, error="denied by ci", denied=True)),
    (106, TurnStarted(turn=2)),
    (107, Waiting(why="rate", detail="HTTP 529")),
    (110, ResumedWaiting(seconds=3)),
    (111, ErrorSeen(message="the endpoint fails", kind="rate")),
    (115, RunResumed(worker="w-2", from_turn=2, reason="the worker was lost")),
    (115, TurnStarted(turn=2)),
    (118, reply(2, "Second.", "c", cost=1.0)),
    (118, StepStarted(step=call("c", 2, 118))),
]


def test_events_become_a_tree_of_turns_steps_waits_and_retries() -> None:
    rows, bars, heats = asked(("rows", events(*LINE)), ("bars", events(*LINE), 120), ("heats", events(*LINE)))
    assert rows == [
        ["wait idle Waits for 1 delegation: began on w-1 with m", 0, 100],
        ["turn idle Turn 1: First.", 100, 106],
        ["  retry warn Asks the model again: overloaded", 101, 102.5],
        ["  step good $ a", 103, 105],
        ["  step warn $ b: denied by ci", 103, 106],
        ['  wait bad Waits for permission: denied by token "ci": no, $ b', 104, 106],
        ["turn live Turn 2: Second.", 106, None],
        ["  wait idle Waits for the model's endpoint: HTTP 529", 107, 110],
        ["  note bad the endpoint fails", 111, 111],
        ["  retry warn Taken over at turn 2: the worker was lost, then on w-2", 111, 115],
        ["  step live $ c", 118, None],
    ]
    # The queue took longer than the work: only its end is drawn.
    assert bars[:2] == ["0+17 cut", "17+25"]
    assert (bars[6], bars[10]) == ("42+58 open", "92+8 open")
    assert heats == [0.5, 1]


STREAMED = [(1, TextDelta(turn=1, text="The release ")), (2, TextDelta(turn=1, text="is ready."))]
REPLIED = (3, reply(1, "The release is ready."))
FRAMES: list[tuple[str, list[tuple[float, AnyEvent]]]] = [
    ("in order", [*STREAMED, REPLIED]),
    ("after the reply, which was read from the store", [REPLIED, *STREAMED]),
    ("around the reply", [STREAMED[0], REPLIED, STREAMED[1]]),
    (
        "twice, as the model was asked again",
        [STREAMED[0], (1, ModelRetried(turn=1, error="x", delay_seconds=1)), *STREAMED],
    ),
    ("twice, as the turn began again", [*STREAMED, (2, TurnStarted(turn=1)), *STREAMED]),
]


def test_the_text_of_a_reply_is_there_once_however_its_frames_arrive() -> None:
    shown = asked(*(("rows", events((0, TurnStarted(turn=1)), *frames)) for _, frames in FRAMES))
    titles = [rows[0][0].split(" ", 2)[2] for rows in shown]
    assert titles == ["Turn 1: The release is ready."] * len(FRAMES)


def test_the_axis_of_a_run_that_goes_on_moves_only_now_and_then() -> None:
    times = [100, 100.1, 104, 141, 142, 146]
    (ends,) = asked(("ahead", events(*LINE), times))
    assert all(end > time for time, end in zip(times, ends, strict=True))
    assert (ends[0], ends[3]) == (ends[1], ends[4])
    assert ends[-1] < 150


def test_a_child_that_was_known_before_its_call_is_below_it() -> None:
    request = {"task": "help", "idempotencyKey": f"{ID}:1:a"}
    child = {"id": "dlg_c", "parent": ID, "createdAt": BEGAN.isoformat(), "status": "running", "request": request}
    happened = events((0, TurnStarted(turn=1)), (1, StepStarted(step=call("a", 1, 1))))
    (rows,) = asked(("attached", happened, child | {"progress": {"costUsd": 0}}))
    assert rows == ["0 turn", "1 step", "2 child"]


def test_calls_of_two_turns_are_two_steps_though_an_endpoint_uses_one_id_for_both() -> None:
    (rows,) = asked(
        (
            "rows",
            events(
                (0, TurnStarted(turn=1)),
                (1, ended("call_0", 1, 0)),
                (2, TurnStarted(turn=2)),
                (3, ended("call_0", 2, 2)),
            ),
        )
    )
    titles = [title for title, *_ in rows]
    assert titles == ["turn idle Turn 1", "  step good $ call_0", "turn live Turn 2", "  step good $ call_0"]


def test_another_try_has_turns_and_steps_of_its_own_and_checks_stand_beside_turns() -> None:
    again = RunRetried(reason=TerminationReason.ERROR, error="it broke", retry=1, of=2, delay_seconds=5)
    answered = events((9, TurnStarted(turn=2)), (10, reply(2, "Done.")))
    rows, over = asked(
        (
            "rows",
            events(
                (0, TurnStarted(turn=1)),
                (1, reply(1, "", "a")),
                (1, StepStarted(step=call("a", 1, 1))),
                (2, again),
                (7, TurnStarted(turn=1)),
                (8, reply(1, "", "a")),
                (8, ended("a", 1, 8)),
                (9, TurnStarted(turn=2)),
                (10, reply(2, "Done.")),
                (12, CheckCompleted(check=0, on="base", ok=False, exit_code=1)),
                (14, CheckCompleted(check=0, on="candidate", ok=False, exit_code=1)),
                (15, CheckCompleted(check=0, on="canary", ok=False, exit_code=1)),
            ),
        ),
        ("rows", answered),
    )
    assert over == [["turn idle Turn 2: Done.", 9, 10]]  # while its checks run, too
    assert rows == [
        ["turn idle Turn 1", 0, 2],
        ["  step warn $ a", 1, 2],
        ["retry bad Done again from the start, 1 of 2: after error: it broke", 2, 7],
        ["turn idle Turn 1", 7, 8],
        ["  step good $ a", 8, 8],
        ["turn idle Turn 2: Done.", 9, 10],
        ["check idle Check 1 before the run: failed, exit code 1", 10, 12],
        ["check bad Check 1 with the changes: failed, exit code 1", 12, 14],
        ["check good Check 1 with something broken: failed, exit code 1", 14, 15],
    ]


def change(path: str) -> dict[str, Any]:
    return {"changes": [StepChange(path=path, change="modified", added=1, removed=1)]}


WORK = [
    (0, started(Limits(max_turns=2))),
    (0, TurnStarted(turn=1)),
    (1, reply(1, "I change the price.\nThen more.", "a", cost=0.25)),
    (1, ended("a", 1, 1, **change("shop/pricing.py"))),
    (3, TurnStarted(turn=2)),
    (4, reply(2, "Now the docs.", "b", "c")),
    (9, ended("b", 2, 4, title="$ make docs", **change("README.md"))),
    (10, ended("c", 2, 9, title="$ make docs", error="exit code 2")),
    (10, ended("d", 2, 10, title="edit README.md", **change("README.md"))),
]


def test_what_began_while_the_page_was_open_has_its_cost_from_the_first_reply_on() -> None:
    queued = [(0, RunQueued(request=REQUEST)), *WORK]
    unpriced = (3, Replied(turn=1, text="", stop_reason="end_turn", usage=Usage(cost_usd=None)))
    assert asked(("cost", events(*queued)), ("cost", events(*queued[:3], unpriced, *WORK[4:]))) == [[0.75], [None]]


def test_a_list_that_was_made_before_an_event_does_not_take_it_back() -> None:
    assert asked(("overtaken", events((0, RunQueued(request=REQUEST)), *WORK[:2]))) == [[["running", 1]]]


CHANGES = [FileChange(path=path, change="modified") for path in ("shop/pricing.py", "README.md")]
FAILED = Check(
    item={"kind": "command", "run": "make test"},
    outcome="refuted",
    why="1 test fails",
    output_tail="FAILED test_pricing.py::test_100",
    tests={"failed": ["test_pricing.py::test_100"]},
)
ENDINGS: list[tuple[TerminationReason, list[str]]] = [
    (
        TerminationReason.MAX_TURNS,
        ["The limit maxTurns of 2 was reached", "2 times: $ make docs", "Failed: $ make docs: exit code 2"],
    ),
    (
        TerminationReason.TIMEOUT,
        ["The limit timeoutSeconds of 600 was reached", "5 s: $ make docs", "1 s: $ make docs"],
    ),
    (TerminationReason.BUDGET, ["The budget of tokens or dollars was used up", "$0.5: Turn 2", "$0.25: Turn 1"]),
    (TerminationReason.COMPLETED, ["The model ended its work: its last reply has no more calls"]),
    (TerminationReason.CANCELLED, ["It was cancelled"]),
    (TerminationReason.ERROR, ["It ended with error"]),
]


def test_why_leads_from_the_end_a_check_or_a_file_to_the_step_and_its_turn() -> None:
    refuted = finished(
        TerminationReason.COMPLETED, file_changes=CHANGES, verification=Verification(verdict="refuted", checks=[FAILED])
    )
    work = events(*WORK, (20, refuted))
    whys = [("ended", events(*WORK, (20, finished(reason)))) for reason, _ in ENDINGS]
    *ends, checked, changed, steps, unknown = asked(
        *whys,
        ("checked", work, 0),
        ("changed", work, "README.md"),
        ("steps", work, "README.md"),
        ("changed", work, "x.py"),
    )
    assert [causes[: len(wanted)] for causes, (_, wanted) in zip(ends, ENDINGS, strict=True)] == [
        wanted for _, wanted in ENDINGS
    ]
    assert checked == [
        "refuted: 1 test fails",
        "failed: test_pricing.py::test_100",
        "shop/pricing.py: Last changed by $ a",
        "Turn 1: “I change the price.”",
    ]
    turn = "Turn 2: “Now the docs.”"
    assert changed == ["Last changed by edit README.md", turn, "Changed by $ make docs", turn]
    assert steps == ["d", None, "b", None]
    assert unknown == ["No step's events have this change; a command in the background may have made it"]


def test_a_queued_row_has_the_reason_why_none_can_begin() -> None:
    item = {"status": "queued", "progress": {}}
    draining, alive = {"draining": True}, {"draining": False}
    reasons = asked(*(("held", item, workers) for workers in ([draining], [], [draining, alive])))
    assert reasons == ["every worker is draining", "no worker is alive", ""]
    assert asked(("held", item | {"waitsFor": ["dlg_a"]}, [])) == ["waits for 1 delegation"]


REFUTED_CLAIM = SummaryClaim(claim="All tests pass", evidence=None, verdict="refuted")
UNDECIDED = Verification(verdict="inconclusive", why="it was green before", claims=[REFUTED_CLAIM])
ROWS: list[tuple[TerminationReason, dict[str, Any], list[list[str]], str]] = [
    (TerminationReason.MAX_TURNS, {"turn_count": 30}, [], "30 turns used — Changed a.py: fixed"),
    (TerminationReason.MAX_TOOL_CALLS, {"tool_call_count": 1}, [], "1 call used — Changed a.py: fixed"),
    (TerminationReason.WRAPPED_UP, {}, [], "wrapped up — Changed a.py: fixed"),
    (TerminationReason.CANCELLED, {}, [], "Changed a.py: fixed"),
    (
        TerminationReason.COMPLETED,
        {"errors": ["$ x: denied: no one answered within 300 s"], "denied_call_count": 1},
        [],
        "permission expired — 1 call denied — Changed a.py: fixed",
    ),
    (
        TerminationReason.COMPLETED,
        {"verification": UNDECIDED, "status": Status.SUCCEEDED},
        [["1 claim refuted", "failed"]],
        "it was green before — Changed a.py: fixed",
    ),
    (
        TerminationReason.COMPLETED,
        {"verification": Verification(verdict="refuted", checks=[FAILED])},
        [],
        "1 test fails — Changed a.py: fixed",
    ),
]


def test_the_row_of_an_ended_run_has_the_facts_before_the_words_of_the_agent() -> None:
    results = [finished(reason, summary="## Changed\n- `a.py`: **fixed**", **more).result for reason, more, *_ in ROWS]
    rows = asked(*(("row", result.to_dict()) for result in results))
    assert rows == [[badges, text] for *_, badges, text in ROWS]


def em(name: str, *parts: Any) -> dict[str, Any]:
    return {"name": name, "parts": list(parts)}


MARKDOWN: list[tuple[str, list[Any]]] = [
    ("## A `b` #", [{"name": "heading", "level": 2, "parts": ["A ", em("code", "b")]}]),
    (
        "one **two *three*** _four_\nfive",
        [em("p", "one ", em("strong", "two ", em("em", "three")), " ", em("em", "four"), "\nfive")],
    ),
    *(
        (text, [em("p", text)])
        for text in (
            "snake_case_name, a_b_ and 2 * 3 * 4 **open",
            "not '**/*', **/*.py, tests/** nor src/*/test_*.py",
            "*.py, a*b*c and **/x or y/**",
        )
    ),
    (
        "[x](javascript:x) ![i](https://e.org/i.png) <b>",
        [em("p", "x (javascript:x)", " ", "i (https://e.org/i.png)", " <b>")],
    ),
    ("```js\na\n\n  *b*\n```\nc", [{"name": "pre", "text": "a\n\n  *b*"}, em("p", "c")]),
    ("| a |\n|---|", [{"name": "pre", "text": "| a |\n|---|"}]),
    ("---\n> a\n> b", [{"name": "hr"}, {"name": "quote", "blocks": [em("p", "a\nb")]}]),
    (
        "- a\n  - b\n\n  c\n- d\n2. e",
        [
            {
                "name": "list",
                "start": None,
                "items": [
                    [em("p", "a"), {"name": "list", "start": None, "items": [[em("p", "b")]]}, em("p", "c")],
                    [em("p", "d")],
                ],
            },
            {"name": "list", "start": "2", "items": [[em("p", "e")]]},
        ],
    ),
]


def test_markdown_has_no_links_no_images_and_no_markup() -> None:
    assert asked(*(("blocks", text) for text, _ in MARKDOWN)) == [wanted for _, wanted in MARKDOWN]


@pytest.mark.timeout(20)
def test_no_text_takes_the_page_more_than_a_moment() -> None:
    signs = ("*", "`", "[", "_a", "**a ", "`a``b", "*a *", "![a](", "- ", "> ", "- a\n", " - \n\n", "#", "|")
    hostile = [sign * (19_000 // len(sign)) for sign in signs] + [sign * (99_000 // len(sign)) for sign in signs]
    assert len(asked(*(("blocks", text) for text in hostile))) == 2 * len(signs)
