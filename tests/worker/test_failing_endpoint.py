"""A run whose model's endpoint fails for a while: the retries hold its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.settings import Settings
from tests.fake_model import FakeModel, Turn, cut, refuse, text
from tests.running import open_bench


async def ran(redis_url: str, home: Path, turn: Turn, retry_seconds: str, **limits: float) -> ToolAgentResult:
    async with FakeModel() as model:
        model.script("", [turn])
        variables = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": model.key}
        settings = Settings.load(environ={**variables, "DEPUTIZE_MODEL_RETRY_SECONDS": retry_seconds})
        given: dict[str, Any] = {
            "model_endpoint": settings.model_endpoint,
            "model_retry_seconds": settings.model_retry_seconds,
        }
        async with open_bench(redis_url, home, **given) as bench:
            return await bench.run(limits=limits)


async def test_replies_that_are_cut_again_and_again_stay_within_the_token_budget(
    redis_url: str, tmp_path: Path
) -> None:
    turn = Turn([text("words " * 50)], usage={"input_tokens": 4000}, faults=[cut()] * 100)
    result = await ran(redis_url, tmp_path / "home", turn, "300", max_tokens=14_000)
    assert result.termination_reason == "budget"
    assert 0 < result.usage.total <= 14_000


async def test_a_run_waits_for_its_endpoint_no_longer_than_its_own_time(redis_url: str, tmp_path: Path) -> None:
    turn = Turn([text("x")], faults=[refuse(529, retry_after="250")] * 100)
    result = await ran(redis_url, tmp_path / "home", turn, "300", timeout_seconds=1)
    assert result.termination_reason == "timeout"


async def test_a_run_fails_when_the_endpoint_failed_for_as_long_as_the_setting_says(
    redis_url: str, tmp_path: Path
) -> None:
    turn = Turn([text("x")], faults=[refuse(529)] * 100)
    result = await ran(redis_url, tmp_path / "home", turn, "0.1")
    assert result.termination_reason == "model_unavailable"
