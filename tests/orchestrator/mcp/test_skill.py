"""The SKILL.md for parent agents: it is valid, and every name in it exists."""

from __future__ import annotations

import re
from typing import get_args

from deputize.orchestrator.mcp import SKILL
from deputize.orchestrator.mcp.arguments import AnswerArguments, ManyArguments, ResultArguments
from deputize.orchestrator.mcp.outcome import Outcome
from deputize.orchestrator.mcp.tools import TOOLS
from deputize.shared.checks import CommandCheck
from deputize.shared.facts import Verdict
from deputize.shared.limits import Limits
from deputize.shared.permission import PermissionOutcome, PermissionRequest
from deputize.shared.request import DelegationRequest
from deputize.worker.tools.skills import read_skill
from tests.orchestrator.command_line import deputize


async def test_the_command_prints_it_and_starts_nothing() -> None:
    done = await deputize("mcp", "--skill", DEPUTIZE_HOME="/nowhere")
    assert (done.code, done.out) == (0, SKILL.read_text("utf-8"))


def test_it_is_a_valid_skill_that_names_every_tool_and_nothing_that_does_not_exist() -> None:
    skill = read_skill(SKILL)
    models = (DelegationRequest, Limits, ManyArguments, ResultArguments, AnswerArguments, CommandCheck, Outcome)
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    named = set(re.findall(r"`(\w+)`", skill.content))
    assert named >= set(TOOLS)
    words = {*PermissionOutcome, *PermissionRequest.model_fields, *get_args(Verdict)}
    assert named <= set(TOOLS) | fields | words
