"""The compose file and the manifests run a delegation, and without any part of what they set they do not.

No engine is needed: a double makes the containers of what the files say (``confined.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.sandbox.seccomp import NEEDED
from tests.containers import images, profile, shipped
from tests.containers.confined import Container
from tests.containers.shipped import Project, inside
from tests.network.git_server import GitServer, git, git_server, make_repository
from tests.processes.ordinary_user import need_ordinary_user
from tests.processes.preloaded import Forked
from tests.runs.bench import call, say
from tests.waiting import until_sync

pytestmark = pytest.mark.system
KINDS = ("compose", "manifests")
CONFINED = "tests.containers.confined"
SETUP = "mkdir -p /opt/setup/bin; echo echo by the set-up >/opt/setup/bin/made; chmod 755 /opt/setup/bin/made"
CHECK = {"kind": "command", "run": "grep -q changed app.txt"}
FILES = {"app.txt": "original\n"}
BRANCHES = ("by-the-worker", "by-the-service")
PARENT = [
    [call("bash", command="id -u; hostname; test ! -e /opt/setup || made")],
    [call("edit_file", path="app.txt", old_string="original", new_string="changed")],
    [call("write_file", path="new/file.txt", content="new\n"), call("read_file", path="app.txt")],
    [call("grep", pattern="chan.ed"), call("glob", pattern="**/*.txt")],
    [call("call_subagent", task="child")],
    [say("{{result}}")],
]
CHILD = [[call("bash", command="id -un")], [say("the child is {{result}}")]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file systems of the images."""
    if os.geteuid() != 0:
        pytest.skip(f"SKIPPED for want of root: this user is {os.geteuid()}")
    profile.need_library()
    images.need_packages()
    return tmp_path_factory.mktemp("images")


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Iterator[Project]:
    with shipped.network() as network:
        yield Project(tmp_path / "project", made, network)


def container(project: Project, kind: str, name: str, **settings: str) -> Container:
    """A container with these settings: in compose's own file of them, or as variables of the ConfigMap."""
    if kind == "manifests":
        return project.by_manifest(name, **settings)
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (project.folder / "deputize.env").write_text(lines)
    return project.by_compose(name, DEPUTIZE_MODEL=settings.get("DEPUTIZE_MODEL", ""))


def place_of_script(project: Project, kind: str) -> str:
    """Writes the script where the workers can read it. Returns the model's name."""
    if kind == "compose":
        shipped.script(project.folder / "config", parent=PARENT, child=CHILD)
        return "scripted:/etc/deputize/script.json"
    project.by_manifest("worker")  # makes the volume
    shipped.script(project.folder / "volumes/deputize-workspaces", parent=PARENT, child=CHILD)
    return "scripted:/var/lib/deputize/workspaces/script.json"


