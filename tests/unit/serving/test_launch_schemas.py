"""Launch files of every plan are what docker compose, Kubernetes and Dynamo take: each field by its official schema.

Kubernetes' is its OpenAPI document, as lightkube-models has it in classes; compose's is the specification's own JSON
Schema, which check-jsonschema brings along. No package has Dynamo's and the Helm chart's: their fields stand here with
where they are documented.
"""

import json
import sys
import typing
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from inferometer.core.errors import DomainError
from inferometer.serving.plans.asked import Drafting
from inferometer.serving.plans.launch import launch_files
from unit.serving.test_plan_launch import AUTOSCALED, DRAFTS, ENGINES, serving_plan

KINDS = {
    "ConfigMap": "core_v1.ConfigMap", "Service": "core_v1.Service", "Deployment": "apps_v1.Deployment",
    "HorizontalPodAutoscaler": "autoscaling_v2.HorizontalPodAutoscaler",
}  # fmt: skip
VERSIONS = {"core_v1": "v1", "apps_v1": "apps/v1", "autoscaling_v2": "autoscaling/v2"}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of hundreds of files
# docs.nvidia.com/dynamo, "API Reference", nvidia.com/v1alpha1: DynamoGraphDeploymentSpec,
# DynamoComponentDeploymentSharedSpec, Resources and ResourceItem, whose amounts are texts. A PodSpec's container.
DYNAMO = {
    "spec": {"services", "envs", "pvcs", "backendFramework", "restart"},
    "service": {
        "annotations", "labels", "serviceName", "componentType", "subComponentType", "dynamoNamespace", "resources",
        "envs", "envFromSecret", "volumeMounts", "ingress", "modelRef", "sharedMemory", "extraPodMetadata",
        "extraPodSpec", "livenessProbe", "readinessProbe", "replicas", "multinode", "scalingAdapter",
    },
    "amounts": {"cpu", "memory", "gpu", "gpuType", "custom"},
    "kinds": {"frontend", "worker", "prefill", "decode", "planner", "epp", "default"},
}  # fmt: skip
# github.com/kubernetes-sigs/prometheus-adapter, docs/config.md: a rule's four parts.
ADAPTER = {"seriesQuery", "seriesFilters", "resources", "name", "metricsQuery"}


@pytest.fixture(scope="module")
def models():
    """Kubernetes' classes. They want a base class of a client that nobody needs here."""
    pytest.importorskip("lightkube.models")
    if find_spec("lightkube.core") is None:
        core, schema = ModuleType("lightkube.core"), ModuleType("lightkube.core.schema")
        schema.DictMixin, schema.field, schema.dataclass = object, field, dataclass
        sys.modules |= {core.__name__: core, schema.__name__: schema}
    return lambda name: getattr(import_module(f"lightkube.models.{name.partition('.')[0]}"), name.partition(".")[2])


@pytest.fixture(scope="module")
def compose_faults():
    """What the compose specification finds wrong in a file."""
    check_jsonschema = pytest.importorskip("check_jsonschema")
    import jsonschema

    path = Path(check_jsonschema.__file__).parent / "builtin_schemas/vendor/compose-spec.json"
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    return lambda document: [error.message for error in validator.iter_errors(document)]


