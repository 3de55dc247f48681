"""What README.md at the top shows is true: its blocks run as they stand, and what is refused there is refused."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import httpx2
import pytest

from deputize.orchestrator.cli.demo import parts
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Misconfigured
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy.rule_file import load_rules
from tests.architecture.sources import ROOT
from tests.orchestrator.front_page import BLOCKS, FEATURES, TEXT
from tests.orchestrator.picture import COLOURS, drawn, shown
from tests.orchestrator.terminal import Cell, Screen


def test_the_two_commands_are_targets_that_do_what_it_says() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo", "test"], cwd=ROOT, capture_output=True, text=True
    )
    assert "Two commands\n" in TEXT
    assert "deputize demo\n" in done.stdout
    assert "-m pytest -n" in done.stdout


async def test_the_approval_modes_that_it_names_are_accepted(real: httpx2.AsyncClient) -> None:
    (row,) = [line for line in FEATURES.splitlines() if line.startswith("| `approvalMode`: ")]
    modes = re.findall(r"`(\w+)`", row.partition(": ")[2])
    assert sorted(modes) == sorted(ApprovalMode)
    for mode in modes:
        assert (await real.post("/v1/delegations", json={"task": "x", "approvalMode": mode})).is_success


def test_a_wrong_policy_file_keeps_a_worker_from_starting(tmp_path: Path) -> None:
    assert re.search(r"^\| policy files \(`DEPUTIZE_POLICY`\).*does not start", FEATURES, re.MULTILINE)
    (tmp_path / "rules.toml").write_text("[[rule]]")
    with pytest.raises(Misconfigured, match=r"rules\.toml:1"):
        load_rules(Settings.load(environ={"DEPUTIZE_POLICY": str(tmp_path / "rules.toml")}).policy)


def test_the_result_it_shows_has_the_fields_of_a_result() -> None:
    (sample,) = (json.loads(text) for language, text in BLOCKS if language == "json")
    assert sample.keys() - {*ToolAgentResult.model_validate({**sample, "delegationId": "x"}).to_dict()} == set()


def test_it_is_short_and_every_block_is_executed_here() -> None:
    assert len(TEXT.splitlines()) <= 160
    assert sorted(language for language, _ in BLOCKS) == ["", "json", "python", "python", "sh", "sh", "sh", "sh"]


def test_its_picture_shows_the_demo_as_it_is() -> None:
    (path,) = re.findall(r"!\[[^]]+\]\(([^)]+\.svg)\)", TEXT)
    picture = ElementTree.parse(ROOT / path)
    lines = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert f"✓ {parts({'kind': 'empty'}, {'kind': 'empty'}, None)[1].truth}" in lines
    svg = (ROOT / path).read_text("utf-8")
    assert drawn([plain(line) for line in lines]) == re.sub(r"</?tspan[^>]*>", "", svg)
    assert f'<tspan fill="{COLOURS["32"]}">✓</tspan> ' in svg


def plain(line: str) -> list[Cell]:
    return [(char, "") for char in line]


def test_a_picture_has_the_colours_of_the_terminal_and_its_blanks() -> None:
    screen = Screen(24, 80)
    screen.take(b"\x1b[32m\xe2\x9c\x93\x1b[0m  a <b>\r\n    \x1b[1m\x1b[31m- x\x1b[0m\r\n")
    green, red = COLOURS["32"], COLOURS["31"]
    svg = drawn(screen.cells())
    assert f'><tspan fill="{green}">✓</tspan>  a &lt;b&gt;</text>' in svg
    assert f'>    <tspan fill="{red}" font-weight="bold">- x</tspan></text>' in svg
    assert "white-space: pre" in svg


def test_a_picture_shows_how_all_ended_and_two_of_them_whole() -> None:
    history = [
        "note",
        "Read every file one by one.  turn 1",
        "✓ a",
        "",
        "━━ A",
        "text",
        "",
        "━━ Find and fix the bug.  dlg_1",
        "+ x",
        "✓ it is verified",
        "",
        "━━ Claim a fix",
        "✓ it is refuted",
        "",
        "━━ D",
    ]
    assert ["".join(char for char, _ in row) for row in shown([plain(line) for line in history])] == [
        "$ make demo", "note", "✓ a", "", "━━ Find and fix the bug.  dlg_1", "+ x", "✓ it is verified",
        "", "━━ Claim a fix", "✓ it is refuted",
    ]  # fmt: skip
