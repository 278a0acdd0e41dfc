"""Pods keep to Pod Security's restricted profile, and to the rules of checkov."""

import copy
import json
import subprocess
import sys

import pytest
import yaml

from chart import SETS, render_set

# The rules of checkov that the chart does not keep to.
SKIPPED = {
    "CKV_K8S_8": "the pod of `helm test` ends by itself",
    "CKV_K8S_9": "the pod of `helm test` serves nobody",
    "CKV_K8S_11": "a limit of processor time slows a process down while the node is idle; memory has limits",
    "CKV_K8S_15": "a tag is not moved, and a digest cannot be, so IfNotPresent is right",
    "CKV_K8S_21": "the namespace is that of the release",
    "CKV_K8S_35": "pools may name vendors' keys by variable, and `podium migrate` reads PGPASSWORD; all other secrets are files",
    "CKV_K8S_43": "the digest is the user's (image.digest)",
    "CKV2_K8S_6": "the pod of `helm test` is restricted by the policies of what it asks",
}
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret", "image"}


def violations(spec: dict) -> list[str]:
    """The parts that Pod Security's restricted profile refuses, or that break this chart's further promises."""
    found = []
    pod = spec.get("securityContext", {})
    if spec.get("hostNetwork") or spec.get("hostPID") or spec.get("hostIPC"):
        found.append("it shares the node's namespaces")
    if pod.get("runAsNonRoot") is not True or pod.get("runAsUser") == 0:
        found.append("it may run as root")
    if pod.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        found.append("it has no seccomp profile")
    if spec.get("automountServiceAccountToken") is not False:
        found.append("it gets a token of the API server")
    for volume in spec.get("volumes", []):
        if not set(volume) - {"name"} <= VOLUMES:
            found.append(f"volume {volume['name']} is of a refused type")
    for container in spec["containers"] + spec.get("initContainers", []):
        own, name = container.get("securityContext", {}), container["name"]
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            found.append(f"{name} may gain rights")
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            found.append(f"{name} has capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            found.append(f"{name} can write to its image")
        if "memory" not in container.get("resources", {}).get("limits", {}) or "cpu" not in container["resources"].get("requests", {}):
            found.append(f"{name} has no bounds")
        if any("hostPort" in port for port in container.get("ports", [])):
            found.append(f"{name} takes a port of the node")
    return found


@pytest.mark.parametrize("name", SETS)
def test_pods_are_restricted(name):
    for pod, spec in render_set(name).pods().items():
        assert violations(spec) == [], pod


BREAKS = {
    "it shares the node's namespaces": lambda pod, container: pod.update(hostNetwork=True),
    "it may run as root": lambda pod, container: pod["securityContext"].pop("runAsNonRoot"),
    "it has no seccomp profile": lambda pod, container: pod["securityContext"].pop("seccompProfile"),
    "it gets a token of the API server": lambda pod, container: pod.pop("automountServiceAccountToken"),
    "volume x is of a refused type": lambda pod, container: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    "gateway may gain rights": lambda pod, container: container["securityContext"].pop("allowPrivilegeEscalation"),
    "gateway has capabilities": lambda pod, container: container["securityContext"]["capabilities"].update(add=["NET_ADMIN"]),
    "gateway can write to its image": lambda pod, container: container["securityContext"].update(readOnlyRootFilesystem=False),
    "gateway has no bounds": lambda pod, container: container["resources"].pop("limits"),
    "gateway takes a port of the node": lambda pod, container: container["ports"].append({"containerPort": 1, "hostPort": 1}),
}


@pytest.mark.parametrize("message", BREAKS)
def test_a_pod_that_is_not_restricted_is_found(message):
    pod = copy.deepcopy(render_set("minimal").pods()["Deployment/r-podium-gateway"])
    BREAKS[message](pod, pod["containers"][0])
    assert violations(pod) == [message]


def checkov(objects: list[dict], folder) -> dict[str, set]:
    """The rules that are broken, each with the objects."""
    file = folder / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    program = f"{sys.prefix}/bin/checkov"
    command = [program, "-f", str(file), "--framework", "kubernetes", "--compact", "--quiet", "--skip-download", "-o", "json"]
    done = subprocess.run([*command, "--skip-check", ",".join(SKIPPED)], capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout)
    broken = {}
    for check in report.get("results", {}).get("failed_checks", []):
        broken.setdefault(f"{check['check_id']} {check['check_name']}", set()).add(check["resource"])
    if "results" in report:
        assert report["summary"]["passed"] > 50 and report["summary"]["parsing_errors"] == 0
    return broken


def test_checkov_finds_nothing(tmp_path):
    objects = [each for name in ("ha", "gpu", "mtls") for each in render_set(name).objects]
    assert checkov(objects, tmp_path) == {}


def test_checkov_finds_a_privileged_container(tmp_path):
    found = copy.deepcopy(render_set("minimal").objects)
    gateway = next(each for each in found if each["kind"] == "Deployment")
    gateway["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"] = True
    assert any(rule.startswith("CKV_K8S_16 ") for rule in checkov(found, tmp_path))
