"""Bad values fail the render, with a message that says what to do."""

import json

import pytest
import yaml

from chart import CHART, SETS, merged, render, values_of

TWO_SOURCES = {"manifest": "m", "claim": {"name": "c"}, "image": {"reference": "r"}}

REFUSED = {
    "no image": ({"image": {"repository": ""}}, "image.repository is missing: build an image"),
    "no postgres": ({"postgres": {"url": ""}}, "postgres.url is missing"),
    "no nats": ({"nats": {"url": ""}}, "nats.url is missing"),
    "no redis": ({"redis": {"url": ""}}, "redis.url is missing"),
    "password in an address": ({"postgres": {"url": "postgres://a:secret@b/c"}}, "postgres.url holds a password: put it into a Secret"),
    "password in the second address": ({"nats": {"url": "nats://a,nats://b:pw@c"}}, "nats.url holds a password"),
    "no pool": ({"pool": {"content": ""}}, "pool needs one of content"),
    "two pools": ({"pool": {"existingConfigMap": "x"}}, "pool needs one of content"),
    "no conductor": ({"conductor": {"use": ""}}, "conductor.use is missing"),
    "unknown bundle": ({"conductor": {"next": "bundle:x"}}, "conductor names bundle:x, which `bundles` lacks"),
    "two sources": ({"conductor": {"use": "bundle:x"}, "bundles": {"x": TWO_SOURCES}}, "bundles.x has 2 sources"),
    "no manifest": ({"conductor": {"use": "bundle:x"}, "bundles": {"x": {"claim": {"name": "c"}}}}, "bundles.x.manifest is missing"),
    "image volume on an old version": (
        {"kubeVersion": "1.34.9", "conductor": {"use": "bundle:x"}, "bundles": {"x": {"manifest": "m", "image": {"reference": "r"}}}},
        "Kubernetes has by default from 1.35 on; this is 1.34.9",
    ),
    "vendors' variables without a secret": ({"vendors": {"existingSecret": ""}}, "vendors.env needs vendors.existingSecret"),
    "two NATS secrets": ({"nats": {"secret": {"tokenKey": "t"}}}, "nats.secret has several keys"),
    "half a NATS secret": ({"nats": {"secret": {"name": ""}}}, "nats.secret needs both"),
    "hook before its certificate": (
        {"postgres": {"clientCertificate": {"certManager": {"issuerRef": {"name": "i"}}}}},
        "set migrations.mode to job",
    ),
    "GPU without its image": ({"planner": {"pools": {"gpu": {"replicas": 1, "gpu": {"count": 1}}}}}, "set planner.pools.gpu.image"),
    "no planner": ({"planner": {"pools": {"cpu": None}}}, "planner.pools is empty"),
    "pool without a number": ({"planner": {"pools": {"x": {}}}}, "planner.pools.x needs replicas"),
    "KEDA without Prometheus": ({"executor": {"autoscaling": {"kind": "keda"}}}, "keda.prometheusAddress is missing"),
    "KEDA for gateways": ({"gateway": {"autoscaling": {"kind": "keda"}}, "keda": {"prometheusAddress": "p"}}, "gateways have no lanes"),
    "min above max": ({"gateway": {"autoscaling": {"min": 20}}}, "gateway.autoscaling: min (20) is above max (10)"),
    "too many connections": ({"postgres": {"maxConnections": 60}}, "may need 78 connections to Postgres, above postgres.max"),
    "own cell is missing": ({"cell": {"all": [{"number": 1, "http": ["http://h:1"], "grpc": ["http://h:2"]}]}}, "cell.all lacks cell 0"),
    "tenant of no cell": (
        {"cell": {"all": [{"number": 0, "http": ["http://h:1"], "grpc": ["http://h:2"]}], "tenants": {"acme": 7}}},
        "cell.tenants.acme is cell 7",
    ),
    "two certificates of gateways": (
        {"gateway": {"tls": {"secret": "s", "certManager": {"issuerRef": {"name": "i"}}}}}, "gateway.tls has a secret and certManager"
    ),
    "two authorities of clients": (
        {"gateway": {"tls": {"secret": "s", "clientAuthority": {"secret": "a", "configMap": "b"}}}},
        "gateway.tls.clientAuthority names a Secret and a ConfigMap",
    ),
    "authority of clients without a certificate": (
        {"gateway": {"tls": {"clientAuthority": {"secret": "a"}}}}, "set gateway.tls.secret or gateway.tls.certManager"
    ),
    "ingress without a host": ({"gateway": {"ingress": {"enabled": True}}}, "gateway.ingress.host is missing"),
    "route without a gateway": ({"gateway": {"route": {"enabled": True}}}, "gateway.route.parentRefs is missing"),
    "unknown key": ({"gateway": {"replicaCount": 3}}, "additional properties 'replicaCount' not allowed"),
    "unknown setting": ({"settings": {"lease_m": 3}}, "additional properties 'lease_m' not allowed"),
    "setting of another process": ({"gateway": {"settings": {"step_slots": 3}}}, "additional properties 'step_slots' not allowed"),
    "setting that must be equal in all": ({"executor": {"settings": {"lease_ms": 3}}}, "additional properties 'lease_ms' not allowed"),
    "wrong type": ({"gateway": {"replicas": "three"}}, "at '/gateway/replicas': got string, want integer"),
    "address of a cell without a port": (
        {"cell": {"all": [{"number": 0, "http": ["https://h"], "grpc": ["https://h:2"]}]}},
        "at '/cell/all/0/http/0'",
    ),
    "no checksum": (
        {"bundles": {"x": {"download": {"files": [{"name": "w", "url": "https://h/w", "sha256": "1"}]}}}},
        "at '/bundles/x/download/files/0/sha256'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_values_are_refused(name):
    over, message = REFUSED[name]
    with pytest.raises(Exception) as refused:
        render(values_of("minimal", **over))
    assert message in str(refused.value)


def test_all_problems_are_reported_at_once():
    with pytest.raises(Exception) as refused:
        render({})
    assert "the values are invalid" in str(refused.value)
    assert str(refused.value).count("\n  - ") == 6


def every_object(schema: dict, path: str):
    """The path of each object of the schema that lists its keys."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield path, schema
        for key, value in schema.items():
            yield from every_object(value, f"{path}/{key}")


def test_every_object_of_the_schema_refuses_unknown_keys():
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert [path for path, each in every_object(schema, "") if each.get("additionalProperties") is not False] == []
    assert len(list(every_object(schema, ""))) > 40


def test_the_schema_has_all_values():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)


@pytest.mark.parametrize("name", SETS)
def test_the_sets_say_what_differs_only(name):
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert merged(values, values_of(name)) != values
