"""Which turns of a run can be begun with: those before the first and after the last change of files."""

from __future__ import annotations

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.delegation import Delegation, Status
from deputize.shared.errors import Conflict
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest, Limits
from deputize.shared.runs.record import FileTurns, files_before
from deputize.shared.wire import now


def changed(*turns: int, lasting: bool = False) -> FileTurns:
    made = FileTurns()
    for turn in turns:
        made = made.with_turn(turn, lasting=lasting)
    return made


@pytest.mark.parametrize(
    ("made", "known", "words"),
    [
        (changed(), ["end"] * 6, "1 to 6"),
        (changed(3), ["start"] * 3 + ["end"] * 3, "1 to 6"),
        (changed(2, 4, 3), ["start"] * 2 + [None] * 2 + ["end"] * 2, "1 to 2 and 5 to 6"),
        (changed(1, 5), ["start"] + [None] * 4 + ["end"], "1 and 6"),
        (changed(2, lasting=True), ["start"] * 2 + [None] * 4, "1 to 2"),
    ],
    ids=["never", "once", "between", "nearly always", "in the background"],
)
def test_the_turns_that_can_be_begun_with(made: FileTurns, known: list[str | None], words: str) -> None:
    kept = FileTurns.from_json(made.to_json())
    assert kept is not None
    assert [kept.before(turn) for turn in range(1, 7)] == known
    if None in known:
        assert kept.choices(6) == words


def test_of_an_older_run_nothing_is_known() -> None:
    assert FileTurns.from_json(None) is None


async def test_a_run_whose_changes_were_not_recorded_is_refused_with_what_is_possible() -> None:
    request = DelegationRequest(task="x")
    earlier = Delegation(
        id=new_id(), status=Status.SUCCEEDED, created_at=now(), request=request, effective_limits=Limits()
    )
    with pytest.raises(Conflict, match=f"`deputize retry {earlier.id}` starts from the first"):
        await files_before(FakeAsyncRedis(decode_responses=True), earlier, 1)