def faults(kind, value, at=""):
    """What of a value is not as its class has it: unknown and missing fields, and values of another type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        found = [list(faults(each, value, at)) for each in arguments if each is not type(None)]
        return min(found, key=len)
    if origin is list:
        if not isinstance(value, list):
            return [f"{at} is no list"]
        return [fault for index, each in enumerate(value) for fault in faults(arguments[0], each, f"{at}[{index}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{at} is no table"]
        return [fault for key, each in value.items() for fault in faults(arguments[1], each, f"{at}.{key}")]
    if not is_dataclass(kind):
        right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        return [] if right or (kind is float and isinstance(value, int)) else [f"{at} is {value!r}, no {kind.__name__}"]
    if not isinstance(value, dict):
        return [f"{at} is no {kind.__name__}"]
    hints = typing.get_type_hints(kind)
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    found = [f"{at} has no {name}" for name in needed - set(value)]
    for name, each in value.items():
        found += faults(hints[name], each, f"{at}.{name}") if name in hints else [f"{at}.{name} is not known"]
    return found


def kubernetes_faults(models, text):
    for document in filter(None, yaml.load_all(text, LOADER)):
        name = KINDS[document["kind"]]
        assert document["apiVersion"] == VERSIONS[name.partition(".")[0]]
        yield from faults(models(name), document, document["kind"])


def every_plan():
    """One of each kind of launch file: engines, splits, formats, drafts, copies of attention, and what follows load."""
    for runtime, (tp, dp), weights, kv, draft, scaled in product(
        ENGINES, ((1, 1), (2, 1), (1, 8)), (None, "f8e4m3"), (None, "f8e4m3"), DRAFTS[:2], (None, AUTOSCALED)
    ):
        drafting = None if draft is None else Drafting(draft=draft[0], length=draft[1], acceptance=0.6)
        device = "amd-mi300x" if runtime == "vllm" and kv is None else "nvidia-h200"
        plan = serving_plan(
            runtime=runtime, device=device, tp=tp, dp=dp, ep=dp, weights=weights, kv=kv, drafting=drafting,
            autoscaled=scaled, replicas=3, count=3 * tp * dp,
        )  # fmt: skip
        try:
            yield plan, launch_files(plan, "llama-3.1-8b")
        except DomainError:
            continue  # which says what to change: test_plan_launch


def test_files_of_every_plan_are_as_the_official_schemas_have_them(models, compose_faults):
    seen = {"compose": 0, "kubernetes": 0, "autoscaled": 0, "configured": 0}
    for plan, files in every_plan():
        assert list(kubernetes_faults(models, files["kubernetes.yaml"])) == []
        seen["kubernetes"] += 1
        seen["configured"] += "config.yaml" in files
        if plan.autoscaled is not None:
            seen["autoscaled"] += 1
            continue
        assert compose_faults(yaml.safe_load(files["compose.yaml"])) == []
        seen["compose"] += 1
    assert min(seen.values()) > 10, seen


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("containerPort: 8000", "containerPort: '8000'", "no int"),
        ("readinessProbe:", "readynessProbe:", "not known"),
        ("maxReplicas: 6", "maxReplica: 6", "has no maxReplicas"),
        ("stabilizationWindowSeconds: 300", "stabilizationWindowSeconds: 5m", "no int"),
        ("matchLabels: {app: inference}", "matchLabels: [app]", "no dict"),
    ],
)
def test_a_wrong_field_in_kubernetes_is_seen(models, old, new, words):
    text = launch_files(serving_plan(autoscaled=AUTOSCALED), "llama-3.1-8b")["kubernetes.yaml"]
    assert old in text
    assert any(words in fault for fault in kubernetes_faults(models, text.replace(old, new)))


@pytest.mark.parametrize(("old", "new"), [("entrypoint:", "entrypoints:"), ("ipc: host", "ipc: [host]")])
def test_a_wrong_field_in_compose_is_seen(compose_faults, old, new):
    text = launch_files(serving_plan(), "llama-3.1-8b")["compose.yaml"]
    assert old in text
    assert compose_faults(yaml.safe_load(text.replace(old, new)))


@pytest.mark.parametrize("runtime", ENGINES)
def test_a_graph_of_dynamo_has_the_fields_that_are_documented(models, runtime):
    files = launch_files(serving_plan(runtime=runtime, readers=3, reader_tp=1, reader_ep=1), "llama-3.1-8b")
    graph = yaml.safe_load(files["dynamo.yaml"])
    assert (graph["apiVersion"], graph["kind"]) == ("nvidia.com/v1alpha1", "DynamoGraphDeployment")
    assert set(graph["spec"]) <= DYNAMO["spec"]
    for service in graph["spec"]["services"].values():
        assert set(service) <= DYNAMO["service"]
        assert {service["componentType"], service.get("subComponentType", "default")} <= DYNAMO["kinds"]
        amounts = service.get("resources", {}).get("limits", {})
        assert set(amounts) <= DYNAMO["amounts"]
        assert all(isinstance(amount, str) for amount in amounts.values())
        assert isinstance(service["replicas"], int)
        ((kind, container),) = service["extraPodSpec"].items()
        assert kind == "mainContainer"
        assert faults(models("core_v1.Container"), {"name": "main", **container}) == []


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_an_adapters_rule_has_the_parts_that_are_documented(runtime):
    files = launch_files(serving_plan(runtime=runtime, autoscaled=AUTOSCALED), "llama-3.1-8b")
    values = yaml.safe_load(files["prometheus-adapter.yaml"])
    assert list(values) == ["rules"]
    for rule in values["rules"]["custom"]:
        assert set(rule) <= ADAPTER
        assert set(rule["name"]) <= {"matches", "as"}
        assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}
        assert "<<.GroupBy>>" in rule["metricsQuery"]
        assert "<<.LabelMatchers>>" in rule["metricsQuery"]
