"""Tests of the objects that the chart renders from each set of values of ci/."""

import math

import kubernetes_validate
import pytest
from helm_python import chart as helm

from chart import CHART, KUBE_VERSIONS, SETS, broken_chart, render, render_set, values_of

# Kinds that other projects define; the validator has no schema of them.
OTHERS = {"ScaledObject", "ServiceMonitor", "PrometheusRule", "Certificate", "HTTPRoute", "GRPCRoute"}


def faults(objects: list[dict], version: str) -> list[str]:
    """The parts that a Kubernetes API server of that version would refuse or drop."""
    found = []
    for each in objects:
        if each["kind"] in OTHERS:
            continue
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            found.append(f"{each['kind']}/{each['metadata']['name']}: {str(error)[:300]}")
    return found


@pytest.mark.parametrize("version", KUBE_VERSIONS)
@pytest.mark.parametrize("name", SETS)
def test_all_objects_are_valid_for_kubernetes(name, version):
    assert faults(render_set(name, kubeVersion=f"{version}.0").objects, version) == []


def test_an_image_volume_is_valid_where_the_chart_allows_it():
    image = {"reference": "registry.example.com/planner-3@sha256:" + "0" * 64}
    values = values_of("gpu", kubeVersion="1.36.0")
    values["bundles"]["planner-3"] = {"manifest": "schema = 1", "image": image}
    found = render(values)
    volumes = found.get("Deployment", "r-podium-planner-l4")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "bundle-planner-3", "image": image} in volumes
    assert faults(found.objects, "1.36") == []


def test_a_field_that_kubernetes_does_not_know_is_found(tmp_path):
    broken = broken_chart(tmp_path, "templates/_workload.tpl", "revisionHistoryLimit", "revisionHistoryLimits")
    assert any("revisionHistoryLimits" in fault for fault in faults(render(values_of("minimal"), broken).objects, "1.34"))


@pytest.mark.parametrize("name", SETS)
def test_helm_lint_finds_nothing(name):
    report = helm.lint(str(CHART), values_of(name), strict=True, kube_version="v1.34.0")
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    assert report["errors"] in ([], None)


@pytest.mark.parametrize("name", SETS)
def test_names_are_unique(name):
    names = [(each["kind"], each["metadata"]["name"]) for each in render_set(name).objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", SETS)
def test_every_selector_selects_pods(name):
    found = render_set(name)
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in found.of_kind("Deployment", "Job")]
    for each in found.of_kind("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"):
        spec = each["spec"]
        selector = spec["selector"] if each["kind"] == "Service" else spec.get("selector", spec.get("podSelector"))["matchLabels"]
        hits = [labels for labels in pods if selector.items() <= labels.items()]
        assert hits, f"{each['kind']} {each['metadata']['name']} selects nothing by {selector}"


@pytest.mark.parametrize("name", SETS)
def test_pools_of_planners_do_not_select_each_others_pods(name):
    found = render_set(name)
    deployments = found.of_kind("Deployment")
    for one in deployments:
        selector = one["spec"]["selector"]["matchLabels"]
        hits = [d["metadata"]["name"] for d in deployments if selector.items() <= d["spec"]["template"]["metadata"]["labels"].items()]
        assert hits == [one["metadata"]["name"]]


@pytest.mark.parametrize("name", SETS)
def test_volumes_and_mounts_agree(name):
    for pod, spec in render_set(name).pods().items():
        volumes = [each["name"] for each in spec.get("volumes", [])]
        assert len(volumes) == len(set(volumes)), pod
        mounted = set()
        for container in spec["containers"] + spec.get("initContainers", []):
            mounted |= {each["name"] for each in container.get("volumeMounts", [])}
        assert mounted <= set(volumes), pod


@pytest.mark.parametrize("name", SETS)
def test_config_maps_and_accounts_that_pods_name_are_rendered(name):
    values = values_of(name)
    found = render(values)
    given = {"company-ca"}
    maps = {each["metadata"]["name"]: each["data"] for each in found.of_kind("ConfigMap")}
    accounts = {each["metadata"]["name"] for each in found.of_kind("ServiceAccount")}
    for pod, spec in found.pods().items():
        for volume in spec.get("volumes", []):
            for source in volume.get("projected", {}).get("sources", [volume]):
                wanted = source.get("configMap")
                if wanted and wanted["name"] not in given:
                    keys = {item["key"] for item in wanted.get("items", [])}
                    assert keys <= set(maps[wanted["name"]]), f"{pod}: {wanted}"
        if "serviceAccountName" in spec:
            assert spec["serviceAccountName"] in accounts, pod


