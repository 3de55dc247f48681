"""A release: the commands of its workflow exist, its steps refuse mistakes, and the files that it names are made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.sources import ROOT
from tests.architecture.tree_copy import copy_of_the_tree

FILES = [".ci", ".github", ".package", "pyproject.toml", "README.md", "LICENSE"]
VERSION = "0.1.0"
OF_ACTIONS = {"GITHUB_SHA"}
"""Variables that every step has."""


def workflow() -> dict[Any, Any]:
    return yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))


def steps() -> list[dict[str, Any]]:
    (job,) = workflow()["jobs"].values()
    return job["steps"]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the steps read but the packages, in a repository of git, with this environment."""
    (tmp_path / "tree").mkdir()
    for name in FILES:
        source, place = ROOT / name, tmp_path / "tree" / name
        shutil.copytree(source, place, symlinks=True) if source.is_dir() else shutil.copy(source, place)
    (tmp_path / "tree/.venv").symlink_to(sys.prefix)
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    return tmp_path / "tree"


def release(tree: Path, *step: str, **variables: str) -> tuple[int, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tree)} | variables
    done = subprocess.run([tree / ".ci/release", *step], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_only_a_person_starts_a_release() -> None:
    assert [*workflow()[True]] == ["workflow_dispatch"]  # YAML reads `on` as true
    assert workflow()["permissions"] == {}


def test_each_command_of_the_workflow_exists() -> None:
    (job,) = workflow()["jobs"].values()
    functions = {
        name: set(re.findall(r"^(?:release|setup)_(\w+)\(\)", (ROOT / ".ci" / name).read_text("utf-8"), re.MULTILINE))
        for name in ("release", "setup")
    }
    commands = [step["run"].split() for step in steps() if "run" in step]
    own = [(Path(words[0]).name, words[1] if words[1:] else "python") for words in commands if "/" in words[0]]
    assert [pair for pair in own if pair[1] not in functions[pair[0]]] == []
    assert [step for name, step in own if name == "release"] == ["version", "build", "check", "images", "installed"]
    assert {words[0] for words in commands if "/" not in words[0]} == {"sudo", "gh"}
    used = {name for step in steps() for name in re.findall(r"\$(\w+)", step.get("run", ""))}
    assert used <= job["env"].keys() | OF_ACTIONS


def test_a_version_is_refused_that_the_project_or_the_changelog_lacks_or_that_is_out(tree: Path) -> None:
    assert release(tree, "version", VERSION) == (0, "")
    code, output = release(tree, "version", "9.9.9")
    assert (code, output) == (1, f"release: pyproject.toml has the version {VERSION}, not 9.9.9\n")
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "one"],
        cwd=tree,
        check=True,
    )
    subprocess.run(["git", "tag", f"v{VERSION}"], cwd=tree, check=True)
    assert release(tree, "version", VERSION) == (1, f"release: there is a tag v{VERSION} already\n")
    subprocess.run(["git", "tag", "-d", f"v{VERSION}"], cwd=tree, check=True, capture_output=True)
    (tree / ".github/CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- One.\n")
    assert release(tree, "version", VERSION) == (1, f"release: .github/CHANGELOG.md has no section {VERSION}\n")


def test_the_files_that_later_steps_name_are_made(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    (tree / ".venv").symlink_to(sys.prefix)
    code, output = release(tree, "build")
    assert code == 0, output
    made = sorted(path.name for path in (tree / "dist").iterdir())
    assert made == [f"deputize-{VERSION}-py3-none-any.whl", f"deputize-{VERSION}.tar.gz", "notes.md"]
    assert (tree / "dist/notes.md").read_text().strip()
    assert "## " not in (tree / "dist/notes.md").read_text().replace("### ", "")
    with zipfile.ZipFile(tree / "dist" / made[0]) as wheel, tarfile.open(tree / "dist" / made[1]) as sdist:
        inside = {name.removeprefix("deputize/") for name in wheel.namelist() if ".dist-info/" not in name}
        given = {name.partition("/")[2].removeprefix(".package/deputize/") for name in sdist.getnames()}
    assert inside - given == set()
    named = {word for step in steps() for word in re.findall(r"dist/\S+", str(step))}
    patterns = {word.strip("',}") for word in named}
    made_later = {"dist/deputize.spdx.json"}  # by the step before
    assert [word for word in patterns - made_later if not [*tree.glob(word)]] == []


@pytest.mark.parametrize(
    ("version", "demo", "code"), [(VERSION, 0, 0), ("0.0.9", 0, 1), (VERSION, 1, 1)], ids=["right", "old", "broken"]
)
def test_both_files_are_installed_in_an_empty_environment_and_show_the_demo(
    tree: Path, version: str, demo: int, code: int
) -> None:
    """The doubles make an environment whose pip only notes what it is to install."""
    bin = tree / "double"
    program(bin / "pip", f'echo "$@" >> {tree}/installed')
    program(bin / "deputize", f'[ "$1" = demo ] || {{ echo "deputize {version}"; exit 0; }}; echo shown; exit {demo}')
    program(tree / "python", f'mkdir "$3"; cp -r {bin} "$3/bin"')
    ended, output = release(tree, "check", PYTHON=str(tree / "python"), TMPDIR=str(tree))
    assert ended == code, output
    installed = (tree / "installed").read_text().split("\n")[:-1]
    assert len(installed) == (2 if code == 0 else 1)
    assert all(line.endswith("[local]") for line in installed)
    assert ("does not work in an empty environment" in output) == bool(code)
    assert ("shown" in output) == bool(demo)


@pytest.mark.parametrize("code", [0, 7])
def test_both_images_are_built_with_sbom_and_provenance_and_started(tree: Path, code: int) -> None:
    program(tree / "double/docker", f'echo "$@" >> {tree}/called; [ "$1" != run ] || exit {code}')
    ended, output = release(tree, "images", PATH=f"{tree}/double:{os.environ['PATH']}")
    assert ended == code, output
    called = (tree / "called").read_text().splitlines()
    names = ["orchestrator", "worker"] if code == 0 else ["orchestrator"]
    assert [line for line in called if "run" in line.split()] == [
        f"run --rm deputize-{name}:{VERSION} --version" for name in names
    ]
    attested = [line for line in called if "--sbom=true --provenance=mode=max" in line]
    assert [re.findall(r"type=oci,dest=(\S+)", line) for line in attested] == [
        [f"dist/deputize-{name}-{VERSION}.tar"] for name in names
    ]
    files = {word for line in called for word in re.findall(r"--file (\S+)", line)}
    assert [file for file in files if not (ROOT / file).is_file()] == []
