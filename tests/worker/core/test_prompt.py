"""What a model reads at the start: who it is, which guidance there is, and the work in the caller's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from deputize.shared.request import DelegationRequest
from deputize.worker.core.prompt import first_message, system_prompt
from tests.fake_model import FakeModel, Turn, text
from tests.runs.bench import open_bench
from tests.runs.skills import write_skill


def test_the_same_words_are_the_same_object() -> None:
    """Models encode their instructions once for all runs, by identity."""
    assert system_prompt("/workspace") is system_prompt("/workspace")
    assert "get_skill" not in system_prompt("/workspace")


@pytest.mark.requirement("S002-051")
def test_task_context_and_expected_outcome_are_marked_as_what_they_are() -> None:
    request = DelegationRequest(task="Do it. ", context=" For Ann.", expected_outcome="It is done.")
    assert first_message(request) == (
        "# Context\n\nFor Ann.",
        "# Task\n\nDo it.\n\n# Expected outcome\n\nIt is done.",
    )
    assert first_message(DelegationRequest(task="Do it.")) == ("# Task\n\nDo it.",)


@pytest.mark.requirement("S002-051")
@pytest.mark.parametrize("tools", [None, ["read_file"]])
async def test_the_system_prompt_speaks_of_skills_where_the_run_has_them(
    redis_url: str, tmp_path: Path, tools: list[str] | None
) -> None:
    write_skill(tmp_path / "skills", "pdf")
    async with FakeModel([Turn([text("done")])]) as fake:
        endpoint = {"ANTHROPIC_BASE_URL": SecretStr(fake.url), "ANTHROPIC_API_KEY": SecretStr(fake.key)}
        home = tmp_path / "home"
        async with open_bench(redis_url, home, skills_dir=tmp_path / "skills", model_endpoint=endpoint) as bench:
            await bench.run("use a skill", tools=tools, model="claude-sonnet-5-5")
        (asked,) = fake.journal
    assert ("skills" in str(asked.body["system"])) == (tools is None)
    assert ("get_skill" in [tool["name"] for tool in asked.body["tools"]]) == (tools is None)