def asked(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:8642/v1{path}",
        json.dumps(body).encode() if body else None,
        {"Authorization": f"Bearer {shipped.TOKEN}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=70) as answer:
        return json.load(answer)


def is_alive() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8642/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture
def server(project: Project, tmp_path: Path) -> Iterator[GitServer]:
    serving = git_server(tmp_path / "served")
    yield inside(project.network, serving.__enter__)
    serving.__exit__(None, None, None)


def results(project: Project, kind: str, tmp_path: Path, settings: dict[str, str], *given: Any) -> list[Any]:
    """What comes of each of these delegations, all services started from nothing.

    A clone that is not delivered by its run is delivered by the service afterwards.
    """
    chosen = settings | {"DEPUTIZE_MODEL": place_of_script(project, kind)}
    worker, service = (container(project, kind, name, **chosen) for name in ("worker", "orchestrator"))
    logs = [tmp_path / name for name in ("redis.log", "service.log", "worker.log")]
    request = {"task": "parent", "tools": ["*", "call_subagent"], "verify": [CHECK]}
    found: list[Any] = []
    with (
        project.running(project.by_compose("redis"), logs[0]),
        project.running(service, logs[1]),
        project.running(worker, logs[2]) as process,
    ):
        until_sync(lambda: process.poll() is not None or inside(project.network, is_alive), 60)
        assert process.poll() is None, logs[2].read_text()
        for each in given:
            body = request | each
            id = inside(project.network, lambda body=body: asked("POST", "/delegations", body))["id"]
            path = f"/delegations/{id}?wait=60"
            found.append(inside(project.network, lambda path=path: asked("GET", path))["result"])
            if each["workspace"]["kind"] == "git" and "deliver" not in each:
                later = partial(asked, "POST", f"/delegations/{id}/deliver", {"branch": BRANCHES[1]})
                found[-1] = inside(project.network, later)["result"]
    return found


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
def test_a_delegation_with_commands_files_setup_git_checks_and_a_subagent_succeeds(
    kind: str, project: Project, server: GitServer, tmp_path: Path
) -> None:
    url = server.add(make_repository(tmp_path / "source", FILES)).replace("127.0.0.1", "redis")
    cloned = {"workspace": {"kind": "git", "url": url}}  # another container, not this machine
    given: list[Any] = [cloned | {"deliver": {"branch": BRANCHES[0]}}, cloned]
    if kind == "compose":  # the manifests have no volume with directories to copy, and only those are set up
        make_repository(project.folder / "projects/app", FILES)
        given.append({"workspace": {"kind": "directory", "path": "/srv/projects/app"}})
    settings = {"DEPUTIZE_GIT_HOSTS": f"http://redis:{server.port}", "DEPUTIZE_SANDBOX_SETUP": SETUP}
    for result in results(project, kind, tmp_path, settings, *given):
        assert result["status"] == "succeeded", json.dumps(result)
        assert "the child is agent" in result["summary"]
        assert (result["errors"], result["filesModified"]) == ([], ["app.txt", "new/file.txt"])
        assert result["verification"]["verdict"] in ("passed", "verified"), result["verification"]
    for branch in BRANCHES:
        changed = git(server.root / "project.git", "diff", "--name-only", "main", branch)
        assert changed.split() == ["app.txt", "new/file.txt"]
    if kind == "compose":
        assert [*(project.folder / "volumes/workspaces/setup").glob("*/bin/made")] != []


def needs(worker: Container) -> list[Container]:
    """The container without each thing that a worker must have: folders that are written, files that are read."""
    written = [each for each in worker.mounts if not each.read_only]
    read = [each for each in worker.mounts if each.target.startswith("/run/secrets")]
    lacking = [replace(worker, mounts=[each for each in worker.mounts if each is not gone]) for gone in read]
    for folder in written:
        closed = [replace(each, read_only=each is folder or each.read_only) for each in worker.mounts]
        lacking.append(replace(worker, mounts=closed))
    return [*lacking, replace(worker, shows_proc=False)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_ends_at_once_without_any_of_its_folders_or_files(kind: str, project: Project, tmp_path: Path) -> None:
    whole = container(project, kind, "worker", DEPUTIZE_MODEL="scripted")
    lacking = needs(replace(whole, module="deputize.worker.__main__", argv=["worker"]))
    assert len(lacking) >= 3
    with project.running(project.by_compose("redis"), tmp_path / "redis.log"):
        for number, each in enumerate(lacking):
            log = tmp_path / f"{number}.log"
            assert ended(project, each, log) != 0, (number, log.read_text())
            assert "Traceback" not in log.read_text()


def test_a_volume_that_the_compose_file_mounts_read_only_is_so_here(project: Project) -> None:
    file, target = project.folder / "docker-compose.yml", "/var/lib/deputize/workspaces"
    file.write_text(file.read_text("utf-8").replace(f":{target}\n", f":{target}:ro\n"))
    assert [each.read_only for each in project.by_compose("worker").mounts if each.target == target] == [True]


@pytest.fixture
def sandbox(project: Project) -> Container:
    """The worker's container, which tries its sandbox and ends."""
    return replace(container(project, "compose", "worker"), module="tests.containers.trial", argv=["trial"])


def ended(project: Project, each: Container, log: Path) -> int:
    """Starts the container, waits until it has ended by itself, and returns its exit code; 0 where it goes on."""
    spec = each.write(project.folder / f"specs/{log.name}.json")
    with log.open("wb") as output:
        process = Forked(CONFINED, [str(spec)], dict(os.environ), stdout=output.fileno(), stderr=output.fileno())
    try:
        until_sync(lambda: process.poll() is not None, 60)
        return process.wait()
    except AssertionError:
        return 0
    finally:
        process.kill()
        process.wait(10)


def test_the_sandbox_works_under_the_shipped_profile(project: Project, sandbox: Container, tmp_path: Path) -> None:
    assert ended(project, sandbox, log := tmp_path / "log") == 0, log.read_text()
    assert log.read_text() == "None\n"


@pytest.mark.parametrize("name", NEEDED)
def test_the_sandbox_does_not_work_under_a_profile_that_denies_a_call_it_needs(
    project: Project, sandbox: Container, tmp_path: Path, name: str
) -> None:
    (file := tmp_path / "profile.json").write_text(json.dumps(profile.denying([name])))
    assert ended(project, replace(sandbox, seccomp=str(file)), tmp_path / "log") != 0


def test_the_shipped_profile_denies_no_call_that_a_sandbox_makes(tmp_path: Path) -> None:
    need_ordinary_user()
    if not shutil.which("strace"):
        fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        fail("SKIPPED: there is no strace on the PATH, by which system calls are seen")
    rules = json.loads(profile.PROFILE.read_text("utf-8"))["syscalls"]
    denied = {name for rule in rules if "args" not in rule for name in rule["names"]}
    program = (
        "import sys; from tests.containers import trial; from tests.processes.ordinary_user import become_ordinary\n"
        "become_ordinary(); sys.exit(trial.main())"
    )
    traced = ["strace", "-f", "-qq", "-c", "-U", "name", "-o", str(tmp_path / "calls")]
    done = subprocess.run([*traced, sys.executable, "-c", program], cwd=images.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    called = {*(tmp_path / "calls").read_text().split()}
    assert {*NEEDED} <= called
    assert called & denied == {"clone3"}  # libc makes a clone of it where it is not there


@pytest.mark.parametrize("packages", [None, []])
@pytest.mark.parametrize("role", ["orchestrator", "worker"])
def test_both_images_have_the_git_that_merges_need(
    project: Project, made: Path, tmp_path: Path, role: str, packages: list[str] | None
) -> None:
    whole = container(project, "compose", role)
    if packages is not None:
        (without := tmp_path / "without").mkdir()
        whole = replace(whole, image=images.files(tuple(packages), without))
    merging = replace(whole, module="tests.containers.trial", argv=["merge"])
    assert (ended(project, merging, tmp_path / "log") == 0) == (packages is None), (tmp_path / "log").read_text()
