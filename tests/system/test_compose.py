"""The steps of the images without an engine: their entry points with the very environment that compose sets."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from deputize.shared.queue import Ticket, create_app, send_tickets
from deputize.shared.settings import Settings
from deputize.shared.settings.loading import VARIABLES
from deputize.shared.settings.variables import warn_of_unknown
from tests.fake_model import FakeModel, Turn, text
from tests.processes.redis_server import RedisProcess
from tests.runs.fleet import open_fleet
from tests.runs.tickets import queue_keys
from tests.system.compose import BIN, ROOT, service, shell
from tests.waiting import until

pytestmark = pytest.mark.system
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN = 24, 1, 2, 21
LIBRARIES = {"PYTHONPATH": str(ROOT)}


def environment(name: str, folder: Path, secrets: dict[str, str], **variables: str) -> dict[str, str]:
    """The container's environment with its paths below ``folder``: secrets, the tmpfs and the volumes."""
    places = {"/run/secrets": folder / "secrets", "/tmp": folder / "tmp", "/var/lib": folder / "lib"}
    for place in places.values():
        place.mkdir(exist_ok=True)
    for file, said in secrets.items():
        (folder / "secrets" / file).write_text(said + "\n")
    found = {key: value or "" for key, value in service(name, **variables)["environment"].items()}
    for key, value in found.items():
        inside = next((place for place in places if value.startswith(f"{place}/")), "")
        found[key] = value.replace(inside, str(places[inside]), 1) if inside else value
    return {"PATH": os.environ["PATH"], "TMPDIR": str(folder / "tmp")} | found


@pytest.fixture
def guarded_redis(redis_process: RedisProcess) -> str:
    """The address of a server with a password, as compose's secret has it."""
    with redis.Redis.from_url(redis_process.url) as client:
        client.config_set("requirepass", "pw")
    return redis_process.url.replace("unix://", "unix://:pw@", 1)


def worker(environment: dict[str, str], log: Path, **options: Any) -> subprocess.Popen[Any]:
    command = [sys.executable, "-P", "-m", "deputize.worker", "--name", "1"]
    with log.open("ab") as output:
        return subprocess.Popen(command, env=environment | LIBRARIES, stdout=output, stderr=output, **options)


async def test_a_worker_with_composes_environment_carries_out_a_delegation(guarded_redis: str, tmp_path: Path) -> None:
    async with FakeModel() as model, open_fleet(guarded_redis, tmp_path / "home") as fleet:
        model.script("", [Turn([text("done")])])
        given = environment("worker", tmp_path, {"redis_url": guarded_redis, "anthropic_api_key": model.key})
        assert given["ANTHROPIC_BASE_URL"] == given["DEPUTIZE_MODEL"] == given["DEPUTIZE_CONCURRENCY"] == ""
        process = worker(given | {"ANTHROPIC_BASE_URL": model.url}, tmp_path / "log", cwd=tmp_path)
        try:
            result = await fleet.run()
            assert (result.status, result.summary, result.errors) == ("succeeded", "done", [])
            alive = list((tmp_path / "tmp" / "deputize").glob("alive-*"))
            assert len(alive) == 1
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def memory(pid: int) -> float:
    """The MiB of a process and of those below it, each shared page once."""
    mine = re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(mine[0]) / 1024 + sum(memory(int(each)) for each in children)


