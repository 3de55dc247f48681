"""The manifests for Kubernetes: valid by its schemas, and like the compose file, field by field. It asks no cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from deputize.orchestrator.metrics.exposition import QUEUED, RUNNING
from deputize.shared.settings import Settings
from deputize.worker.web.targets import CLOUD_METADATA
from tests.architecture.sources import ROOT

FOLDER = ROOT / "orchestrator/kubernetes"
EXAMPLE = FOLDER / "base/secret.example.yaml"
INGRESS, SCRAPED = (FOLDER / f"base/{name}.example.yaml" for name in ("ingress", "scrapeconfig"))
VARIANTS = ("external-redis", "sentinel", "gvisor", "autoscaling")
SERVICES = {
    "redis": "StatefulSet/redis",
    "orchestrator": "Deployment/deputize-api",
    "worker": "Deployment/deputize-worker",
}
"""The services of compose, and what they are here."""
MEMORY = {"4g": "4Gi", "1g": "1Gi", "1536m": "1536Mi"}
Manifest = dict[str, Any]


@cache
def manifests(variant: str = "base") -> dict[str, Manifest]:
    """All objects by kind and name: those of the base as its files hold them, those of a variant as kustomize does."""
    if variant == "base":
        files = [FOLDER / variant / name for name in kustomization(variant)["resources"]]
        text = "\n---\n".join(file.read_text("utf-8") for file in files)
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize", str(FOLDER / variant)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        pytest.skip("kubectl, which has kustomize, is not on the PATH")
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text)}


def kustomization(variant: str) -> Manifest:
    return yaml.safe_load((FOLDER / variant / "kustomization.yaml").read_text("utf-8"))


def pod(service: str, variant: str = "base") -> Manifest:
    return manifests(variant)[SERVICES[service]]["spec"]["template"]["spec"]


def container(service: str, variant: str = "base") -> Manifest:
    (only,) = pod(service, variant)["containers"]
    return only


def policy(app: str) -> Manifest:
    return manifests()[f"NetworkPolicy/deputize-{app}"]["spec"]


@cache
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]


def mistakes(manifest: Manifest) -> list[str]:
    known = json.loads((ROOT / "tests/orchestrator/kubernetes_schema.json").read_text("utf-8"))
    schema = known["kinds"][manifest["kind"]] | {"$defs": known["$defs"]}
    return [each.message for each in Draft202012Validator(schema).iter_errors(manifest)]


@pytest.mark.parametrize("variant", ["base", *VARIANTS])
def test_every_object_is_valid(variant: str) -> None:
    ours = {name: each for name, each in manifests(variant).items() if not each["apiVersion"].startswith("keda.sh/")}
    assert {name: found for name, each in ours.items() if (found := mistakes(each))} == {}
    assert len(ours) >= 10


def test_a_misspelt_field_is_not_valid() -> None:
    text = json.dumps(manifests()["Deployment/deputize-worker"])
    for right, wrong in (("procMount", "procMounts"), ("readOnlyRootFilesystem", "readonlyRootFilesystem")):
        assert mistakes(json.loads(text.replace(right, wrong)))


def test_every_file_is_in_use() -> None:
    for folder in FOLDER.iterdir():
        named = {Path(each).name for each in kustomization(folder.name)["resources"]}
        examples = {each.name for each in (EXAMPLE, INGRESS, SCRAPED) if folder == each.parent}
        assert {path.name for path in folder.glob("*.yaml")} - named == {"kustomization.yaml"} | examples, folder


def test_the_example_of_the_secret_is_valid_and_has_what_the_containers_read() -> None:
    example = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    assert mistakes(example) == []
    assert mistakes(example | {"stringdata": {}})
    names = {each["secret"]["secretName"] for name in SERVICES for each in pod(name)["volumes"] if "secret" in each}
    assert names == {example["metadata"]["name"]}
    assert example["metadata"]["namespace"] == kustomization("base")["namespace"]
    values = example["stringData"]
    assert {*values} == {secret for name in SERVICES for secret in compose()[name]["secrets"]}
    acl = (ROOT / "shared/redis_user.acl").read_text("utf-8").splitlines()
    rules = " ".join(line for line in acl if not line.startswith("#"))
    assert values["redis_conf"] == f"user default off\nuser deputize on >PASSWORD {rules}\n"
    assert values["redis_url"] == "redis://deputize:PASSWORD@redis:6379/0"


def test_the_examples_of_an_ingress_and_of_a_scrape_lead_to_the_service() -> None:
    ingress, scraped = (yaml.safe_load(file.read_text("utf-8")) for file in (INGRESS, SCRAPED))
    assert mistakes(ingress) == []
    assert mistakes(ingress | {"specs": {}})
    service, spaces = manifests()["Service/deputize"], {kustomization("base")["namespace"]}
    (port,) = service["spec"]["ports"]
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert {each["metadata"]["namespace"] for each in (ingress, scraped)} == spaces
    (targets,) = scraped["spec"]["staticConfigs"]
    assert targets == {"targets": [f"{service['metadata']['name']}.{spaces.pop()}.svc:{port['port']}"]}
    secret = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    credentials = scraped["spec"]["authorization"]["credentials"]
    assert credentials["name"] == secret["metadata"]["name"]
    assert credentials["key"] in secret["stringData"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which has kustomize, is not on the PATH")
def test_kustomize_builds_the_base_with_the_version_of_the_project() -> None:
    command = ["kubectl", "kustomize", str(FOLDER / "base")]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {f"{each['kind']}/{each['metadata']['name']}" for each in yaml.safe_load_all(built)}
    assert {*manifests()} == {name for name in names if not name.startswith("ConfigMap/")}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    images = set(re.findall(r"image: (\S+)", built))
    own = {f"{compose()[name]['image']}:{version}" for name in ("orchestrator", "worker")}
    (redis,) = images - own
    assert (own - images, redis in compose()["redis"]["image"]) == (set(), True)


@pytest.mark.parametrize("service", ["orchestrator", "worker"])
def test_the_user_is_that_of_the_image(service: str) -> None:
    own = pod(service)["securityContext"]
    assert f"USER {own['runAsUser']}:{own['runAsGroup']}\n" in (ROOT / service / "Dockerfile").read_text("utf-8")
    assert (own["runAsNonRoot"], own["fsGroup"]) == (True, own["runAsUser"])


def test_the_user_of_redis_is_that_of_compose() -> None:
    own = pod("redis")["securityContext"]
    assert f"{own['runAsUser']}:{own['runAsGroup']}" == compose()["redis"]["user"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_is_confined_as_by_compose(service: str) -> None:
    own, theirs = container(service)["securityContext"], compose()[service]
    assert own["capabilities"]["drop"] == theirs["cap_drop"] == ["ALL"]
    assert own["readOnlyRootFilesystem"] is theirs["read_only"] is True
    assert (own["allowPrivilegeEscalation"], own.get("privileged", False)) == (False, False)
    assert "no-new-privileges:true" in theirs["security_opt"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & {*pod(service)}
    assert "seccompProfile" in own | pod(service)["securityContext"]
    assert pod(service)["automountServiceAccountToken"] is False


def test_commands_of_a_worker_may_do_what_they_may_by_compose() -> None:
    own, options = container("worker")["securityContext"], compose()["worker"]["security_opt"]
    assert "systempaths=unconfined" in options
    assert (own["procMount"], pod("worker")["hostUsers"]) == ("Unmasked", False)
    assert (own["appArmorProfile"]["type"], "apparmor=unconfined" in options) == ("Unconfined", True)
    assert own["seccompProfile"]["type"] == "Localhost"


def test_the_seccomp_profile_that_it_names_is_the_file_of_compose() -> None:
    profile, header = (
        ROOT / "worker/sandbox/seccomp-worker.json",
        (FOLDER / "base/kustomization.yaml").read_text("utf-8"),
    )
    assert "seccomp=./worker/sandbox/seccomp-worker.json" in compose()["worker"]["security_opt"]
    assert str(profile.relative_to(ROOT)) in header
    name = container("worker")["securityContext"]["seccompProfile"]["localhostProfile"]
    assert f"/var/lib/kubelet/seccomp/{name}" in header
    denied = {name for rule in json.loads(profile.read_text("utf-8"))["syscalls"] for name in rule["names"]}
    assert not denied & {"clone", "unshare", "mount", "umount2", "pivot_root"}


@pytest.mark.parametrize("service", SERVICES)
def test_limits_grace_and_command_are_those_of_compose(service: str) -> None:
    own, theirs = container(service), compose()[service]
    assert own["resources"]["limits"]["memory"] == MEMORY[theirs["mem_limit"]]
    assert f"{pod(service)['terminationGracePeriodSeconds']}s" == theirs["stop_grace_period"]
    assert own["args"] == theirs["command"]


def test_the_processors_that_it_asks_for_are_as_the_base_prints_them() -> None:
    """On a node with fewer a rollout waits for ever: no worker ends before the new one has begun."""
    asked = {name: processors(container(name)["resources"]["requests"]["cpu"]) for name in SERVICES}
    specs = {name: manifests()[SERVICES[name]]["spec"] for name in SERVICES}
    whole = sum(specs[name]["replicas"] * asked[name] for name in SERVICES)
    assert specs["worker"]["strategy"] == {"rollingUpdate": {"maxUnavailable": 0}}
    text = (FOLDER / "base/kustomization.yaml").read_text("utf-8")
    assert f"The pods ask for {whole:g} processors, and a rollout for half of one more." in text
    assert asked["worker"] == 0.5
    one = whole - asked["worker"]
    assert one + asked["worker"] <= 2 < whole + asked["worker"], "why it says: scale the workers to 1 first"


def processors(text: str) -> float:
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def test_health_is_asked_as_by_compose() -> None:
    for service in ("worker", "redis"):
        asked = container(service)["readinessProbe"]["exec"]["command"][-1]
        assert asked == compose()[service]["healthcheck"]["test"][-1].replace("$$", "$"), service
    alive = container("orchestrator")["livenessProbe"]["httpGet"]["path"]
    assert f"8642{alive}'" in compose()["orchestrator"]["healthcheck"]["test"][-1]
    # Less patient than with an outage of Redis, all workers would be restarted by it.
    assert "-mmin -10" in container("worker")["livenessProbe"]["exec"]["command"][-1]


@pytest.mark.parametrize("service", SERVICES)
def test_secrets_are_files_of_one_secret_which_has_those_of_compose(service: str) -> None:
    variables = {each["name"]: each.get("value", "") for each in container(service).get("env", ())}
    assert not [each for each in container(service).get("env", ()) if "valueFrom" in each]
    mounts = {each["mountPath"]: each for each in container(service)["volumeMounts"]}
    assert mounts["/run/secrets"]["readOnly"] is True
    (secret,) = [each["secret"] for each in pod(service)["volumes"] if "secret" in each]
    assert f"secret generic {secret['secretName']} --from-file=secrets/" in (
        FOLDER / "base/kustomization.yaml"
    ).read_text("utf-8")
    assert [each["key"] for each in secret["items"]] == [each["path"] for each in secret["items"]]
    assert {each["key"] for each in secret["items"]} == {*compose()[service]["secrets"]}
    files = {name: path for name, path in variables.items() if name.endswith("_FILE")}
    assert {*files.values()} <= {f"/run/secrets/{each['path']}" for each in secret["items"]}
    assert files == {name: compose()[service]["environment"][name] for name in files}
    claims = manifests()[SERVICES[service]]["spec"].get("volumeClaimTemplates", ())
    volumes = {each["name"] for each in pod(service)["volumes"]} | {each["metadata"]["name"] for each in claims}
    assert {each["name"] for each in container(service)["volumeMounts"]} == volumes


@pytest.mark.parametrize("service", ["orchestrator", "worker"])
def test_settings_are_read_and_lie_where_the_container_can_write(service: str) -> None:
    variables = {
        each["name"]: each["value"] for each in container(service)["env"] if not each["name"].endswith("_FILE")
    }
    settings = Settings.load(environ=variables)
    theirs = compose()[service]["environment"]
    assert {name: value for name, value in variables.items() if name in theirs and "$" not in theirs[name]} == {
        name: theirs[name] for name in variables if name in theirs and "$" not in theirs[name]
    }
    mounts = [each["mountPath"] for each in container(service)["volumeMounts"] if not each.get("readOnly")]
    assert any(settings.home.is_relative_to(mount) for mount in mounts)
    assert container(service)["envFrom"] == [{"configMapRef": {"name": "deputize-settings"}}]
    assert settings.sandbox.enabled == ("required" if service == "worker" else True)


def test_the_api_and_the_workers_share_the_files_of_runs_and_uploads() -> None:
    claims = [
        each for name in ("orchestrator", "worker") for each in pod(name)["volumes"] if each["name"] == "workspaces"
    ]
    assert claims[0] == claims[1]
    for service in ("orchestrator", "worker"):
        (mount,) = [each for each in container(service)["volumeMounts"] if each["name"] == "workspaces"]
        assert (mount["mountPath"], mount.get("readOnly")) == ("/var/lib/deputize/workspaces", None)


def test_each_service_finds_its_pods_and_each_budget_and_policy_means_some() -> None:
    labels = [
        each["spec"]["template"]["metadata"]["labels"] for each in map(manifests().get, SERVICES.values()) if each
    ]
    for name, each in manifests().items():
        match name.partition("/")[0]:
            case "Service":
                assert each["spec"]["selector"] in labels, name
            case "PodDisruptionBudget":
                assert each["spec"]["selector"]["matchLabels"] in labels, name
            case "NetworkPolicy":
                assert each["spec"]["podSelector"]["matchLabels"] in labels, name
            case "Deployment" | "StatefulSet":
                assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]
            case _:
                pass
    budgets = [name for name in manifests() if name.startswith("PodDisruptionBudget/")]
    assert len(budgets) == 2


def test_only_the_api_and_the_workers_reach_redis_and_nothing_reaches_a_worker() -> None:
    (rule,) = policy("redis")["ingress"]
    (chosen,) = rule["from"][0]["podSelector"]["matchExpressions"]
    assert (chosen["key"], chosen["values"]) == ("app", ["deputize-api", "deputize-worker"])
    assert (policy("worker")["policyTypes"], policy("worker")["ingress"]) == (["Ingress", "Egress"], [])


@pytest.mark.parametrize("app", ["api", "worker"])
def test_the_network_policy_shuts_metadata_services_and_private_networks_out(app: str) -> None:
    blocks = [to["ipBlock"] for rule in policy(app)["egress"] for to in rule["to"] if "ipBlock" in to]
    excluded = [ip_network(each) for block in blocks for each in block.get("except", ())]
    link_local = [each for each in CLOUD_METADATA if not each.is_global]
    private = ("10.1.2.3", "172.20.0.1", "192.168.1.1", "fd00::1", "fe80::1")
    for address in (*link_local, *map(ip_address, private)):
        assert any(address in network for network in excluded if network.version == address.version), address


def test_in_gvisor_a_worker_lacks_only_what_gvisor_replaces() -> None:
    spec, plain = pod("worker", "gvisor"), pod("worker")
    runtime = manifests("gvisor")["RuntimeClass/gvisor"]
    assert (spec["runtimeClassName"], runtime["handler"]) == (runtime["metadata"]["name"], "runsc")
    assert {*plain} - {*spec} == {"hostUsers"}
    own, theirs = (each["containers"][0]["securityContext"] for each in (spec, plain))
    assert {*theirs} - {*own} == {"procMount", "appArmorProfile"}
    assert own["capabilities"]["drop"] == ["ALL"]
    required = {"name": "DEPUTIZE_SANDBOX", "value": "required"}
    assert required in container("worker", "gvisor")["env"]


def test_with_a_redis_elsewhere_none_is_started_and_its_address_is_let_through() -> None:
    found = manifests("external-redis")
    assert [name for name in found if "redis" in name] == []
    for app in ("api", "worker"):
        rules = found[f"NetworkPolicy/deputize-{app}"]["spec"]["egress"]
        assert [rule["to"] for rule in rules if rule["ports"][0]["port"] == 6379] == [
            [{"ipBlock": {"cidr": "10.0.0.10/32"}}]
        ]


def test_workers_follow_what_waits_and_what_runs() -> None:
    found = manifests("autoscaling")
    scaled = found["ScaledObject/deputize-worker"]["spec"]
    assert f"Deployment/{scaled['scaleTargetRef']['name']}" == SERVICES["worker"]
    assert "replicas" not in found[SERVICES["worker"]]["spec"]
    metrics = [each["metadata"]["valueLocation"] for each in scaled["triggers"]]
    assert metrics == [QUEUED.name, RUNNING.name]
    service = found["Service/deputize"]
    address = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    assert {each["metadata"]["url"] for each in scaled["triggers"]} == {f"{address}/metrics"}
    (token,) = found["TriggerAuthentication/deputize-metrics"]["spec"]["secretTargetRef"]
    assert (token["name"], token["key"]) == ("deputize-secrets", "deputize_token")
