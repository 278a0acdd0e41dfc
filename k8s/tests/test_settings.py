"""The settings files that the chart writes are ones that the services accept."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from chart import CHART, ROOT, SETS, Render, broken_chart, render, render_set, values_of

PROCESSES = ["gateway", "planner", "executor"]
# A folder with podium-gateway, podium-planner and podium-executor.
BINARIES = os.environ.get("PODIUM_BINARIES")
# The chart derives these from other values.
DERIVED = {
    "allow_remote", "cell", "cells", "conductor", "conductor_next", "conductor_next_share", "drain_ms", "grpc_listen", "keys_required",
    "health_listen", "listen", "metrics_listen", "nats", "nats_credentials", "nats_nkey", "nats_password", "nats_token", "pool", "postgres",
    "postgres_migrate", "postgres_password", "redis", "redis_limits", "redis_password",
    "tls_certificate", "tls_client_root_certificates", "tls_key",
} | {f"{server}_{key}" for server in ("postgres", "nats", "redis") for key in ("root_certificates", "client_certificate", "client_key")}


def known(process: str) -> dict:
    """The keys of a process with their defaults or examples, from the file that --print-keys prints."""
    lines = (ROOT / "deploy" / "settings" / f"podium-{process}.toml").read_text().splitlines()
    assignments = [line.removeprefix("# ") for line in lines if re.match(r"(# )?[a-z_]+ = ", line)]
    return tomllib.loads("\n".join(assignments))


def settings(found: Render) -> dict[str, dict]:
    """The settings of each Deployment, by its name."""
    maps = {each["metadata"]["name"]: each["data"] for each in found.of_kind("ConfigMap")}
    return {name: tomllib.loads(data["podium.toml"]) for name, data in maps.items() if "podium.toml" in data}


def process_of(deployment: str) -> str:
    return next(process for process in PROCESSES if f"-{process}" in deployment)


@pytest.mark.parametrize("name", SETS)
def test_every_key_is_one_of_the_process(name):
    for deployment, keys in settings(render_set(name)).items():
        assert set(keys) <= set(known(process_of(deployment))), deployment


def allowed() -> dict[str, set]:
    definitions = yaml.safe_load((CHART / "values.schema.json").read_text())["definitions"]
    common = set(definitions["settings"]["properties"])
    return {process: common | set(definitions[f"{process}Settings"]["properties"]) for process in PROCESSES}


@pytest.mark.parametrize("process", PROCESSES)
def test_the_schema_has_every_setting_that_the_chart_does_not_derive(process):
    everywhere = {key for other in PROCESSES for key in known(other)}
    assert set(known(process)) - DERIVED - allowed()[process] == set()
    assert allowed()[process] <= everywhere - DERIVED


@pytest.mark.parametrize("process", PROCESSES)
def test_the_schema_accepts_the_values_that_print_keys_shows(process):
    definitions = yaml.safe_load((CHART / "values.schema.json").read_text())["definitions"]
    shown = known(process)
    own = {key: shown[key] for key in definitions[f"{process}Settings"]["properties"] if key in shown}
    common = {key: shown[key] for key in definitions["settings"]["properties"] if key in shown}
    over = {"settings": common, process: {"settings": own}}
    wrote = settings(render_set("minimal", **over))
    for deployment, keys in wrote.items():
        if process_of(deployment) == process:
            assert {key: keys[key] for key in own | common} == own | common


def mounted_files(found: Render, spec: dict, claims: dict[str, str]) -> dict[str, str]:
    """The files that the first container sees, with their contents. Secrets have one of `claims`' texts."""
    maps = {each["metadata"]["name"]: each["data"] for each in found.of_kind("ConfigMap")}
    volumes = {each["name"]: each for each in spec["volumes"]}
    files = {}
    for mount in spec["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        for source in volume.get("projected", {}).get("sources", [volume]):
            secret, config = source.get("secret"), source.get("configMap")
            if config and config["name"] in maps:
                data = maps[config["name"]]
                items = config.get("items") or [{"key": key, "path": key} for key in data]
                files |= {f"{mount['mountPath']}/{item['path']}": data[item["key"]] for item in items}
            elif secret or config:
                for item in (secret or config).get("items", []):
                    files[f"{mount['mountPath']}/{item['path']}"] = claims.get(item["path"], "secret")
        if "persistentVolumeClaim" in volume or "image" in volume or "emptyDir" in volume:
            files[f"{mount['mountPath']}/conductor.toml"] = ""
    return files


def paths_in(keys: dict) -> set[str]:
    """The files that a process opens because of its settings."""
    paths = set()
    for value in keys.values():
        text = str(value).removeprefix("file:")
        if text.startswith("llama:/var/"):
            paths.add(f"{text.removeprefix('llama:')}/conductor.toml")
        elif text.startswith("/"):
            paths.add(text)
    return paths


def missing_files(found: Render) -> list[str]:
    missing = []
    for deployment, keys in settings(found).items():
        spec = found.get("Deployment", deployment)["spec"]["template"]["spec"]
        files = mounted_files(found, spec, {})
        missing += [f"{deployment}: {path}" for path in sorted(paths_in(keys) - set(files))]
    return missing


@pytest.mark.parametrize("name", SETS)
def test_every_file_that_settings_name_is_mounted(name):
    assert missing_files(render_set(name)) == []


def test_a_file_that_is_not_mounted_is_found(tmp_path):
    broken = broken_chart(tmp_path, "templates/_pod.tpl", "mountPath: /etc/podium/cells", "mountPath: /etc/podium/cell")
    assert missing_files(render(values_of("cells"), broken)) == ["r-podium-gateway: /etc/podium/cells/cells.toml"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=podium"]
    subprocess.run([*command, "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    certificate = (folder / "cert").read_text()
    return {"ca.crt": certificate, "tls.crt": certificate, "tls.key": (folder / "key").read_text()}


def check_config(found: Render, deployment: str, folder: Path, certificate: dict[str, str]) -> subprocess.CompletedProcess:
    """Asks the process itself, with its mounts below `folder`."""
    pod = found.get("Deployment", deployment)["spec"]["template"]["spec"]

    def here(text: str) -> str:
        return text.replace("/etc/podium/", f"{folder}/etc/podium/").replace("/var/lib/podium/", f"{folder}/var/lib/podium/")

    for path, text in mounted_files(found, pod, certificate).items():
        file = Path(here(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(here(text) if path.endswith("podium.toml") else text)
    command = pod["containers"][0]["command"]
    environment = {each["name"]: "secret" for each in pod["containers"][0]["env"] if "secretKeyRef" in each.get("valueFrom", {})}
    arguments = [f"{BINARIES}/{command[0]}", *(here(each) for each in command[1:]), "--check-config"]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not BINARIES, reason="PODIUM_BINARIES names no folder with the services")
@pytest.mark.parametrize("name", SETS)
def test_the_services_accept_their_settings(name, tmp_path, certificate):
    found = render_set(name)
    for deployment in settings(found):
        if name == "gpu" and "planner" in deployment:
            continue  # It would need the weights.
        checked = check_config(found, deployment, tmp_path / deployment, certificate)
        assert checked.returncode == 0 and "the settings are valid" in checked.stdout, f"{deployment}: {checked.stderr}"


@pytest.mark.skipif(not BINARIES, reason="PODIUM_BINARIES names no folder with the services")
def test_the_services_refuse_a_wrong_setting(tmp_path, certificate):
    checked = check_config(render_set("minimal", settings={"lease_ms": 1}), "r-podium-executor", tmp_path, certificate)
    assert checked.returncode == 2 and "lease_ms" in checked.stderr
