"""Which turns of a run can be begun with: those before which the content of every file is kept."""

from __future__ import annotations

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.delegation import Delegation, Status
from deputize.shared.errors import Conflict
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.record import FileTurns, files_before
from deputize.shared.wire import now


def changed(*changes: tuple[int, str]) -> FileTurns:
    made = FileTurns()
    for turn, lacks in changes:
        made = made.changed(turn, lacks)
    return made


@pytest.mark.parametrize(
    ("made", "lacking", "words"),
    [
        (changed(), [""] * 6, "1 to 6"),
        (changed((1, ""), (3, "")), [""] * 6, "1 to 6"),
        (changed((2, "big"), (4, "")), ["", "", "big", "big", "", ""], "1 to 2, 5 to 6"),
        (changed((2, "big"), (2, "")), [""] * 6, "1 to 6"),
        (changed((1, "a"), (2, "b"), (5, "b")), ["", "a", "b", "b", "b", ""], "1, 6"),
        (changed((1, "a"), (6, "a")), ["", *"aaaaa"], "1"),
    ],
    ids=["never", "all kept", "one gone again", "gone in the turn", "nearly all", "all"],
)
def test_the_turns_that_can_be_begun_with(made: FileTurns, lacking: list[str], words: str) -> None:
    kept = FileTurns.from_json(made.to_json())
    assert kept is not None
    assert kept == made
    assert [kept.lacks(turn) for turn in range(1, 7)] == lacking
    assert kept.choices(6) == words


@pytest.mark.parametrize("text", [None, "[2, 5]"])
def test_of_an_older_run_nothing_is_known(text: str | None) -> None:
    assert FileTurns.from_json(text) is None


async def test_a_run_whose_changes_were_not_recorded_is_refused_with_what_is_possible() -> None:
    request = DelegationRequest(task="x")
    earlier = Delegation(
        id=new_id(), status=Status.SUCCEEDED, created_at=now(), request=request, effective_limits=Limits()
    )
    with pytest.raises(Conflict, match=f"`deputize retry {earlier.id}` starts from the first"):
        await files_before(FakeAsyncRedis(decode_responses=True), earlier, 1)
