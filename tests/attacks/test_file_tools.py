"""What a model cannot read, list, search or write with the file tools, whatever names and links it makes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Step, StepStatus
from tests.attacks.stage import MARK, Stage
from tests.runs.bench import call

pytestmark = pytest.mark.system


def targets(stage: Stage) -> list[Path]:
    diary = stage.files_of(stage.victim) / "diary.txt"
    return [
        stage.private_file,
        diary,
        Path("/etc/shadow"),
        Path(f"/proc/{stage.pid}/environ"),
        Path("/proc/self/environ"),
    ]


def names(target: Path) -> Iterator[str]:
    """Names of a file outside of the workspace."""
    yield str(target)
    yield f"/{target}"
    yield f"/workspace/../..{target}"
    yield f"{'../' * 12}{str(target)[1:]}"
    yield f"a/../../../../../..{target}"
    yield f"/proc/self/root{target}"
    yield f"/proc/self/cwd/../../../../../..{target}"
    yield f"/proc/1/root{target}"
    yield f"/dev/fd/../root{target}"


def links(target: Path, number: int) -> list[str]:
    """Commands that make links to it, and one of a link that leads there by another."""
    up = "../" * 12
    return [
        f"ln -s {target} file-{number}",
        f"ln -s {target.parent} folder-{number}",
        f"ln -s {up}{str(target)[1:]} relative-{number}",
        f"ln -s /proc/self/root{target} magic-{number}",
        f"mkdir -p deep-{number}/er && ln -s ../../file-{number} deep-{number}/er/chain-{number}",
        f"ln {target} hard-{number} 2>/dev/null && echo linked",
    ]


def linked(target: Path, number: int) -> list[str]:
    names = [f"file-{number}", f"relative-{number}", f"magic-{number}", f"deep-{number}/er/chain-{number}"]
    return [
        *names,
        f"folder-{number}/{target.name}",
        f"/workspace/folder-{number}/../{target.parent.name}/{target.name}",
    ]


def every_tool(path: str) -> list[dict[str, Any]]:
    """A call of each tool with that path, which must fail for the path."""
    folder = path.rpartition("/")[0] or path
    return [
        call("read_file", path=path),
        call("write_file", path=path, content="overwritten"),
        call("edit_file", path=path, old_string=MARK, new_string="overwritten"),
        call("grep", pattern=MARK, path=path),
        call("list_directory", path=folder) if "/" in path else call("list_directory", path=path),
    ]


def assert_refused(steps: list[Step]) -> None:
    """Each for its path: by the tool, or by a rule about paths that cannot say where a link leads."""
    for step in steps:
        assert step.status is StepStatus.FAILED, step.arguments
        assert (step.error or "").startswith(("Path not allowed", "denied: locked")), (step.arguments, step.error)


async def test_no_name_of_a_file_outside_is_accepted(stage: Stage) -> None:
    calls = [each for target in targets(stage) for name in names(target) for each in every_tool(name)]
    outcome = await stage.attack(calls)
    assert len(outcome.steps) == len(calls)
    assert_refused(outcome.steps)


async def test_no_link_to_a_file_outside_is_followed(stage: Stage) -> None:
    found = list(enumerate(targets(stage)))
    make = "; ".join(line for number, target in found for line in links(target, number))
    paths = [path for number, target in found for path in linked(target, number)]
    calls = [each for path in paths for each in every_tool(path) if each["call"] != "list_directory"]
    outcome = await stage.attack([call("bash", command=f"{make}; ls | wc -l")], calls)
    made, *steps = outcome.steps
    assert made.result == str(5 * len(found)), made
    assert_refused(steps)


async def test_no_pattern_finds_anything_outside(stage: Stage) -> None:
    make = f"ln -s {stage.folder} out; ln -s / top; ln -s .. up; mkfifo pipe; echo inside > in.txt"
    patterns = ["**", "out/**", "top/etc/*", "up/*", "../**", "/etc/*", f"{stage.folder}/**", "*/*/.ssh/*", "**/.env"]
    calls = [call("glob", pattern=each) for each in patterns]
    calls += [call("grep", pattern=MARK, glob=each) for each in ("**", "*.env", "../*", "out/**")]
    calls += [call("read_many_files", paths=[*patterns, "out/files/.env", "top/etc/shadow", str(stage.private_file)])]
    calls += [
        call("grep", pattern=f"{MARK}|--follow"),
        call("grep", pattern="--pre=cat"),
        call("glob", pattern="-L **"),
    ]
    outcome = await stage.attack([call("bash", command=make)], calls)
    assert outcome.result.termination_reason == "completed"
    said = "\n".join(outcome.answers()[1:])
    assert "root:" not in said
    assert "id_ed25519" not in said.replace(str(stage.private_file), "")
    assert "in.txt" in said


async def test_a_subagent_gets_no_link_that_leads_out(stage: Stage) -> None:
    """It works on a copy of the files; its links are those of the original."""
    make = f"ln -s {stage.private_file} key; ln -s {stage.folder} out; ln -s {stage.files_of(stage.victim)} neighbour"
    child = call("call_subagent", task="child", workspace="copy", tools=["read_file", "bash"])
    reads = [call("read_file", path=path) for path in ("key", "out/files/.env", "neighbour/diary.txt")]
    reads += [call("bash", command="cat key out/files/.env neighbour/diary.txt; true")]
    outcome = await stage.attack(
        [call("bash", command=make)], [child], child=reads, tools=["bash", "read_file", "call_subagent"]
    )
    assert outcome.steps[-1].status is StepStatus.COMPLETED, outcome.steps[-1].error
    assert outcome.left.count(b"Path not allowed: ") >= 3
