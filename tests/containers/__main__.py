"""`make containers`: delegations by the commands that docker-compose.yml prints, on a real engine.

One works on a directory. Two clone a repository from a git server without TLS in the network of the containers: one is
delivered by its worker, the other one by the service. All begins with empty volumes, and with images that are built for
it. Where there is no engine, or no network for the build, it prints why and ends with 0: only what is shipped has
faults.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from tests.containers import shipped
from tests.containers.engine import Engine, Unavailable, engine, last_line, stand_in
from tests.network import git_server
from tests.network.git_server import git, make_repository
from tests.runs.bench import call, say
from tests.system.compose import ROOT

_COMMAND = re.compile(r"^#   (.+?)(?:   +#.*)?$", re.MULTILINE)
_OF_NETWORK = re.compile(
    r"Temporary failure|[Cc]ould not resolve|resolution|CERTIFICATE|certificate|Failed to fetch|"
    r"[Cc]onnection (?:refused|reset|timed out)|timed out|[Nn]etwork is unreachable|No matching distribution|EOF"
)
_STAND_IN = "deputize-stand-in"
_RUN = (
    "docker compose exec -T orchestrator deputize run --tools '*,call_subagent' --verify 'grep -q changed app.txt' "
    "{workspace} parent"
)
_GIT = "http://gitserver:8418"
_SERVE = """
docker run --detach --rm --name "$COMPOSE_PROJECT_NAME-git" --network "${COMPOSE_PROJECT_NAME}_inside" \
    --network-alias gitserver --user "$(id -u):$(id -g)" --volume "$PWD/served:/srv/served" \
    --volume "$PWD/git_server.py:/srv/git_server.py:ro" --workdir /srv --entrypoint python deputize-worker -c '
import signal, git_server, pathlib
with git_server.git_server(pathlib.Path("/srv/served"), ("0.0.0.0", 8418)):
    signal.pause()
