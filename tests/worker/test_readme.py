"""What the pages of the worker and the policy show is true: the tool runs, and the tables have all settings."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from deputize.shared.delegation import TerminationReason
from deputize.shared.settings import ModelSettings, Settings, ToolSettings
from deputize.shared.settings.models import Lack, Platform
from deputize.worker.mcp.config import Config
from deputize.worker.policy.explanation import try_examples
from deputize.worker.policy.matchers import MATCHERS
from deputize.worker.policy.rule_file import load_rules
from deputize.worker.threads import run_in_thread
from deputize.worker.toolkit.discovery import Discovery
from deputize.worker.toolkit.sources import ToolSourceContext
from deputize.worker.tools.base import AnyTool
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.skills import read_skill
from tests.architecture.sources import ROOT
from tests.runs.bench import call, open_bench, say, script
from tests.runs.toolbench import Toolbench

POLICY = ROOT / "worker" / "policy" / "README.md"


def page(name: str) -> str:
    """The text of a page of the worker."""
    return (ROOT / "worker" / "docs" / f"{name}.md").read_text("utf-8")


def first_block(name: str) -> str:
    found = re.search(r"^```\w+\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)
    assert found, name
    return found[1]


def section(title: str, document: Path) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^##+ {title}\n(.*?)(?=^##|\Z)", document.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def block(title: str, language: str, document: Path) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", section(title, document), re.DOTALL | re.MULTILINE)
    assert found, (title, language)
    return found[1]


def tool_of(source: str, folder: Path) -> AnyTool:
    """The tool that a file outside of the packages with this source defines."""
    file = folder / "count_words.py"
    file.write_text(source.replace("from ..", "from deputize.worker.").replace("from .", "from deputize.worker.tools."))
    spec = importlib.util.spec_from_file_location("count_words", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CountWords()


def test_the_models_it_shows_are_tables_and_every_key_and_platform_is_named(tmp_path: Path) -> None:
    (tmp_path / "deputize.toml").write_text(first_block("models"))
    models = Settings.load(tmp_path / "deputize.toml", environ={}).models
    assert {name: table.platform for name, table in models.items()} == {"house": "anthropic", "rock": "bedrock"}
    assert models["house"].model_fields_set == {*ModelSettings.model_fields} - {"keys"}  # in the place of `key`
    assert "`keys`" in page("models")
    rows = re.findall(r"^\| `([\w-]+)` \|", page("models"), re.MULTILINE)
    assert rows == ["platform", *get_args(Platform)]
    assert [lack for lack in get_args(Lack) if f'"{lack}"' not in page("models")] == []


async def test_the_script_it_shows_is_played(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(first_block("scripted-models"))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    workspace = {"kind": "directory", "path": str(tmp_path / "source")}
    async with open_bench(redis_url, tmp_path / "home") as bench:
        result = await bench.run("Fix calc.py", model=f"scripted:{tmp_path / 'script.yaml'}", workspace=workspace)
        changed = await bench.store.patch(result.delegation_id)
    assert (result.success, "The sum was a difference." in result.summary) == (True, True)
    assert "+    return a + b" in changed


@pytest.mark.requirement("S003-045")
async def test_the_tool_it_shows_runs_beside_our_own(redis_url: str, tmp_path: Path) -> None:
    tool = tool_of(first_block("own-tools"), tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("one two\nthree\n")
    calls = [call("count_words", path="a.txt")], [call("count_words", path="../a")], [call("count_words", file="a.txt")]
    model = script(tmp_path, *calls, [say("Done.")])
    workspace = {"kind": "directory", "path": str(tmp_path / "source")}
    async with open_bench(redis_url, tmp_path / "home", offered=(*BUILTIN, tool)) as bench:
        result = await bench.run(model=model, workspace=workspace, tools=["count_words", "read_file"])
        good, escaping, misspelt = await bench.steps(result)
    assert good.result == "3 words"
    assert "leads out of the workspace" in escaping.error
    assert misspelt.error.endswith("Known parameters: path.")
    assert result.success


async def test_the_part_it_shows_ends_a_run_before_its_first_turn(redis_url: str, tmp_path: Path) -> None:
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(first_block("parts"), shown)
    model = script(tmp_path, [say("Done.")])
    async with open_bench(redis_url, tmp_path / "home", parts=[shown["CostCentre"]]) as bench:
        without = await bench.run(model=model)
        labelled = await bench.run(model=model, labels={"cost-centre": "42"})
    assert (without.termination_reason, without.turn_count) == (TerminationReason.REFUSED, 0)
    assert without.summary == "It has no label cost-centre. Submit it again with one."
    assert labelled.success


async def test_the_check_it_shows_is_compared_before_and_after(redis_url: str, tmp_path: Path) -> None:
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(first_block("own-checks"), shown)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.py").write_text("pass\n")
    workspace = {"kind": "directory", "path": str(tmp_path / "source")}
    check = {"kind": "own", "name": "licence", "arguments": {"words": "Apache"}}
    write = call("write_file", path="a.py", content="# Apache\n")
    async with open_bench(redis_url, tmp_path / "home", checks=[shown["Licence"]()]) as bench:
        asked: dict[str, Any] = {"workspace": workspace, "verify": [check], "max_verify_rounds": 0}
        good = await bench.run(model=script(tmp_path, [write], [say("Done.")]), **asked)
        bad = await bench.run(model=script(tmp_path, [say("Done.")]), **asked)
    assert good.verification
    assert bad.verification
    assert (good.verification.verdict, good.verification.checks[0].outcome) == ("passed", "evidence")
    assert (bad.verification.verdict, bad.verification.why) == ("refuted", "without Apache: a.py")


async def test_the_blocking_work_it_shows_counts_lines(tmp_path: Path) -> None:
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(first_block("blocking-work"), shown)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert await run_in_thread(shown["count_lines"], tmp_path / "a.txt") == 2


def test_the_tool_it_shows_is_short() -> None:
    lines = first_block("own-tools").splitlines()
    body = [line for line in lines if line.strip() and not line.startswith(("from", '"""'))]
    assert len(body) <= 20
    ast.parse("\n".join(lines))