@pytest.mark.parametrize("name", SETS)
def test_probes_name_a_port_of_the_container(name):
    for pod, spec in render_set(name).pods().items():
        for container in spec["containers"]:
            ports = {each["name"] for each in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if pod.startswith("Deployment/"):
                    assert container[probe]["httpGet"]["port"] in ports, f"{pod}: {probe}"


def deployment(found, name):
    return found.get("Deployment", name)["spec"]["template"]["spec"]


def test_the_grace_period_covers_pre_stop_and_drain():
    found = render_set("minimal", gateway={"drainSeconds": 300, "preStopSeconds": 15}, executor={"drainSeconds": 40})
    assert deployment(found, "r-podium-gateway")["terminationGracePeriodSeconds"] == 320
    assert deployment(found, "r-podium-executor")["terminationGracePeriodSeconds"] == 45
    assert "drain_ms = 300000\n" in found.get("ConfigMap", "r-podium-gateway")["data"]["podium.toml"]


def test_the_grace_period_covers_the_drain_delay():
    found = render_set("tls", gateway={"drainSeconds": 100, "preStopSeconds": 10})
    assert deployment(found, "r-podium-gateway")["terminationGracePeriodSeconds"] == 117


def test_gateways_with_tls_are_probed_without_it():
    for name in ("minimal", "tls"):
        container = deployment(render_set(name), "r-podium-gateway")["containers"][0]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] == "health"
        assert {"name": "health", "containerPort": 8084} in container["ports"]


@pytest.mark.parametrize(("name", "http", "grpc"), [("minimal", "http", "kubernetes.io/h2c"), ("tls", "https", "https")])
def test_services_name_the_protocol_of_gateways(name, http, grpc):
    for service in ("r-podium-gateway", "r-podium-gateway-headless"):
        ports = render_set(name).get("Service", service)["spec"]["ports"]
        assert [each["appProtocol"] for each in ports] == [http, grpc]


def test_a_certificate_of_cert_manager_names_the_services():
    found = render_set("tls")
    certificate = found.get("Certificate", "r-podium-gateway-tls")["spec"]
    names = {"r-podium-gateway", "r-podium-gateway.ns", "r-podium-gateway.ns.svc", "r-podium-gateway-headless.ns.svc"}
    assert names | {"podium.example.com"} <= set(certificate["dnsNames"])
    volume = next(each for each in deployment(found, "r-podium-gateway")["volumes"] if each["name"] == "tls")
    secrets = [source["secret"]["name"] for source in volume["projected"]["sources"] if "secret" in source]
    assert secrets == [certificate["secretName"]]
    assert "tls" not in {each["name"] for each in deployment(found, "r-podium-executor")["volumes"]}


def test_a_secret_with_a_certificate_needs_no_cert_manager():
    tls = {"secret": "company-tls", "certManager": None, "clientAuthority": {"configMap": ""}}
    found = render_set("tls", gateway={"tls": tls})
    assert found.of_kind("Certificate") == []
    settings = found.get("ConfigMap", "r-podium-gateway")["data"]["podium.toml"]
    assert 'tls_certificate = "/etc/podium/tls/tls.crt"' in settings and "tls_client" not in settings
    assert "company-tls" in str(deployment(found, "r-podium-gateway")["volumes"])


def test_helm_test_asks_where_no_certificate_is_needed():
    assert "-gateway-headless/8084" in str(render_set("tls").get("Pod", "r-podium-test-ready"))
    rules = render_set("tls").get("NetworkPolicy", "r-podium-gateway")["spec"]["ingress"]
    labels = render_set("tls").get("Pod", "r-podium-test-ready")["metadata"]["labels"]
    allowed = [rule["from"][0]["podSelector"]["matchLabels"] for rule in rules if {"protocol": "TCP", "port": 8084} in rule["ports"]]
    assert len(allowed) == 1 and allowed[0].items() <= labels.items()


