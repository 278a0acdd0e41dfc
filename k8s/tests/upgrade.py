"""Finds what an upgrade would break: compares the objects of one render with those of another, with the same values."""

from typing import Any

# Fields that the API server refuses to change.
IMMUTABLE = {
    "Deployment": ["spec.selector"],
    "StatefulSet": ["spec.selector", "spec.serviceName", "spec.volumeClaimTemplates", "spec.podManagementPolicy"],
    "DaemonSet": ["spec.selector"],
    "Job": ["spec.selector", "spec.template", "spec.completions"],
    "PersistentVolumeClaim": ["spec.accessModes", "spec.storageClassName", "spec.volumeName"],
    "RoleBinding": ["roleRef"],
    "ClusterRoleBinding": ["roleRef"],
    "Secret": ["type"],
}
# Clients use these, or they hold data. Other objects can be removed or renamed: Helm makes new ones at once.
WORKLOADS = ["Deployment", "StatefulSet", "DaemonSet"]
LASTING = [*WORKLOADS, "Service", "PersistentVolumeClaim", "ServiceAccount", "Ingress", "HTTPRoute", "GRPCRoute"]
AUTOSCALERS = ["HorizontalPodAutoscaler", "ScaledObject"]

Key = tuple[str, str]


def at(thing: dict, path: str) -> Any:
    for part in path.split("."):
        thing = thing.get(part) if isinstance(thing, dict) else None
    return thing


def by_key(objects: list[dict]) -> dict[Key, dict]:
    """Without hooks: Helm deletes those before it makes new ones."""
    lasting = [each for each in objects if "helm.sh/hook" not in (each["metadata"].get("annotations") or {})]
    return {(each["kind"], each["metadata"]["name"]): each for each in lasting}


def breaks(old: list[dict], new: list[dict]) -> list[str]:
    """Each with the object and the reason. Empty: the upgrade keeps what is running."""
    before, after = by_key(old), by_key(new)
    found = []
    for key, each in before.items():
        if key not in after:
            if key[0] in LASTING:
                found.append(f"{name(key)} vanishes; keep its name, or release a major version with instructions")
            continue
        found += changed(key, each, after[key])
    found += vanished_pods(before, after)
    found += scaled_twice(before, after)
    return found


def name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def changed(key: Key, old: dict, new: dict) -> list[str]:
    found = [f"{name(key)}: {path} is immutable" for path in IMMUTABLE.get(key[0], []) if at(old, path) != at(new, path)]
    if key[0] == "Service" and (at(old, "spec.clusterIP") == "None") != (at(new, "spec.clusterIP") == "None"):
        found.append(f"{name(key)}: spec.clusterIP is immutable")
    if old.get("immutable") and old.get("data") != new.get("data"):
        found.append(f"{name(key)}: its data is immutable")
    return found


def vanished_pods(before: dict[Key, dict], after: dict[Key, dict]) -> list[str]:
    """Pods of the old chart serve until the new ones are ready, so the new Services must find them and their ports."""
    found = []
    workloads = [each["spec"]["template"] for key, each in before.items() if key[0] in WORKLOADS]
    for key, service in after.items():
        if key[0] != "Service" or key not in before:
            continue
        old = [pod for pod in workloads if selects(before[key]["spec"]["selector"], pod)]
        for pod in old:
            if not selects(service["spec"]["selector"], pod):
                found.append(f"{name(key)}: its selector does not find the pods of the old release")
                continue
            ports = {port.get("name") for container in pod["spec"]["containers"] for port in container.get("ports", [])}
            for port in service["spec"]["ports"]:
                target = port.get("targetPort", port["port"])
                if isinstance(target, str) and target not in ports:
                    found.append(f"{name(key)}: the pods of the old release have no port `{target}`")
    return found


def selects(selector: dict, pod: dict) -> bool:
    return selector.items() <= pod["metadata"]["labels"].items()


def scaled_twice(before: dict[Key, dict], after: dict[Key, dict]) -> list[str]:
    """An autoscaler owns the number of pods: a chart that sets it, or takes it away, resets it."""
    found = []
    for key, scaler in after.items():
        if key[0] not in AUTOSCALERS:
            continue
        target = (scaler["spec"]["scaleTargetRef"].get("kind", "Deployment"), scaler["spec"]["scaleTargetRef"]["name"])
        if target not in after:
            found.append(f"{name(key)} scales {name(target)}, which is not there")
            continue
        if "replicas" in after[target]["spec"]:
            found.append(f"{name(target)}: spec.replicas belongs to {name(key)}")
        if "replicas" in before.get(target, {}).get("spec", {}):
            found.append(f"{name(target)}: spec.replicas was set and is not any more; Kubernetes takes that for 1")
    return found
