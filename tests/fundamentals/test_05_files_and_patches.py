"""5. Files and patches: a run works on its own copy, and what it changed is a fact from the disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deputize import Orchestrator
from deputize.shared.errors import Invalid
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say, script


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with two files."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("old\n")
    (project / "spare.txt").write_text("spare\n")
    return project


async def test_a_run_works_on_its_own_copy_of_a_directory(
    orchestrator: Orchestrator, project: Path, tmp_path: Path
) -> None:
    edit = call("edit_file", path="notes.txt", old_string="old", new_string="new")
    result = await orchestrator.delegate("Edit it.", workspace=project, model=script(tmp_path, [edit], [say("Done.")]))
    assert (project / "notes.txt").read_text() == "old\n"
    assert (await orchestrator.service.patch(result.delegation_id)).splitlines()[2:] == [
        "--- a/notes.txt",
        "+++ b/notes.txt",
        "@@ -1 +1 @@",
        "-old",
        "+new",
    ]


async def test_what_changed_is_a_fact_from_the_disk_whatever_the_model_claims(
    orchestrator: Orchestrator, project: Path, tmp_path: Path
) -> None:
    command = call("bash", command="echo more >> notes.txt; rm spare.txt; echo hi > report.txt")
    model = script(tmp_path, [command], [say("I changed nothing.")])
    result = await orchestrator.delegate("Change nothing.", workspace=project, model=model)
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "I changed nothing.",
        "filesModified": ["spare.txt", "notes.txt", "report.txt"],
        "fileChanges": [
            {"path": "spare.txt", "change": "deleted", "removedLines": 1},
            {"path": "notes.txt", "change": "modified", "addedLines": 1},
            {"path": "report.txt", "change": "created", "addedLines": 1},
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_the_patch_makes_the_changes_yours(orchestrator: Orchestrator, project: Path, tmp_path: Path) -> None:
    command = call("bash", command="mkdir docs; mv spare.txt docs/kept.txt; echo new > notes.txt")
    model = script(tmp_path, [command], [say("Done.")])
    result = await orchestrator.delegate("Tidy up.", workspace=project, model=model)
    patch = await orchestrator.service.patch(result.delegation_id)
    subprocess.run(["git", "apply"], input=patch, text=True, cwd=project, check=True)
    assert {path.relative_to(project).as_posix(): path.read_text() for path in project.rglob("*.txt")} == {
        "notes.txt": "new\n",
        "docs/kept.txt": "spare\n",
    }


async def test_without_a_directory_a_run_begins_with_an_empty_one(orchestrator: Orchestrator, tmp_path: Path) -> None:
    model = script(tmp_path, [call("bash", command="pwd; ls -A")], [say("{{result}}")])
    assert visible(await orchestrator.delegate("Look around.", model=model)) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "/workspace",
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_a_directory_that_is_not_there_is_refused_before_anything_runs(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    with pytest.raises(Invalid) as refused:
        await orchestrator.start("Look around.", workspace=tmp_path / "none")
    assert [error["pointer"] for error in refused.value.errors] == ["/workspace/path"]
    assert refused.value.detail == (
        f"workspace path '{tmp_path}/none' does not exist; "
        "give a directory that does, or leave the workspace out for an empty one"
    )


async def test_no_path_leads_out_of_the_workspace(orchestrator: Orchestrator, project: Path, tmp_path: Path) -> None:
    (project / "secret").symlink_to("/etc/hostname")
    turns = [[call("read_file", path=path)] for path in ("../notes.txt", "/etc/hostname", "secret")]
    model = script(tmp_path, *turns, [say("I could not.")])
    result = await orchestrator.delegate("Read.", workspace=project, model=model)
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "I could not.",
        "errors": [
            (
                "read ../notes.txt: Path not allowed: '../notes.txt': it leads out of the workspace. Use a "
                "path relative to the workspace, or one below /workspace."
            ),
            (
                "read /etc/hostname: Path not allowed: '/etc/hostname': it is outside the workspace. Use a "
                "path relative to the workspace, or one below /workspace. The operator can show further "
                "directories for reading (sandbox.show)."
            ),
            (
                "read secret: Path not allowed: 'secret': it leads out of the workspace. Use a path relative "
                "to the workspace, or one below /workspace."
            ),
        ],
        "toolCallCount": 3,
        "turnCount": 4,
    }


async def test_an_artifact_is_handed_over_beside_the_files_in_every_version(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    create = call("create_artifact", name="report.md", content="# First\n")
    rewrite = call("rewrite_artifact", name="report.md", content="# Second\n")
    model = script(tmp_path, [create, rewrite], [say("Reported.")])
    result = await orchestrator.delegate("Report.", model=model, tools=["*artifact"])
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Reported.",
        "toolCallCount": 2,
        "turnCount": 2,
        "artifacts": [{"name": "report.md", "version": 2, "size": 9}],
    }
    versions = [
        await orchestrator.service.artifact(result.delegation_id, "report.md", version) for version in (1, None)
    ]
    assert versions == ["# First\n", "# Second\n"]
