"""The Kubernetes manifest of a worker agrees with the compose file, field by field. No cluster is asked."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from deputize.shared.settings import Settings
from deputize.worker.web.targets import CLOUD_METADATA
from tests.architecture.sources import ROOT

FILE = ROOT / "worker/sandbox/kubernetes.yaml"
GIB = {"4g": "4Gi"}


def manifest(kind: str) -> dict[str, Any]:
    return next(each for each in yaml.safe_load_all(FILE.read_text("utf-8")) if each["kind"] == kind)


@pytest.fixture
def pod() -> dict[str, Any]:
    return manifest("Deployment")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    return pod["containers"][0]


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]["worker"]


def test_the_user_is_that_of_the_image(pod: dict[str, Any]) -> None:
    own = pod["securityContext"]
    assert f"USER {own['runAsUser']}:{own['runAsGroup']}\n" in (ROOT / "worker/Dockerfile").read_text("utf-8")
    assert (own["runAsNonRoot"], own["fsGroup"]) == (True, own["runAsUser"])


def test_the_container_is_confined_as_by_compose(
    pod: dict[str, Any], container: dict[str, Any], compose: dict[str, Any]
) -> None:
    own = container["securityContext"]
    assert own["capabilities"]["drop"] == compose["cap_drop"] == ["ALL"]
    assert own["readOnlyRootFilesystem"] is compose["read_only"] is True
    assert (own["allowPrivilegeEscalation"], own.get("privileged", False)) == (False, False)
    options = compose["security_opt"]
    assert ("no-new-privileges:true" in options, "systempaths=unconfined" in options) == (True, True)
    assert (own["procMount"], pod["hostUsers"]) == ("Unmasked", False)
    assert (own["appArmorProfile"]["type"], "apparmor=unconfined" in options) == ("Unconfined", True)
    assert own["seccompProfile"]["type"] == "Localhost"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & {*pod}


def test_the_seccomp_profile_that_it_names_is_the_file_of_compose(
    container: dict[str, Any], compose: dict[str, Any]
) -> None:
    profile = ROOT / "worker/sandbox/seccomp-worker.json"
    assert "seccomp=./worker/sandbox/seccomp-worker.json" in compose["security_opt"]
    assert str(profile.relative_to(ROOT)) in FILE.read_text("utf-8")
    name = container["securityContext"]["seccompProfile"]["localhostProfile"]
    assert f"/var/lib/kubelet/seccomp/{name}" in FILE.read_text("utf-8")
    denied = {name for rule in json.loads(profile.read_text("utf-8"))["syscalls"] for name in rule["names"]}
    assert not denied & {"clone", "unshare", "mount", "umount2", "pivot_root"}


def test_limits_grace_and_health_check_are_those_of_compose(
    pod: dict[str, Any], container: dict[str, Any], compose: dict[str, Any]
) -> None:
    assert container["resources"]["limits"]["memory"] == GIB[compose["mem_limit"]]
    assert f"{pod['terminationGracePeriodSeconds']}s" == compose["stop_grace_period"]
    assert container["readinessProbe"]["exec"]["command"][-1] == compose["healthcheck"]["test"][-1]
    assert container["args"] == compose["command"]


def test_secrets_are_files_and_no_token_is_mounted(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    variables = {each["name"]: each.get("value", "") for each in container["env"]}
    assert not [each for each in container["env"] if "valueFrom" in each]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts["/run/secrets"]["readOnly"] is True
    files = {name: path for name, path in variables.items() if name.endswith("_FILE")}
    assert {*files} == {"DEPUTIZE_REDIS_URL_FILE", "ANTHROPIC_API_KEY_FILE"}
    assert all(path.startswith("/run/secrets/") for path in files.values())
    assert all(name in mounts for name in ("/tmp", variables["DEPUTIZE_WORKSPACE_ROOT"]))
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_its_settings_are_read(container: dict[str, Any], compose: dict[str, Any]) -> None:
    variables = {each["name"]: each["value"] for each in container["env"] if not each["name"].endswith("_FILE")}
    settings = Settings.load(environ=variables)
    assert settings.sandbox.enabled == "required"
    assert compose["environment"]["DEPUTIZE_WORKSPACE_ROOT"] == variables["DEPUTIZE_WORKSPACE_ROOT"]


def test_the_network_policy_shuts_metadata_services_and_private_networks_out() -> None:
    policy = manifest("NetworkPolicy")["spec"]
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels == manifest("Deployment")["spec"]["selector"]["matchLabels"]
    assert (policy["policyTypes"], policy["ingress"]) == (["Ingress", "Egress"], [])
    blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule["to"] if "ipBlock" in to]
    excluded = [ip_network(each) for each in blocks[0]["except"]]
    link_local = [each for each in CLOUD_METADATA if each.version == 4 and not each.is_global]
    for address in (*link_local, *map(ip_address, ("10.1.2.3", "172.20.0.1", "192.168.1.1"))):
        assert any(address in network for network in excluded), address
