"""Whole runs under a policy file: what it denies with its reason, what it allows, and what no prefix allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.delegation import StepStatus
from deputize.shared.errors import Misconfigured
from deputize.shared.request import ApprovalMode
from tests.network.internet import response
from tests.runs.bench import call, open_bench, say, script
from tests.worker.web.servers import saying, serving

RULES = """
[[rule]]
name = "keys"
decision = "deny"
reason = "keys are for people"
path = "keys/**"

[[rule]]
name = "status"
decision = "allow"
command_prefix = "touch"

[[rule]]
name = "page"
decision = "allow"
tool = "web_fetch"
host = "localhost"
label = { team = "docs" }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text)
    return path


@pytest.mark.requirement("S004-007")
async def test_a_file_denies_with_its_reason_and_allows_a_host(redis_url: str, tmp_path: Path) -> None:
    async with serving(saying(response("a page", "text/plain"))) as at:
        rules, tools = written(tmp_path, RULES), {"private_hosts": [at]}
        async with open_bench(redis_url, tmp_path / "home", policy=[rules], tools=tools) as bench:
            asked = call("read_file", path="keys/../keys/id"), call("web_fetch", url=f"http://{at}/")
            model = script(tmp_path, [*asked], [say("done")])
            read, page = await bench.steps(await bench.run(model=model, labels={"team": "docs"}))
            _, refused = await bench.steps(await bench.run(model=model, labels={"team": "other"}))
    assert (read.status, read.error) == (StepStatus.FAILED, "denied: keys are for people.")
    assert (page.status, page.result) == (StepStatus.COMPLETED, "a page")
    assert refused.error.startswith("denied: web_fetch connects to localhost. This needs a person's approval")


@pytest.mark.requirement("S002-080")
@pytest.mark.parametrize("style", ["native", "xml"])
async def test_a_compound_line_does_not_pass_the_prefix_of_a_rule(redis_url: str, tmp_path: Path, style: str) -> None:
    others = ["touch a; mkdir no", "touch $(mkdir no)", "touch a > x", "touch a\nmkdir no", "touch a && mkdir no"]
    lines = ["touch a", *others]
    async with open_bench(redis_url, tmp_path / "home", policy=[written(tmp_path, RULES)]) as bench:
        model = script(tmp_path, *([call("bash", command=line)] for line in lines), [say("done")])
        asked = await bench.run(model=model, approval_mode=ApprovalMode.ASK, tool_call_style=style)
        plain, *compound = await bench.steps(asked)
    assert plain.status is StepStatus.COMPLETED
    assert {each.error.partition(".")[0] for each in compound} == {"denied: bash changes something (execute)"}
    assert len(compound) == len(lines) - 1


async def test_a_link_to_what_is_denied_is_denied(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "source" / "keys").mkdir(parents=True)
    (tmp_path / "source" / "keys" / "id").write_text("secret")
    (tmp_path / "source" / "link").symlink_to("keys")
    workspace = {"kind": "directory", "path": str(tmp_path / "source")}
    async with open_bench(redis_url, tmp_path / "home", policy=[written(tmp_path, RULES)]) as bench:
        asked = [call("read_file", path="link/id")], [call("read_file", path="/workspace/keys/id")]
        model = script(tmp_path, *asked, [say("done")])
        found = await bench.steps(await bench.run(model=model, workspace=workspace))
    assert [step.error for step in found] == ["denied: keys are for people."] * 2


async def test_the_mode_and_the_depth_are_those_of_the_run(redis_url: str, tmp_path: Path) -> None:
    rules = "".join(
        f'[[rule]]\nname = "{key}"\ndecision = "deny"\nreason = "{key}"\n{key} = "{value}"\n'
        for key, value in (("depth", ">= 1"), ("mode", "auto"))
    )
    async with open_bench(redis_url, tmp_path / "home", policy=[written(tmp_path, rules)]) as bench:
        model = script(tmp_path, [call("glob", pattern="*")], [say("done")])
        first = await bench.run(model=model)
        auto = await bench.run(model=model, approval_mode=ApprovalMode.AUTO)
        child = await bench.run(model=model, parent_id=first.delegation_id)
        errors = [step.error for result in (first, auto, child) for step in await bench.steps(result)]
    assert errors == [None, "denied: mode.", "denied: depth."]


async def test_a_wrong_file_keeps_the_worker_from_starting(redis_url: str, tmp_path: Path) -> None:
    file = written(tmp_path, "[[rule]]\ntol = 1\nname = 'a'\ndecision = 'allow'\n")
    with pytest.raises(Misconfigured, match=r"rules.toml:2: tol: unknown key 'tol'; did you mean 'tool'"):
        async with open_bench(redis_url, tmp_path / "home", policy=[file]):
            pytest.fail("it has started")


async def test_a_call_in_the_words_of_another_agent_is_judged_and_shown_as_ours(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", policy=[written(tmp_path, RULES)]) as bench:
        editor = "str_replace_based_edit_tool"
        asked = [
            call("Write", file_path="keys/id", content="x"),
            call(editor, command="create", path="keys/id", file_text="x"),
            call(editor, command="create", path="a.txt", file_text="x"),
            call("Read", file_path="a.txt"),
        ]
        model = script(tmp_path, asked, [say("done")])
        result = await bench.run(model=model, tools=["Read", "Write"])
        done = await bench.steps(result)
    assert [step.tool_name for step in done] == ["write_file", "write_file", "write_file", "read_file"]
    assert [step.error for step in done] == ["denied: keys are for people."] * 2 + [None] * 2
    assert done[2].arguments == {"path": "a.txt", "file_text": "x"}
    assert (done[3].result, result.files_modified) == (
        "     1|x\n(There is no line end after the last line.)",
        ["a.txt"],
    )