def test_a_planner_may_take_as_long_as_its_model_needs():
    found = render_set("minimal", planner={"modelLoadSeconds": 3601})
    pod = deployment(found, "r-podium-planner-cpu")
    startup = pod["containers"][0]["startupProbe"]
    assert startup["httpGet"]["path"] == "/readyz"
    assert startup["failureThreshold"] == math.ceil(3601 / 5)
    assert found.get("Deployment", "r-podium-planner-cpu")["spec"]["progressDeadlineSeconds"] > 3601
    assert pod["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize(("version", "hook"), [("1.29.0", "exec"), ("v1.30.2-gke.100", "sleep")])
def test_the_pre_stop_hook_fits_the_kubernetes_version(version, hook):
    pod = deployment(render_set("minimal", kubeVersion=version), "r-podium-gateway")
    assert list(pod["containers"][0]["lifecycle"]["preStop"]) == [hook]


def test_only_processes_that_call_models_get_the_vendors_keys_and_redis():
    found = render_set("gpu")
    for name in ("gateway", "planner-l4"):
        assert "podium-vendors" not in str(deployment(found, f"r-podium-{name}"))
        assert "redis" not in found.get("ConfigMap", f"r-podium-{name}")["data"]["podium.toml"]
    assert "podium-vendors" in str(deployment(found, "r-podium-executor"))
    assert "podium-vendors" in str(deployment(render_set("minimal"), "r-podium-planner-cpu"))


def test_only_processes_that_call_models_reach_the_world():
    found = render_set("openshift", conductor={"use": "llama:/usr/share/podium/nano"})
    reach = {}
    for policy in found.of_kind("NetworkPolicy"):
        ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        reach[policy["metadata"]["name"]] = ports
    assert reach == {
        "r-podium-gateway": {53, 5432, 4222},
        "r-podium-planner": {53, 5432, 4222},
        "r-podium-executor": {53, 5432, 4222, 6379, 443},
    }


def test_the_pod_of_helm_test_may_ask_the_gateways():
    mine = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}
    found = render_set("minimal", networkPolicy={"clients": [mine]})
    first = found.get("NetworkPolicy", "r-podium-gateway")["spec"]["ingress"][0]["from"]
    assert first[0] == mine
    labels = found.get("Pod", "r-podium-test-ready")["metadata"]["labels"]
    assert first[1]["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_migrations_have_a_policy_before_they_run():
    policy = render_set("minimal").get("NetworkPolicy", "r-podium-migrations")
    job = render_set("minimal").of_kind("Job")[0]
    weight = "helm.sh/hook-weight"
    assert int(policy["metadata"]["annotations"][weight]) < int(job["metadata"]["annotations"][weight])


def test_a_hook_needs_nothing_that_the_chart_makes():
    found = render_set("external-tls")
    job = found.of_kind("Job")[0]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    made = {each["metadata"]["name"] for each in found.of_kind("ConfigMap", "Secret", "ServiceAccount")}
    assert not [name for name in made if name in str(job["spec"])]


@pytest.mark.parametrize(("mode", "migrates", "jobs"), [("hook", "never", 1), ("job", "never", 1), ("onStart", "auto", 0)])
def test_exactly_one_side_migrates(mode, migrates, jobs):
    found = render_set("minimal", migrations={"mode": mode})
    assert len(found.of_kind("Job")) == jobs
    for name in ("gateway", "planner-cpu", "executor"):
        assert f'postgres_migrate = "{migrates}"' in found.get("ConfigMap", f"r-podium-{name}")["data"]["podium.toml"]


def test_a_job_of_other_contents_has_another_name():
    one, same, other = (render_set("argocd", image={"tag": tag}).of_kind("Job")[0] for tag in ("1", "1", "2"))
    assert one["metadata"]["name"] == same["metadata"]["name"] != other["metadata"]["name"]


def test_the_migrations_url_keeps_its_parameters_and_gets_the_certificates():
    url = render_set("mtls", postgres={"url": "postgres://podium@pg:5432/podium?sslmode=verify-ca"}).of_kind("Job")[0]
    assert url["spec"]["template"]["spec"]["containers"][0]["command"][-1] == (
        "postgres://podium@pg:5432/podium?sslmode=verify-ca&sslrootcert=/etc/podium/postgres/ca.crt"
        "&sslcert=/etc/podium/postgres/tls.crt&sslkey=/etc/podium/postgres/tls.key"
    )


@pytest.mark.parametrize("change", [
    {"settings": {"lease_ms": 5000}},
    {"pool": {"content": "schema = 2", "restartOnChange": True}},
    {"files": {"workflow.yaml": "a: b"}},
    {"cell": {"tenants": {"other": 0}}},
], ids=lambda change: next(iter(change)))
def test_a_change_of_settings_rolls_the_pods(change):
    before, after = render_set("cells"), render_set("cells", **change)
    for name in ("gateway", "executor"):
        one, other = (found.get("Deployment", f"r-podium-{name}")["spec"]["template"]["metadata"] for found in (before, after))
        assert one["annotations"] != other["annotations"], name


def test_a_gpu_pool_waits_for_its_gpu():
    found = render_set("gpu")
    spec = found.get("Deployment", "r-podium-planner-l4")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    pod = spec["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert 'gpu_layers = "all"' in found.get("ConfigMap", "r-podium-planner-l4")["data"]["podium.toml"]
    assert "gpu" not in found.get("ConfigMap", "r-podium-planner-cpu")["data"]["podium.toml"]
    assert "podium-planner-cuda" not in deployment(found, "r-podium-planner-cpu")["containers"][0]["image"]


def test_a_digest_wins_over_a_tag():
    digest = "sha256:" + "a" * 64
    pod = deployment(render_set("minimal", image={"tag": "1", "digest": digest}), "r-podium-gateway")
    assert pod["containers"][0]["image"] == f"registry.example.com/podium@{digest}"


def test_an_autoscaler_owns_the_number_of_pods():
    found = render_set("ha")
    for each in found.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        target = found.get("Deployment", each["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"]
    assert len(found.of_kind("HorizontalPodAutoscaler", "ScaledObject")) == 3


def test_keda_measures_the_open_tasks_and_the_slots_that_the_settings_give():
    found = render_set("ha")
    query = found.get("ScaledObject", "r-podium-executor")["spec"]["triggers"][0]["metadata"]["query"]
    assert query == (
        'max(sum by (podium_lane) (max by (podium_lane, podium_state) (podium_lane_tasks{namespace="ns",podium_lane=~".*[.]step[.].*",'
        'podium_state=~"running"}) or max by (podium_lane, podium_state) (podium_lane_tasks{namespace="ns",'
        'podium_lane=~".*[.]step[.].*",podium_state=~"backlog|queued"}) and on (podium_lane) sum by (podium_lane) '
        '(podium_lane_slots_free{namespace="ns",podium_lane=~".*[.]step[.].*",pod=~"r-podium-executor-.*"}) < 1)) / 512'
    )


def checksums(found):
    annotations = found.get("Deployment", "r-podium-executor")["spec"]["template"]["metadata"]["annotations"]
    return {name: value for name, value in annotations.items() if name.startswith("checksum/")}


def test_a_changed_pool_replaces_pods_only_if_the_values_say_so():
    pool = values_of("minimal")["pool"]["content"]
    pools = [pool, pool.replace('version = "1"', 'version = "2"')]
    followed, restarted = (
        [checksums(render_set("minimal", pool={"content": pool, "restartOnChange": restart})) for pool in pools]
        for restart in (False, True)
    )
    assert followed[0] == followed[1]
    assert restarted[0]["checksum/files"] != restarted[1]["checksum/files"]


def test_a_changed_file_replaces_pods():
    one, other = (checksums(render_set("minimal", files={"a.yaml": text})) for text in ("a", "b"))
    assert one["checksum/files"] != other["checksum/files"]


def test_openshift_chooses_the_user():
    for pod, spec in render_set("openshift").pods().items():
        assert {"runAsUser", "runAsGroup", "fsGroup"}.isdisjoint(spec["securityContext"]), pod


def test_grpc_has_an_ingress_and_a_route_of_its_own():
    ingress = render_set("ha").get("Ingress", "r-podium-gateway-grpc")["spec"]
    assert ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] == {"name": "grpc"}
    route = render_set("external-tls").get("GRPCRoute", "r-podium-gateway")["spec"]
    assert route["rules"] == [{"backendRefs": [{"name": "r-podium-gateway", "port": 8081}]}]


def test_the_notes_warn_of_gateways_without_keys():
    assert "WARNING" in render_set("minimal", gateway={"keysRequired": False}).notes
    assert "WARNING" not in render_set("minimal").notes


def test_extra_objects_are_templates():
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-mine"}}
    assert render_set("minimal", extraObjects=[extra]).get("ConfigMap", "r-mine")