async def test_an_idle_worker_needs_less_than_100_mib_and_loads_the_encoding_with_its_first_run(
    guarded_redis: str, tmp_path: Path
) -> None:
    async with FakeModel() as model, open_fleet(guarded_redis, tmp_path / "home") as fleet:
        model.script("", [Turn([text("done")])])
        given = environment("worker", tmp_path, {"redis_url": guarded_redis, "anthropic_api_key": model.key})
        process = worker(given | {"ANTHROPIC_BASE_URL": model.url}, tmp_path / "log", cwd=tmp_path)
        try:
            await until(lambda: [*(tmp_path / "tmp/deputize").glob("alive-*")], 60)
            idle = memory(process.pid)
            assert idle < 100
            assert (await fleet.run()).status == "succeeded"
            await until(lambda: memory(process.pid) > idle + 40, 60)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_an_empty_address_of_the_model_is_the_providers_own(tmp_path: Path) -> None:
    given = environment("worker", tmp_path, {"redis_url": "redis://redis", "anthropic_api_key": "key"})
    program = (
        "import asyncio; from deputize.shared.settings import Settings\n"
        "from deputize.worker.models.credentials import Credentials\n"
        "from deputize.worker.models.endpoint import Endpoint\n"
        "from deputize.worker.models.retry import RetryPolicy\n"
        "async def main():\n"
        "    print(Endpoint(Credentials(Settings.load().model_endpoint), RetryPolicy()).url)\n"
        "asyncio.run(main())"
    )
    blank = dict.fromkeys(("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "HTTPS_PROXY", "SSL_CERT_FILE"), " ")
    done = subprocess.run([sys.executable, "-c", program], env=given | blank, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "https://api.anthropic.com/v1/messages", done.stderr


def test_a_wrong_address_of_the_model_is_named(tmp_path: Path) -> None:
    given = environment("worker", tmp_path, {"redis_url": "redis://redis", "anthropic_api_key": "key"})
    program = (
        "import asyncio; from deputize.shared.settings import Settings\n"
        "from deputize.worker.models import open_model\n"
        "async def main(): open_model('m', Settings.load()).endpoint()\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=given | {"ANTHROPIC_BASE_URL": "gateway:8080"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "ANTHROPIC_BASE_URL is 'gateway:8080', but" in done.stderr


@pytest.mark.parametrize("place", ["closed", "missing"])
def test_a_workspace_volume_that_cannot_be_written_is_one_clear_line(
    guarded_redis: str, redis_process: RedisProcess, tmp_path: Path, place: str
) -> None:
    given = environment("worker", tmp_path, {"redis_url": guarded_redis, "anthropic_api_key": "key"})
    closed = tmp_path / "lib" / "closed"
    closed.mkdir(mode=0o500)
    root = closed if place == "closed" else closed / "missing"
    process = worker(
        given | {"DEPUTIZE_WORKSPACE_ROOT": str(root)}, tmp_path / "log", cwd="/", preexec_fn=_without_capabilities
    )
    assert process.wait(60) == 3
    said = (tmp_path / "log").read_text()
    assert (
        f"workspaces cannot be created in {root}: Permission denied for user {os.getuid()}, group {os.getgid()}" in said
    )
    assert "Traceback" not in said


def _without_capabilities(*dropped: int) -> None:
    """Modes stop this process, whatever its user."""
    for capability in dropped or (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be kept from namespaces so simply")
def test_a_worker_whose_sandbox_does_not_work_takes_no_work_ends_and_reports_it(
    guarded_redis: str, tmp_path: Path
) -> None:
    with create_app(Settings.load(environ={}), guarded_redis) as app:
        send_tickets(app, [Ticket("dlg_1")])
    given = environment("worker", tmp_path, {"redis_url": guarded_redis, "anthropic_api_key": "key"})
    process = worker(given, tmp_path / "log", cwd="/", preexec_fn=partial(_without_capabilities, CAP_SYS_ADMIN))
    assert process.wait(60) == 3
    said = (tmp_path / "log").read_text()
    assert "DEPUTIZE_SANDBOX is 'required', and the sandbox does not work here: " in said
    assert "Traceback" not in said
    with redis.Redis.from_url(guarded_redis) as client:
        assert sum(client.llen(key) for key in queue_keys()) == 1


@pytest.mark.costly
def test_doctor_is_well_inside_the_containers(guarded_redis: str, tmp_path: Path) -> None:
    for name in ("worker", "orchestrator"):
        secrets = {"redis_url": guarded_redis, "anthropic_api_key": "key", "deputize_token": "t" * 32}
        given = environment(name, tmp_path, secrets)
        given.pop("DEPUTIZE_URL", None)  # nothing listens there: this is not the container
        (tmp_path / "tmp").chmod(0o755)
        done = subprocess.run(
            [BIN / "deputize", "doctor", "--json"], env=given, cwd=tmp_path, capture_output=True, text=True
        )
        rows = {row["name"]: row["state"] for row in map(json.loads, done.stdout.splitlines())}
        assert (rows["home"], rows["redis"], rows["service"]) == ("ok", "ok", "ok"), done.stdout


def test_each_command_of_the_header_is_one_that_compose_reads() -> None:
    """Options of the whole, such as ``--profile``, stand before the command."""
    header = (ROOT / "docker-compose.yml").read_text("utf-8").partition("\nname:")[0]
    printed = re.findall(r"docker compose ((?:--?[\w-]+ \w+ )*)(\w+)([^#\n…]*)", header)
    assert {command for _, command, _ in printed} == {"up", "exec"}
    assert ("--profile ops ", "up", " ") in printed
    assert [rest for _, _, rest in printed if "--profile" in rest] == []


def test_every_service_that_speaks_to_redis_has_its_address_from_a_file() -> None:
    for name in ("orchestrator", "worker", "flower"):
        assert service(name)["environment"]["DEPUTIZE_REDIS_URL_FILE"] == "/run/secrets/redis_url"
        assert "DEPUTIZE_REDIS_URL" not in service(name)["environment"]
        assert "redis_url" in [secret["source"] for secret in service(name)["secrets"]]
    assert "/run/secrets/redis_conf" in service("redis")["command"]


def test_images_of_others_are_of_an_exact_version() -> None:
    for image in (service("redis")["image"], service("worker")["build"]["args"]["PYTHON"]):
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z-]+", image)


def test_the_state_folder_lies_where_a_read_only_container_can_write() -> None:
    for name in ("orchestrator", "worker", "flower"):
        found = service(name)
        assert any(found["environment"]["DEPUTIZE_HOME"].startswith(f"{place}/") for place in found["tmpfs"])


def test_what_a_set_up_command_made_lies_on_the_volume_of_the_workspaces_and_on_no_tmpfs() -> None:
    """A tmpfs of Docker is mounted noexec, is memory of the container, and ends with it."""
    found = service("worker")
    variables = {name: value for name, value in found["environment"].items() if not name.endswith("_FILE")}
    setups = Settings.load(environ=variables | {"DEPUTIZE_REDIS_URL": "redis://redis"}).setups
    assert not any(setups.is_relative_to(place) for place in found["tmpfs"])
    assert any(setups.is_relative_to(each["target"]) for each in found["volumes"] if each["source"] == "workspaces")


def test_logs_rotate_and_images_can_come_from_elsewhere() -> None:
    elsewhere = {"DEPUTIZE_PYTHON_IMAGE": "mirror/python@sha256:0", "DEPUTIZE_REDIS_IMAGE": "mirror/valkey@sha256:1"}
    for name in ("redis", "orchestrator", "worker", "flower"):
        assert service(name)["logging"]["options"]["max-size"] == "10m"
    assert service("redis", **elsewhere)["image"] == "mirror/valkey@sha256:1"
    assert service("worker", **elsewhere)["build"]["args"]["PYTHON"] == "mirror/python@sha256:0"


def test_the_dockerfiles_fetch_nothing_but_a_base_image_that_can_be_set() -> None:
    for name in ("worker", "orchestrator"):
        lines = (ROOT / name / "Dockerfile").read_text("utf-8").splitlines()
        assert not [line for line in lines if line.lower().startswith("# syntax")]
        bases = [line for line in lines if line.startswith("FROM ")]
        stages = {base.split()[3] for base in bases if " AS " in base}
        assert {base.split()[1] for base in bases} - stages == {"${PYTHON}"}
        assert lines.index(f"ARG PYTHON={service(name)['build']['args']['PYTHON']}") < lines.index(bases[0])
        assert any("compileall" in line for line in lines)
        first = "\n".join(lines[: lines.index(bases[1])])
        assert all(f"--mount=type=secret,id={each}," in first for each in ("pip_conf", "ca"))
        assert "\nARG PIP_INDEX_URL=\n" in first  # empty as compose gives it: both ways of building share the cache
        # any user of the image must be able to enter the folder where it starts
        assert "install --directory --mode=0755 /var/lib/deputize" in "\n".join(lines)
        assert "WORKDIR /var/lib/deputize" in lines


def test_flower_asks_for_the_password_of_its_secret(tmp_path: Path) -> None:
    found = service("flower")
    assert "flower_auth" in [secret["source"] for secret in found["secrets"]]
    (tmp_path / "flower_auth").write_text("deputize:pw\n")
    (tmp_path / "celery").write_text('#!/bin/sh\necho "$FLOWER_BASIC_AUTH $@"\n')
    (tmp_path / "celery").chmod(0o755)
    assert found["entrypoint"][:2] == ["sh", "-c"]
    done = shell(found["entrypoint"][2], tmp_path, secrets="/run/secrets")
    assert done.stdout == "deputize:pw --app deputize.shared.queue:app flower\n", done.stderr
    assert "--read-only=true" in found["command"]


def test_a_worker_is_healthy_as_long_as_its_loop_sends_heartbeats(tmp_path: Path) -> None:
    kind, command = service("worker")["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    assert shell(command, tmp_path, home="/tmp/deputize").returncode != 0
    (tmp_path / "alive-worker-1@host").touch()
    assert shell(command, tmp_path, home="/tmp/deputize").returncode == 0
    past = time.time() - 300
    os.utime(tmp_path / "alive-worker-1@host", (past, past))
    assert shell(command, tmp_path, home="/tmp/deputize").returncode != 0


def test_files_of_the_host_can_be_handed_over() -> None:
    for name in ("orchestrator", "worker"):
        assert service(name)["environment"]["DEPUTIZE_WORKSPACE_SOURCES"] == "/srv/projects"
    volumes = service("worker", DEPUTIZE_PROJECTS="/my/projects")["volumes"]
    (projects,) = [volume for volume in volumes if volume["target"] == "/srv/projects"]
    assert (projects["source"], projects["read_only"]) == ("/my/projects", True)
    for given, source in (({"DEPUTIZE_PROJECTS": "app"}, "app"), ({}, "projects")):
        (projects,) = [each for each in service("worker", **given)["volumes"] if each["target"] == "/srv/projects"]
        assert (projects["type"], projects["source"]) == ("bind", str(ROOT / source))


def test_settings_have_one_place_for_the_api_and_the_workers(tmp_path: Path) -> None:
    """Compose's own folder is the checkout, so that the files are looked for in a copy of it."""
    for file in ("docker-compose.yml", "worker/sandbox/seccomp-worker.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "deputize.env").write_text("DEPUTIZE_POLICY=/etc/deputize/rules.toml\n")
    for name in ("orchestrator", "worker"):
        assert "DEPUTIZE_POLICY" not in service(name)["environment"]
        found = service(name, tmp_path)
        assert found["environment"]["DEPUTIZE_POLICY"] == "/etc/deputize/rules.toml"
        (mounted,) = [each for each in found["volumes"] if each["target"] == "/etc/deputize"]
        assert (mounted["source"], mounted["read_only"]) == (str(tmp_path / "config"), True)
        (tmp_path / "settings/deputize").mkdir(parents=True, exist_ok=True)
        (tmp_path / "settings/deputize/deputize.toml").write_text('model = "of-the-file"')
        own = found["environment"] | {"XDG_CONFIG_HOME": str(tmp_path / "settings")}
        assert found["environment"]["XDG_CONFIG_HOME"] + "/deputize" == mounted["target"]
        places = {key: value for key, value in own.items() if value and not key.endswith("_FILE")}
        assert Settings.load(environ=places).model == "of-the-file"


def test_images_can_be_built_with_secrets_and_no_file_of_them_is_needed_otherwise() -> None:
    header = (ROOT / "docker-compose.yml").read_text("utf-8").partition("\nname:")[0]
    for name in ("orchestrator", "worker"):
        build, image = service(name)["build"], service(name)["image"]
        assert f"docker build --secret id=ca,src=ca.pem --file {build['dockerfile']} --tag {image} .\n" in header
        assert build.get("secrets", []) == []


def test_no_variable_of_compose_is_taken_for_a_misspelt_setting(caplog: pytest.LogCaptureFixture) -> None:
    named = set(re.findall(r"\$\{(DEPUTIZE_\w+)", (ROOT / "docker-compose.yml").read_text("utf-8")))
    warn_of_unknown(dict.fromkeys(named, "1"), VARIABLES)
    assert (caplog.messages, named >= {"DEPUTIZE_PROJECTS", "DEPUTIZE_FLOWER_PORT"}) == ([], True)


def test_the_example_of_variables_has_each_of_compose_with_its_default() -> None:
    given = re.findall(r"\$\{(\w+):-([^}]*)\}", (ROOT / "docker-compose.yml").read_text("utf-8"))
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    assert sorted(line[1:] for line in lines if re.match(r"#[A-Z]", line)) == sorted(map("=".join, given))
    assert [line for line in lines if not line.startswith("#") and line] == []


def test_service_and_workers_share_the_folder_of_workspaces_and_uploads() -> None:
    root = service("worker")["environment"]["DEPUTIZE_WORKSPACE_ROOT"]
    assert service("orchestrator")["environment"]["DEPUTIZE_WORKSPACE_ROOT"] == root
    mounted = {
        name: next(volume for volume in service(name)["volumes"] if volume["target"] == root)
        for name in ("orchestrator", "worker")
    }
    assert mounted["orchestrator"]["source"] == mounted["worker"]["source"] == "workspaces"
    assert [mounted[name].get("read_only") for name in mounted] == [None, None]
    # An empty volume gets the owner and mode of the folder in the image that mounts it first, whichever that is.
    lines = [
        [
            line.strip(" \\&")
            for line in (ROOT / name / "Dockerfile").read_text().splitlines()
            if root in line and "install" in line
        ]
        for name in ("orchestrator", "worker")
    ]
    assert lines[0] == lines[1] == [f"install --directory --owner=10001 --group=0 --mode=2770 {root}"]


def test_a_second_stack_can_stand_beside_the_first() -> None:
    for name, variable in (("orchestrator", "DEPUTIZE_PORT"), ("flower", "DEPUTIZE_FLOWER_PORT")):
        (port,) = service(name, **{variable: "12345"})["ports"]
        assert port["published"] == "12345"
    (port,) = service("orchestrator")["ports"]
    assert service("orchestrator")["environment"]["DEPUTIZE_URL"] == f"http://127.0.0.1:{port['target']}"


def test_the_containers_have_room_for_what_they_do() -> None:
    found = service("redis")
    (data,) = [int(part.removesuffix("mb")) << 20 for part in found["command"] if re.fullmatch(r"\d+mb", part)]
    assert int(found["mem_limit"]) >= 2 * data  # while its log is rewritten
    assert service("worker")["pids_limit"] >= 20 * 256  # so many commands may each have as many processes as they may
    assert any("host.docker.internal" in host for host in service("worker")["extra_hosts"])


def test_settings_take_the_sandbox_as_required() -> None:
    assert Settings.load(environ={"DEPUTIZE_SANDBOX": "required"}).sandbox.enabled == "required"
    assert Settings.load(environ={"DEPUTIZE_SANDBOX": "false"}).sandbox.enabled is False
