"""What README.md at the top shows is true: its blocks run as they stand, and what is refused there is refused."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import httpx2
import pytest

from deputize.orchestrator.cli.demo import parts, sources
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Misconfigured
from deputize.shared.fleet import own_version
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy.rule_file import load_rules
from tests.architecture.sources import ROOT
from tests.orchestrator.front_page import BLOCKS, FEATURES, TEXT
from tests.orchestrator.picture import HOLD, LINE, LINES, LIVE, drawn, recorded, recording_of
from tests.orchestrator.terminal import Screen

SVG = "{http://www.w3.org/2000/svg}"
GREEN = "c32"


def test_the_two_commands_are_targets_that_do_what_is_documented() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo", "test"], cwd=ROOT, capture_output=True, text=True
    )
    assert "`make demo` sets up `.venv` and runs the demo, `make test` the tests" in TEXT
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
    assert sorted(language for language, _ in BLOCKS) == ["json", "python", "python", "sh", "sh", "sh", "sh"]


def texts(svg: str, *, last: bool) -> list[str]:
    """The lines of a picture: those of its last state, or those that it shows only before."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return ["".join(each.itertext()) for each in found if ("h" in each.get("class", "").split()) is not last]


def test_the_demo_works_on_files_below_the_first_allowed_root(tmp_path: Path) -> None:
    with sources(Settings.load(environ={"DEPUTIZE_WORKSPACE_SOURCES": str(tmp_path)})) as workspaces:
        project, sample = (Path(each["path"]) for each in workspaces)
        assert {path.relative_to(tmp_path).parts[1] for path in (project, sample)} == {"project", "sample"}
        assert (project / "orchestrator/cli/demo.py").is_file()
    assert not [*tmp_path.iterdir()]


def test_its_picture_is_a_recording_of_the_demo() -> None:
    (path,) = re.findall(r"!\[[^]]+\]\(([^)]+\.svg)\)", TEXT)
    svg = (ROOT / path).read_text("utf-8")
    truths = [f"✓ {part.truth}" for part in parts({"kind": "empty"}, {"kind": "empty"}, None)]
    assert [line for line in texts(svg, last=True) if line in truths] == truths
    assert any(line.startswith("0/4 finished, ") for line in texts(svg, last=False))
    assert f'<tspan class="{GREEN}">✓</tspan> ' in svg
    assert len(svg) < 150_000
    assert 12 <= float(re.findall(r"animation:([\d.]+)s step-end infinite", svg)[0]) <= 18
    tags = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(svg).iter()}
    assert tags == {
        "svg",
        "title",
        "style",
        "rect",
        "circle",
        "g",
        "text",
        "tspan",
    }  # no script, nothing from elsewhere
    assert re.findall(r"https?:(?!//www\.w3\.org/)|DEPUTIZE_HOME|/tmp/(?!deputize-)", svg) == []


def test_a_picture_has_the_colours_the_blanks_and_the_former_lines_of_the_terminal() -> None:
    screen = Screen(LINES, 80)
    drawn_anew = f"\x1b[1A{LIVE.decode()}    \x1b[1;31m- x\x1b[0m\r\n"
    written = ("\x1b[32m✓\x1b[0m  a <b>\r\n", "row 1\r\n", drawn_anew)
    screen.taken = [(float(second), text.encode()) for second, text in enumerate(written)]
    recording = recorded("x", screen)
    svg = drawn(recording)
    assert f'><tspan class="{GREEN}">✓</tspan>  a &lt;b&gt;</text>' in svg
    assert '>    <tspan class="c1 c31">- x</tspan></text>' in svg
    assert "white-space:pre" in svg
    assert 'xml:space="preserve"' in svg
    assert (texts(svg, last=True), "row 1" in texts(svg, last=False)) == (["$ x", "✓  a <b>", "    - x"], True)
    assert [each.until is None for each in recording.shown if each.number == 2] == [False, True]
    assert "@media (prefers-reduced-motion:no-preference){.top,text{animation:" in svg


def test_a_picture_shows_no_state_between_the_erasing_of_a_table_and_its_redrawing() -> None:
    screen = Screen(LINES, 80)
    screen.taken = [(0.0, b"row\r\n"), (1.0, b"\x1b[1A" + LIVE), (1.001, b"step\r\n"), (1.002, LIVE + b"row\r\n")]
    before, _, *after = recorded("x", screen).shown[-4:]
    assert ["".join(char for char, _ in each.row) for each in (before, *after)] == ["row", "step", "row"]
    assert {each.since for each in after} == {before.until}


def test_a_picture_scrolls_to_the_last_line_no_faster_than_it_can_be_read() -> None:
    screen = Screen(LINES, 80)
    screen.take("".join(f"{number}\r\n" for number in range(LINES)).encode())
    recording = recorded("x", screen)
    assert [top for _, top in recording.tops] == [0, 1]
    assert recording.seconds > LINES * LINE + HOLD
    assert ".top{transform:translateY(-4px)}" in drawn(recording)


async def test_the_picture_is_made_of_a_command_on_a_terminal(tmp_path: Path) -> None:
    recording = await recording_of("version", DEPUTIZE_HOME=str(tmp_path))
    assert texts(drawn(recording), last=True) == ["$ deputize version", f"deputize {own_version()}"]
