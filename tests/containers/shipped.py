"""What is shipped, run without an engine: the services of the compose file and the pods of the manifests.

Each container is made of what those files say: its user, what it lacks, its mounts, its variables, its command. All of
a project share one network of their own, as the containers of a pod do; there `redis` is this machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from deputize.orchestrator.redis_server import find_program
from deputize.shared.libc import LIBC
from tests.containers.confined import Container, Mount
from tests.containers.images import Image, files, image
from tests.system.compose import ROOT, service
from tests.waiting import until_sync

T = TypeVar("T")
KUBERNETES = ROOT / "orchestrator/kubernetes/base"
PROFILES = {"profiles/deputize-worker.json": "worker/sandbox/seccomp-worker.json"}
"""Where the manifests find what the header of the kustomization has copied to each node."""
PASSWORD, TOKEN = "pw-of-the-test", "token-of-the-test-0123456789abcdef"
CONTAINERS = {"orchestrator": "api.yaml", "worker": "worker.yaml"}
_NEW_NET, _SIOCSIFFLAGS, _UP = 0x40000000, 0x8914, 0x41
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REDIS = Image(999, 1000, "/data", {}, [], [], [])


class Project:
    """A folder as the headers of these files describe it: secrets, configuration, projects, volumes."""

    def __init__(self, folder: Path, made: Path, network: str = "") -> None:
        self.folder, self._made, self.network = folder, made, network
        for name in ("secrets", "config", "projects", "volumes", "specs"):
            (folder / name).mkdir(parents=True)
        for name in ("docker-compose.yml", "worker/sandbox/seccomp-worker.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        rules = (ROOT / "shared/redis_user.acl").read_text("utf-8").splitlines()
        rule = " ".join(line for line in rules if not line.startswith("#"))
        self._write("redis_conf", f"user default off\nuser deputize on >{PASSWORD} {rule}\n")
        self._write("redis_url", f"redis://deputize:{PASSWORD}@redis:6379/0\n")
        self._write("deputize_token", TOKEN)
        self._write("anthropic_api_key", "key-of-the-test")
        self._write("flower_auth", "deputize:pw")

    def _write(self, secret: str, text: str) -> None:
        (self.folder / "secrets" / secret).write_text(text)

    def configure(self, toml: str) -> None:
        (self.folder / "config/deputize.toml").write_text(toml)

    def by_compose(self, name: str, **variables: str) -> Container:
        """A service of the compose file; ``variables`` are those that the file leaves to the environment."""
        found = service(name, self.folder, **variables)
        own = image(name) if name != "redis" else _REDIS
        options = found.get("security_opt", [])
        seccomp = [each.partition("=")[2] for each in options if each.startswith("seccomp=")]
        uid, gid = (int(each) for each in found.get("user", f"{own.uid}:{own.gid}").split(":"))
        mounts = [self._mount(each, own) for each in found["volumes"]]
        mounts += [self._secret(each["source"]) for each in found["secrets"]]
        return Container(
            image=self._image(name, own),
            argv=[*own.entrypoint, *found["command"]],
            environ=_environ(own, {key: value or "" for key, value in found.get("environment", {}).items()}),
            cwd=own.cwd,
            uid=uid,
            gid=gid,
            keeps_capabilities=found.get("cap_drop") != ["ALL"],
            no_new_privileges="no-new-privileges:true" in options,
            read_only=found.get("read_only", False),
            shows_proc="systempaths=unconfined" in options,
            seccomp=str(self.folder / seccomp[0]) if seccomp else "",
            tmpfs=found.get("tmpfs", []),
            mounts=mounts,
            init=found.get("init", False),
            network=self.network,
        )

    def by_manifest(self, name: str, **variables: str) -> Container:
        """The container of a deployment of the base; ``variables`` are those of its ConfigMap."""
        text = (KUBERNETES / CONTAINERS[name]).read_text("utf-8")
        (deployment,) = (each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        (found,) = pod["containers"]
        own, outer, inner = image(name), pod["securityContext"], found["securityContext"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        emptied = [each for each in found["volumeMounts"] if "emptyDir" in volumes[each["name"]]]
        assert not any(each.get("readOnly") for each in emptied), "nothing could ever be in it"
        others = [each for each in found["volumeMounts"] if each not in emptied]
        given = {each["name"]: each["value"] for each in found["env"]}
        profile = inner.get("seccompProfile", outer.get("seccompProfile", {}))
        return Container(
            image=self._image(name, own),
            argv=[*own.entrypoint, *found["args"]],
            environ=_environ(own, variables | given),
            cwd=own.cwd,
            uid=outer["runAsUser"],
            gid=outer["runAsGroup"],
            groups=[outer["fsGroup"]],
            keeps_capabilities=inner["capabilities"]["drop"] != ["ALL"],
            no_new_privileges=not inner["allowPrivilegeEscalation"],
            read_only=inner["readOnlyRootFilesystem"],
            shows_proc=inner.get("procMount") == "Unmasked",
            seccomp=str(self.folder / PROFILES[profile["localhostProfile"]]) if "localhostProfile" in profile else "",
            tmpfs=[each["mountPath"] for each in emptied],
            mounts=[mount for each in others for mount in self._of_pod(each, volumes[each["name"]], outer)],
            network=self.network,
        )

    def _image(self, name: str, own: Image) -> list[Mount]:
        folder = self._made / name
        folder.mkdir(exist_ok=True)
        mounts = files(tuple(own.packages), folder)
        if name != "redis":
            return mounts
        program = find_program()
        return [*mounts, Mount(str(program.parent), str(program.parent), True)]

    def _mount(self, each: dict[str, Any], own: Image) -> Mount:
        """A volume is empty at first, and belongs to whom the image has given its folder."""
        if each["type"] == "bind":
            return Mount(each["source"], each["target"], each.get("read_only", False))
        gid = 0 if own is not _REDIS else own.gid
        return Mount(self._volume(each["source"], own.uid, gid), each["target"], each.get("read_only", False))

    def _volume(self, name: str, uid: int, gid: int) -> str:
        folder = self.folder / "volumes" / name
        if not folder.exists():
            folder.mkdir()
            os.chown(folder, uid, gid)
            folder.chmod(0o2770)
        return str(folder)

    def _secret(self, name: str) -> Mount:
        return Mount(str(self.folder / "secrets" / name), f"/run/secrets/{name}", True)

    def _of_pod(self, each: dict[str, Any], volume: dict[str, Any], outer: dict[str, Any]) -> list[Mount]:
        """A secret is a folder of its items, which the group of the pod may read, and so is a volume's folder."""
        if "secret" not in volume:
            claimed = self._volume(volume["persistentVolumeClaim"]["claimName"], 0, outer["fsGroup"])
            return [Mount(claimed, each["mountPath"], each.get("readOnly", False))]
        folder = self.folder / "volumes" / f"secret-{'-'.join(item['key'] for item in volume['secret']['items'])}"
        folder.mkdir(exist_ok=True)
        for item in volume["secret"]["items"]:
            shutil.copy(self.folder / "secrets" / item["key"], folder / item["path"])
            os.chown(folder / item["path"], 0, outer["fsGroup"])
            (folder / item["path"]).chmod(volume["secret"]["defaultMode"])
        return [Mount(str(folder), each["mountPath"], each.get("readOnly", False))]

    @contextmanager
    def running(self, container: Container, log: Path) -> Generator[subprocess.Popen[bytes]]:
        """Runs the container meanwhile. Its output goes to ``log``."""
        process = self.start(container, log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()

    def start(self, container: Container, log: Path) -> subprocess.Popen[bytes]:
        spec = container.write(self.folder / "specs" / f"{log.name}.json")
        with log.open("ab") as output:
            command = [sys.executable, "-m", "tests.containers.confined", str(spec)]
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _environ(own: Image, given: dict[str, str]) -> dict[str, str]:
    """As the engine sets it. The image's /app is the virtual environment of this checkout."""
    programs = str(ROOT / ".venv/bin")
    path = own.environ.get("PATH", "$PATH").replace("/app/bin", programs).replace("$PATH", _PATH)
    redis = {"PATH": f"{find_program().parent}:{_PATH}"} if own is _REDIS else {}
    return own.environ | {"PATH": path} | redis | given


@contextmanager
def network() -> Generator[str]:
    """A network with nothing but its own loopback, as the path of its namespace."""
    own = Path("/proc/self/ns/net").readlink()
    with subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as holder:
        path = f"/proc/{holder.pid}/ns/net"
        try:
            until_sync(lambda: Path(path).readlink() != own)
            inside(path, _enable_loopback)
            yield path
        finally:
            holder.kill()


def _enable_loopback() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))


def inside(network: str, function: Callable[[], T]) -> T:
    """Calls the function in a thread whose connections and servers are in that network."""
    found: list[T] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            with Path(network).open() as file:
                assert LIBC.setns(file.fileno(), _NEW_NET) == 0
            found.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def script(folder: Path, **rules: list[Any]) -> None:
    """Writes a script of the scripted model, whose rules are chosen by a word of the task."""
    written = [{"match": {"contains": word}, "turns": turns, "summary": "No more."} for word, turns in rules.items()]
    (folder / "script.json").write_text(json.dumps({"rules": written, "label": ""}))
