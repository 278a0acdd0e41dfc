"""Renders the chart with Helm's own engine, and reads what comes out."""

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml
from helm_python.chart import Chart

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "k8s" / "podium"
# Each set of values but the first is added to minimal-values.yaml.
SETS = ["minimal", "ha", "gpu", "external-tls", "mtls", "tls", "argocd", "openshift", "cells"]
KUBE_VERSIONS = [f"1.{minor}" for minor in range(28, 37)]


class StrictLoader(yaml.CSafeLoader):
    """Refuses a key that a mapping has twice: Kubernetes keeps one of them without a word."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"keys given twice: {sorted(twice)}", node.start_mark)
        return super().construct_mapping(node, deep)


StrictLoader.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node, deep=True))


def merged(base: dict, over: dict) -> dict:
    """As Helm merges several files of values: mappings are merged, everything else is replaced."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        is_mapping = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if is_mapping else copy.deepcopy(value)
    return result


def values_of(name: str, chart: Path = CHART, **over) -> dict:
    """The values of a set of the chart's ci/, with `over` on top."""
    values = yaml.safe_load((chart / "ci" / "minimal-values.yaml").read_text())
    if name != "minimal":
        values = merged(values, yaml.safe_load((chart / "ci" / f"{name}-values.yaml").read_text()))
    return merged(values, over)


@dataclass
class Render:
    """The objects of a rendered chart."""

    objects: list[dict]
    notes: str

    def of_kind(self, *kinds: str) -> list[dict]:
        return [each for each in self.objects if each["kind"] in kinds]

    def get(self, kind: str, name: str) -> dict:
        found = [each for each in self.of_kind(kind) if each["metadata"]["name"] == name]
        assert len(found) == 1, f"{kind} {name}: found {len(found)}, there are {[o['metadata']['name'] for o in self.of_kind(kind)]}"
        return found[0]

    def pods(self) -> dict[str, dict]:
        """The specification of each object's pods, by kind and name."""
        pods = {}
        for each in self.of_kind("Deployment", "Job"):
            pods[f"{each['kind']}/{each['metadata']['name']}"] = each["spec"]["template"]["spec"]
        for each in self.of_kind("Pod"):
            pods[f"Pod/{each['metadata']['name']}"] = each["spec"]
        return pods


def render(values: dict, chart: Path = CHART) -> Render:
    """Raises what `helm template` would say."""
    loaded = Chart.load_archive(chart.read_bytes()) if chart.suffix == ".tgz" else Chart.load(str(chart))
    with loaded:
        files = loaded.render(values, name="r", namespace="ns", is_install=True)
    objects, notes = [], ""
    for path, text in sorted(files.items()):
        if path.endswith("NOTES.txt"):
            notes = text
        else:
            objects += [each for each in yaml.load_all(text, Loader=StrictLoader) if each]
    return Render(objects, notes)


def render_set(name: str, **over) -> Render:
    return render(values_of(name, **over))


def broken_chart(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the chart with one change, for tests of tests."""
    copied = folder / "podium"
    shutil.copytree(CHART, copied)
    path = copied / file
    text = path.read_text()
    assert old in text, f"{file} has no {old!r}"
    path.write_text(text.replace(old, new))
    return copied
