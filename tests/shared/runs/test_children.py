"""Which child delegations a run has created itself, and for which of its calls."""

from __future__ import annotations

from fakeredis import FakeAsyncRedis

from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RunStore, call_key, children_of


def test_a_repeated_call_has_the_same_key_and_a_long_one_no_longer_key() -> None:
    assert call_key("dlg_1", 2, "toolu_1") == "dlg_1:2:toolu_1"
    assert call_key("dlg_1", 2, "x" * 1000) == "dlg_1:2:" + "x" * 180


async def test_only_children_of_the_runs_own_calls_are_its_own() -> None:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        store, parent = RunStore(redis, 60), new_id()
        request = DelegationRequest(task="t")
        own = request.model_copy(update={"parent_id": parent, "idempotency_key": call_key(parent, 1, "toolu_1")})
        callers = [request.model_copy(update={"parent_id": parent, "idempotency_key": key}) for key in (None, "my key")]
        await store.accept([(parent, request, request.limits)], 60)
        claim = await store.claim(parent, "token", "worker-1", 60)
        assert claim is not None
        ids = [new_id() for _ in range(4)]
        planted = own.model_copy(update={"idempotency_key": call_key(parent, 1, "toolu_2")})
        made = [(id, child, child.limits) for id, child in zip(ids, [own, planted, *callers], strict=True)]
        await store.accept(made[:1], 60, fence=claim.fence)
        await store.accept(made[1:], 60)
        found = await children_of(store, parent)
    assert {key: child.id for key, child in found.items()} == {f"{parent}:1:toolu_1": ids[0]}
