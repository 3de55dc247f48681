"""The actions for workflows of others: short, and of options that exist."""

from __future__ import annotations

import re

import click
import yaml

from deputize.orchestrator.cli.prove import prove
from tests.architecture.sources import ROOT

ACTION = ROOT / ".github/actions/prove/action.yml"


def test_the_action_that_proves_is_short_and_uses_each_input_and_option_that_exists() -> None:
    text = ACTION.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    action = yaml.safe_load(text)
    used = re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text)
    assert sorted(used) == sorted(action["inputs"])
    script = action["runs"]["steps"][-1]["run"]
    known = {name for each in prove.params if isinstance(each, click.Option) for name in each.opts}
    assert {*re.findall(r"(?<![\w-])--[a-z]+", script)} == known - {"--json"}
    assert "${{" not in script, "an input in a script could be more than an argument"
