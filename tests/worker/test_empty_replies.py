"""A reply without a word is no success: the model is asked once more, and then the run fails and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.settings import Settings
from tests.fake_model import FakeModel, Turn, call, text, thinking
from tests.running import open_bench

NOTHING: list[list[dict[str, Any]]] = [[], [text("")], [text(" \n\t")], [thinking("Done, I think.")]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def ran(redis_url: str, home: Path, *turns: Turn) -> Any:
    async with FakeModel() as model:
        model.script("", list(turns))
        endpoint = Settings.load(environ=model.variables).model_endpoint
        async with open_bench(redis_url, home, model_endpoint=endpoint) as bench:
            return await bench.run()


@pytest.mark.parametrize("blocks", NOTHING)
async def test_an_empty_reply_is_asked_about_once_and_the_answer_counts(
    redis_url: str, home: Path, blocks: list[dict[str, Any]]
) -> None:
    result = await ran(redis_url, home, Turn(blocks), Turn([text("done")]))
    assert (result.status, result.summary, result.turn_count) == ("succeeded", "done", 2)


@pytest.mark.parametrize("blocks", NOTHING)
async def test_a_model_that_says_nothing_twice_has_failed(
    redis_url: str, home: Path, blocks: list[dict[str, Any]]
) -> None:
    work = Turn([text("I write."), call("write_file", path="a.txt", content="x")])
    result = await ran(redis_url, home, work, Turn(blocks), Turn(blocks))
    assert (result.status, result.success, result.files_modified) == ("failed", False, ["a.txt"])
    assert "ended its work with an empty reply" in result.summary


async def test_an_empty_reply_in_each_of_two_phases_is_asked_about_in_both(redis_url: str, home: Path) -> None:
    work = Turn([call("write_file", path="a.txt", content="x")])
    result = await ran(redis_url, home, Turn([]), work, Turn([]), Turn([text("done")]))
    assert (result.status, result.summary) == ("succeeded", "done")