'
"""
_BRANCHES = ("by-the-worker", "by-the-service")
_PARENT = [
    [call("bash", command="id -un; hostname")],
    [call("edit_file", path="app.txt", old_string="original", new_string="changed")],
    [call("write_file", path="new/file.txt", content="new\n"), call("grep", pattern="chan.ed")],
    [call("call_subagent", task="child")],
    [say("{{result}}")],
]
_CHILD = [[call("bash", command="id -un")], [say("the child is {{result}}")]]


class Faulty(Exception):
    """What is shipped does not work."""


def main() -> int:
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends
    try:
        with engine() as found, tempfile.TemporaryDirectory(prefix="deputize-compose-") as folder:
            _delegate(found, Path(folder))
    except Unavailable as error:
        print(f"containers: not tried: {error}")
        return 0
    except Faulty as error:
        print(f"containers: {error}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - begun
    print(f"containers: three delegations through `docker compose up` succeeded, two were delivered, {seconds:.0f} s")
    return 0


def _delegate(found: Engine, folder: Path) -> None:
    _copy_what_is_built(folder)
    (folder / "config").mkdir()
    shipped.script(folder / "config", parent=_PARENT, child=_CHILD)
    source = make_repository(folder / "projects/app", {"app.txt": "original\n"})
    shutil.copy(str(git_server.__file__), folder)
    (folder / "served").mkdir()
    git_server.GitServer(folder / "served").add(source)
    (folder / "deputize.env").write_text(f"DEPUTIZE_GIT_HOSTS={_GIT}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {
        **found.environ,
        "ANTHROPIC_API_KEY": "key-of-the-test",
        "COMPOSE_PROJECT_NAME": f"deputize-test-{uuid4().hex[:8]}",
        "DEPUTIZE_MODEL": "scripted:/etc/deputize/script.json",
        "DEPUTIZE_PORT": str(port),
        **_base_images(found),
    }
    prepared, up, builds = commands((folder / "docker-compose.yml").read_text("utf-8"))
    if certificates := os.environ.get("PIP_CERT"):  # of a proxy that inspects TLS
        shutil.copy(certificates, folder / "ca.pem")
        prepared += [f"{each} --build-arg PYTHON={environ['DEPUTIZE_PYTHON_IMAGE']}" for each in builds]
    try:
        shell("umask 077\n" + "\n".join(prepared), folder, environ, builds=True)
        shell(f"{up} --detach --wait", folder, environ, builds=True)
        _check(shell(_RUN.format(workspace="--workspace /srv/projects/app"), folder, environ))
        _deliver(folder, environ)
        print(shell("docker images --format '{{.Repository}} {{.Size}}' 'deputize-[ow]*'", folder, environ).strip())
    finally:
        server = f"{environ['COMPOSE_PROJECT_NAME']}-git"
        for command in (["rm", "--force", server], ["compose", "down", "--volumes"]):
            subprocess.run(["docker", *command], cwd=folder, env=environ, capture_output=True)


def _check(said: str) -> None:
    if "the child is agent" not in said:
        raise Faulty(f"the delegation has another result:\n{said}")


def _deliver(folder: Path, environ: dict[str, str]) -> None:
    """One delegation delivers at its end, and another one afterwards."""
    shell(_SERVE, folder, environ)
    by_worker, by_service = _BRANCHES
    workspace = f"--git {_GIT}/project.git"
    _check(shell(_RUN.format(workspace=f"{workspace} --deliver {by_worker}"), folder, environ))
    _check(shell(_RUN.format(workspace=workspace), folder, environ))
    shell(f"docker compose exec -T orchestrator deputize deliver --branch {by_service} @last", folder, environ)
    for branch in _BRANCHES:
        pushed = git(folder / "served/project.git", "diff", "--name-only", "main", branch).splitlines()
        if pushed != ["app.txt", "new/file.txt"]:
            raise Faulty(f"the branch {branch} has other changes: {pushed}")


def _copy_what_is_built(folder: Path) -> None:
    needed = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    for name in (*needed, ".dockerignore", "docker-compose.yml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def commands(text: str) -> tuple[list[str], str, list[str]]:
    """What the header prints: what comes first, how all is started, and how images are built behind a proxy."""
    commands = [each.strip() for each in _COMMAND.findall(text.partition("\nname:")[0])]
    (up,) = [each for each in commands if each.startswith("docker compose up")]
    builds = [each for each in commands if each.startswith("docker build")]
    return commands[: commands.index(up)], up, builds


def _base_images(found: Engine) -> dict[str, str]:
    """Pulls the images that others build upon. An engine of our own gets a stand-in for all of them."""
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    defaults = dict(re.findall(r"\$\{(DEPUTIZE_\w+_IMAGE):-([^}]+)\}", text))
    images = {name: found.environ.get(name) or default for name, default in defaults.items()}
    if found.folder:
        stand_in(found, defaults["DEPUTIZE_PYTHON_IMAGE"].rpartition("-")[2], _STAND_IN)
        return dict.fromkeys(images, _STAND_IN)
    for image in images.values():
        pulled = subprocess.run(["docker", "pull", "--quiet", image], env=found.environ, capture_output=True)
        if pulled.returncode:
            raise Unavailable(f"{image} cannot be pulled: {last_line(pulled.stderr)}")
    return images


def shell(script: str, folder: Path, environ: dict[str, str], *, builds: bool = False) -> str:
    """Runs commands, and returns what they write. Raises Faulty with it, or Unavailable where a build was offline."""
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=environ, capture_output=True, text=True)
    if not done.returncode:
        return done.stdout
    output = done.stdout + done.stderr
    if builds and "failed to solve" in output and _OF_NETWORK.search(output):
        raise Unavailable(f"the images cannot be built offline: {output.strip().splitlines()[-1][:300]}")
    logs = subprocess.run(
        "docker compose ps --all; docker compose logs --tail 30",
        shell=True,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
    )
    raise Faulty(f"exit code {done.returncode} of:\n{script}\n{output}\n{logs.stdout}")


if __name__ == "__main__":
    raise SystemExit(main())
