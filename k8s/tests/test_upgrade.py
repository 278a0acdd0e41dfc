"""An upgrade from the last release's chart keeps what is running, whatever the values."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
import yaml

from chart import CHART, ROOT, SETS, broken_chart, render, values_of
from upgrade import breaks

# Stands in until a tag of the repository has a chart.
KEPT = Path(__file__).parent / "kept"


def git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)


@pytest.fixture(scope="session")
def previous(tmp_path_factory) -> Path:
    """The chart of the last tag that has one; else the kept one."""
    for tag in git("tag", "--list", "v*", "--merged", "HEAD", "--sort", "-version:refname").stdout.decode().split():
        archive = git("archive", tag, "k8s/podium")
        if archive.returncode == 0:
            folder = tmp_path_factory.mktemp("previous")
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
                files.extractall(folder, filter="data")
            return folder / "k8s" / "podium"
    kept = sorted(KEPT.glob("*.tgz"))
    assert len(kept) == 1, f"{KEPT} must hold one chart"
    return kept[0]


# The previous chart has no gateway.tls.
@pytest.mark.parametrize("name", [name for name in SETS if name != "tls"])
def test_an_upgrade_breaks_nothing(name, previous):
    assert breaks(render(values_of(name), previous).objects, render(values_of(name)).objects) == []


CHANGES = {
    "selector": ("templates/_names.tpl", "app.kubernetes.io/component: ", "podium.component: ",
                 "Deployment/r-podium-gateway: spec.selector is immutable"),
    "selector of a service": ("templates/_names.tpl", "app.kubernetes.io/component: ", "podium.component: ",
                              "Service/r-podium-gateway: its selector does not find the pods of the old release"),
    "version in a selector": ("templates/_names.tpl", "app.kubernetes.io/instance: {{ .root.Release.Name }}",
                              "app.kubernetes.io/instance: {{ .root.Release.Name }}-2",
                              "Deployment/r-podium-executor: spec.selector is immutable"),
    "name": ("templates/executor.yaml", "%s-executor", "%s-worker", "Deployment/r-podium-executor vanishes"),
    "headless service": ("templates/services.yaml", "  clusterIP: None\n", "",
                         "Service/r-podium-gateway-headless: spec.clusterIP is immutable"),
    "port": ("templates/_pod.tpl", "{name: http, containerPort: 8080}", "{name: api, containerPort: 8080}", None),
    "port of a service": ("templates/services.yaml", "targetPort: http", "targetPort: api",
                          "Service/r-podium-gateway: the pods of the old release have no port `api`"),
    "number of pods": ("templates/_workload.tpl", '{{- if eq $kind "none" }}', "{{- if true }}",
                       "Deployment/r-podium-gateway: spec.replicas belongs to HorizontalPodAutoscaler/r-podium-gateway"),
    "target of a scaler": ("templates/_workload.tpl", "kind: Deployment, name: {{ .name }}}", "kind: Deployment, name: x}",
                           "HorizontalPodAutoscaler/r-podium-gateway scales Deployment/x, which is not there"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_chart_that_breaks_upgrades_is_found(change, tmp_path):
    file, old, new, message = CHANGES[change]
    found = breaks(render(values_of("ha")).objects, render(values_of("ha"), broken_chart(tmp_path, file, old, new)).objects)
    assert any(each.startswith(message) for each in found) if message else found == []


def test_a_job_that_changes_under_its_name_is_found(tmp_path):
    fixed = broken_chart(tmp_path, "templates/migrations.yaml", '{{ printf "%s%s" $pod .Chart.Version | sha256sum | trunc 8 }}', "once")
    old, new = (render(values_of("argocd", image={"tag": tag}), fixed).objects for tag in ("1", "2"))
    assert breaks(old, new) == ["Job/r-podium-migrate-once: spec.template is immutable"]
    old, new = (render(values_of("argocd", image={"tag": tag})).objects for tag in ("1", "2"))
    assert breaks(old, new) == []


def test_an_autoscaler_that_a_chart_switches_on_is_found():
    off, on = (render(values_of("minimal", gateway={"autoscaling": {"kind": kind}})).objects for kind in ("none", "hpa"))
    assert breaks(off, on) == ["Deployment/r-podium-gateway: spec.replicas was set and is not any more; Kubernetes takes that for 1"]


def contents(chart: Path) -> dict[str, str]:
    """The files that a release is made from: without pages and examples."""
    files = [chart / "Chart.yaml", chart / "values.yaml", chart / "values.schema.json", *chart.glob("templates/**/*.*")]
    return {str(file.relative_to(chart)): file.read_text() for file in files}


def test_a_changed_chart_has_another_version(previous):
    """A version is one chart: a release that was tagged is not changed."""
    if previous.suffix == ".tgz":
        pytest.skip("no tag has a chart yet")
    before, files = contents(previous), contents(CHART)
    versions = [yaml.safe_load(each["Chart.yaml"])["version"] for each in (before, files)]
    assert before == files or versions[0] != versions[1], f"the chart differs from that of the last tag: raise its version {versions[1]}"
