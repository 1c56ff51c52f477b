"""The manifests for gateways match the sample that they name and the endpoint's defaults."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.images.openai.__main__ import _parser
from specdec.images.openai.metrics import Metrics

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests" / "gateways"
SAMPLE = ROOT / "manifests" / "samples" / "reference-draft-target.yaml"
PORT = _parser().parse_args(["--served-model-name", "a"]).port


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text("utf-8")))


def sample() -> SpeculativeModel:
    body = yaml.safe_load(SAMPLE.read_text("utf-8"))
    body["metadata"] |= {"namespace": "default", "uid": "1"}
    return SpeculativeModel.model_validate(body)


def test_pool_selects_the_pods_that_answer_requests() -> None:
    pool, route = read("inferencepool.yaml")
    assert pool["spec"]["selector"]["matchLabels"] == names.selector(sample())
    assert pool["spec"]["targetPorts"] == [{"number": PORT}]
    [rule] = route["spec"]["rules"]
    [backend] = rule["backendRefs"]
    group = pool["apiVersion"].partition("/")[0]
    assert backend == {"group": group, "kind": "InferencePool", "name": pool["metadata"]["name"]}


def test_picker_reads_what_the_endpoint_exports() -> None:
    [config] = read("endpoint-picker.yaml")
    [extractor] = [p for p in config["plugins"] if p["type"] == "core-metrics-extractor"]
    [engine] = extractor["parameters"]["engineConfigs"]
    specs = {name: value for name, value in engine.items() if name.endswith("Spec") and value}
    assert set(specs) == {"queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec"}
    exported = {family.name for family in Metrics().registry.collect()}
    assert set(specs.values()) <= exported
    [profile] = config["schedulingProfiles"]
    declared = {plugin["type"] for plugin in config["plugins"]}
    assert {plugin["pluginRef"] for plugin in profile["plugins"]} < declared


def test_litellm_sends_the_name_of_the_resource_to_its_service() -> None:
    [config] = read("litellm.yaml")
    assert set(config) == {"model_list", "litellm_settings"}
    [model] = config["model_list"]
    assert set(model) == {"model_name", "litellm_params"}
    parameters = model["litellm_params"]
    assert set(parameters) == {"model", "api_base", "api_key"}
    name = sample().metadata.name
    assert parameters["model"] == f"openai/{name}"
    address = urlsplit(parameters["api_base"])
    assert address.hostname == f"{names.server_name(sample())}.default.svc"
    assert (address.scheme, address.port, address.path) == ("http", PORT, "/v1")
