"""The effort of a request: what is sent of it, and what an endpoint's refusal of it leads to. Issue 39, point 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import ModelUnavailable
from tests.fake_model import FakeModel, Turn, call, refuse, text
from tests.runs.bench import bench_at
from tests.worker.models.asking import READ, model_at, prompt_of, reply_of


async def test_the_effort_is_sent_behind_the_prefix_that_siblings_share(fake: FakeModel) -> None:
    fake.script("", [Turn([text("a")]), Turn([text("b")]), Turn([text("c")])])
    for effort in (None, "low", "max"):
        await reply_of(model_at(fake.url, fake.key, name="claude-sonnet-5-5"), prompt_of("x", effort=effort))
    plain, low, most = (each.body for each in fake.journal)
    assert "output_config" not in plain
    assert (low["output_config"], most["output_config"]) == ({"effort": "low"}, {"effort": "max"})
    for body in (low, most):
        assert [*body.items()][:4] == [*plain.items()][:4]  # the order of the bytes, too
        del body["output_config"]
        assert body == plain


async def test_no_effort_is_sent_where_a_forced_tool_disables_thinking(fake: FakeModel) -> None:
    fake.script("", [Turn([text("a")]), Turn([text("b")])])
    forced = prompt_of("x", only_tool=READ.name, effort="max")
    for name in ("claude-sonnet-5-5", "m"):
        await reply_of(model_at(fake.url, fake.key, name=name), forced)
    assert {each.body["model"]: "output_config" in each.body for each in fake.journal} == {
        "claude-sonnet-5-5": False,
        "m": True,
    }


@pytest.mark.parametrize(
    "message",
    [
        "output_config: Extra inputs are not permitted",
        "This model does not support the effort parameter.",
        "Effort: no",
    ],
)
async def test_an_endpoint_that_refuses_it_gets_a_clear_line(fake: FakeModel, message: str) -> None:
    fake.script(
        "", [Turn([text("a")], faults=[refuse(400, error={"type": "invalid_request_error", "message": message})])]
    )
    with pytest.raises(ModelUnavailable, match=r'Leave effort out.*lacks = \["effort"\] in \[models."m"\]'):
        await reply_of(model_at(fake.url, fake.key), prompt_of("x", effort="max"))


async def test_two_runs_of_one_model_have_efforts_of_their_own(redis_url: str, tmp_path: Path, fake: FakeModel) -> None:
    fake.script("", [Turn([call("glob", pattern="*")]), Turn([text("a")])])
    async with bench_at(fake, redis_url, tmp_path / "home") as bench:
        await bench.run(effort="xhigh")
        await bench.run()
    assert [each.body.get("output_config") for each in fake.journal] == [*[{"effort": "xhigh"}] * 2, None, None]