def test_every_setting_of_the_tools_is_in_its_table_and_no_other() -> None:
    rows = [line.split("|")[1] for line in page("tools").split("\n\n")[2].splitlines() if line.startswith("| `")]
    named = {word.lower() for row in rows[1:] for word in re.findall(r"`(\w+)`", row)}
    assert named == set(ToolSettings.model_fields)


def test_the_mcp_file_it_shows_is_read_without_a_complaint(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(first_block("mcp-servers"))
    config = Config.read(file, {}, tmp_path)
    assert config.problems == {}
    git, tracker = config.servers
    assert (git.command, git.trusts("git_log"), git.trusts("git_commit")) == ("mcp-server-git", True, False)
    assert (tracker.type, tracker.headers) == ("http", {"Authorization": "Bearer none"})
    assert (tracker.tools.lets("search_all"), tracker.tools.lets("delete")) == (True, False)


def test_the_skill_it_shows_is_one(tmp_path: Path) -> None:
    (tmp_path / "release-notes").mkdir()
    file = tmp_path / "release-notes" / "SKILL.md"
    file.write_text(first_block("skills"))
    assert read_skill(file).name == "release-notes"


async def test_the_declaration_it_shows_is_discovered(desk: Toolbench) -> None:
    desk.write("tools.json", block("Discovered tools", "json", ROOT / "worker/docs/tools.md"))
    settings = ToolSettings(discovery_command="cat tools.json", call_command="true")
    warned: list[str] = []
    place = ToolSourceContext("dlg_01k00000000000000000000000", None, desk.files, desk.sandbox, warned.append)
    async with Discovery(settings, BUILTIN).open(place) as tools:
        assert [tool.name for tool in tools] == ["lint"]
    assert warned == []
    assert json.loads(block("Discovered tools", "json", ROOT / "worker/docs/tools.md"))[0]["name"] == "lint"


def test_the_policy_it_shows_decides_as_its_examples_expect(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(block("Rules", "toml", POLICY))
    tried = try_examples(Settings(), [file])
    assert [each["decision"] for each in tried] == [each["expect"] for each in tried] == ["deny", "allow", "ask"]
    assert len(load_rules([file])) == 4


def test_every_matcher_of_a_rule_is_in_its_table_and_no_other() -> None:
    rows = [line.split("|")[1] for line in section("Rules", POLICY).splitlines() if line.startswith("| `")]
    assert {word for row in rows for word in re.findall(r"`(\w+)`", row)} == set(MATCHERS)


@pytest.mark.requirement("S002-007", "S003-001")
def test_each_part_of_the_other_styles_is_where_it_belongs() -> None:
    rows = [line for line in page("other-styles").splitlines() if line.startswith("| ")]
    table = dict(
        row.strip("| ").split(" | ")
        for row in rows[rows.index("| part of `Tool.define` and `BaseTool` | here |") + 1 :]
    )
    parts = {part.strip() for row in table for part in re.split(r"[,/] ?", row)}
    assert {"tool", "sandbox", "replacers", "registry", "types", "bash", "read", "write", "edit", "glob"} <= parts
    assert {"grep", "skill", "tool-agent service", "IPC"} <= parts
    assert {"base", "xml_parser", "prompt_generator", "call_subagent", "web_search", "web_fetch"} <= parts
    paths = [path for row in table.values() for path in re.findall(r"`([\w/]+)\.py`", row)]
    assert len(paths) >= len(table)
    for path in paths:
        importlib.import_module("deputize." + path.replace("/", "."))
