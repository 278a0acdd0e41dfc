"""An upgrade from the last release's chart keeps what is running, whatever the values."""

import shutil
from pathlib import Path

import pytest
import yaml

from chart import CHART, ROOT, SETS, broken_chart, render, values_of
from releases import IN_REPOSITORY, chart_of_last_tag, contents, git
from upgrade import breaks

# Stands in until a tag of the repository has a chart.
KEPT = Path(__file__).parent / "kept"


def kept_chart() -> Path:
    kept = sorted(KEPT.glob("*.tgz"))
    assert len(kept) == 1, f"{KEPT} must hold one chart"
    return kept[0]


@pytest.fixture(scope="session")
def previous(tmp_path_factory) -> Path:
    """The chart of the last tag that has one; else the kept one."""
    return chart_of_last_tag(ROOT, tmp_path_factory.mktemp("previous")) or kept_chart()


def values_for(name: str, previous: Path) -> dict:
    """The values of a set as users of the previous chart have them. Skips sets that came after it."""
    if previous.suffix == ".tgz":
        # The kept chart has no examples, and no gateway.tls.
        if name == "tls":
            pytest.skip("the kept chart has no gateway.tls")
        return values_of(name)
    if not (previous / "ci" / f"{name}-values.yaml").exists():
        pytest.skip(f"the last tag's chart has no set {name}")
    return values_of(name, chart=previous)


@pytest.mark.parametrize("name", SETS)
def test_an_upgrade_breaks_nothing(name, previous):
    values = values_for(name, previous)
    assert breaks(render(values, previous).objects, render(values).objects) == []


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


def changed_without_a_version(before: Path, after: Path) -> str:
    """A version is one chart: a release that was tagged is not changed. Empty if that holds."""
    old, new = contents(before), contents(after)
    versions = [yaml.safe_load(each["Chart.yaml"])["version"] for each in (old, new)]
    if old == new or versions[0] != versions[1]:
        return ""
    return f"the chart differs from that of the last tag: raise its version {versions[1]}"


def test_a_changed_chart_has_another_version(previous):
    if previous.suffix == ".tgz":
        pytest.skip("no tag has a chart yet")
    assert changed_without_a_version(previous, CHART) == ""


def commit(repository: Path, message: str, *tags: str) -> None:
    git(repository, "add", "--all")
    made = git(repository, "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--allow-empty", "--message", message)
    assert made.returncode == 0, made.stderr.decode()
    for tag in tags:
        assert git(repository, "tag", tag).returncode == 0


@pytest.fixture
def released(tmp_path) -> Path:
    """A repository whose tags v0.2.0-rc.1 and v0.2.0 have this chart; v0.1.0 has none, and v0.9.0 is not in HEAD's history."""
    repository = tmp_path / "repository"
    repository.mkdir()
    assert git(repository, "init", "--initial-branch", "main").returncode == 0
    (repository / "README.md").write_text("# No chart yet\n")
    commit(repository, "begin", "v0.1.0")
    shutil.copytree(CHART, repository / IN_REPOSITORY)
    chart = repository / IN_REPOSITORY / "Chart.yaml"
    for version in ("0.2.0-rc.1", "0.2.0"):
        chart.write_text(chart.read_text() + f"\n# {version}\n")
        commit(repository, f"release {version}", f"v{version}")
    assert git(repository, "switch", "--create", "side").returncode == 0
    chart.write_text(chart.read_text() + "\n# side\n")
    commit(repository, "not for main", "v0.9.0")
    assert git(repository, "switch", "main").returncode == 0
    commit(repository, "go on", "chart-note")
    return repository


def test_the_newest_tag_with_a_chart_is_the_previous_release(released, tmp_path):
    chart = chart_of_last_tag(released, tmp_path / "out")
    assert (chart / "Chart.yaml").read_text().endswith("# 0.2.0\n")


@pytest.mark.parametrize("tags", [[], ["v0.1.0"]])
def test_a_repository_without_a_tag_that_has_a_chart_has_no_previous_release(tags, tmp_path):
    assert git(tmp_path, "init").returncode == 0
    commit(tmp_path, "begin", *tags)
    assert chart_of_last_tag(tmp_path, tmp_path / "out") is None


def test_an_upgrade_from_a_tag_breaks_nothing(released, tmp_path):
    previous = chart_of_last_tag(released, tmp_path / "out")
    for name in SETS:
        values = values_for(name, previous)
        assert breaks(render(values, previous).objects, render(values).objects) == []


def test_a_chart_that_breaks_an_upgrade_from_a_tag_is_found(released, tmp_path):
    previous = chart_of_last_tag(released, tmp_path / "out")
    broken = broken_chart(tmp_path, "templates/executor.yaml", "%s-executor", "%s-worker")
    values = values_for("ha", previous)
    assert "Deployment/r-podium-executor vanishes" in breaks(render(values, previous).objects, render(values, broken).objects)[0]


def test_a_chart_that_changed_after_its_tag_needs_another_version(released, tmp_path):
    previous = chart_of_last_tag(released, tmp_path / "out")
    changed = broken_chart(tmp_path, "values.yaml", "gateway:\n", "gateway:\n  # changed\n")
    assert "raise its version" in changed_without_a_version(previous, changed)
    chart = changed / "Chart.yaml"
    chart.write_text(chart.read_text().replace("version: 0.1.0", "version: 0.3.0", 1))
    assert changed_without_a_version(previous, changed) == ""
