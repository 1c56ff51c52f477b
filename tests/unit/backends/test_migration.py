"""The effect on each field when a resource migrates from engines to the LLM API."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec.backends.pytorch.migration import migrate
from specdec.tools.dry_run.resource import complete, load
from support.golden_cases import SAMPLES
from unit.dry_run.commands import run

BASE = load(str(SAMPLES["tensorrt-draft-target-shared"]))
BASELINE = load(str(SAMPLES["tensorrt-baseline"]))


def changed(values: dict[str, Any], base: dict[str, Any] = BASE) -> dict[str, Any]:
    """Return the base with these values, by path."""
    body = copy.deepcopy(base)
    for path, value in values.items():
        *parents, name = path.split(".")
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    complete(body, "a.yaml")
    return body


def value(body: dict[str, Any], path: str) -> Any:
    """Return the value at a path, or None."""
    for name in path.split("."):
        body = body.get(name, {})
    return body or None


REMOVED = {
    "spec.build.backoffLimit": 3,
    "spec.target.engine.workers": 4,
    "spec.target.gpu.deviceIds": [0, 1, 2, 3],
    "spec.target.quantization.calibration.samples": 64,
    "spec.speculation.draftLengthPolicy.type": "Adaptive",
    "spec.speculation.draftTarget.draftLengthCeiling": 6,
    "spec.speculation.draftTarget.draftAhead": 0,
    "spec.speculation.draftTarget.rowsPerCall": 1,
    "spec.speculation.draftTarget.draft.quantization.kvCache": "Auto",
    "spec.speculation.draftTarget.draft.parallelism.tensor": 4,
    "spec.speculation.draftTarget.draft.gpu.deviceIds": [0, 1, 2, 3],
    "spec.speculation.draftTarget.draft.kvCache.memoryPercent": 10,
    "spec.speculation.draftTarget.draft.engine.workers": 4,
    "spec.speculation.draftTarget.draftServer.replicas": 2,
    "spec.serving.triton.preprocessingInstances": 2,
    "spec.runtime.parameters": {"cuda_graph_mode": "true"},
    "spec.runtime.version": "0.19.0",
}
# Further fields that the API server requires with a field.
ALSO: dict[str, dict[str, Any]] = {
    "spec.speculation.draftTarget.draftServer.replicas": {
        "spec.speculation.draftTarget.topology": "TwoServers",
        "spec.speculation.draftTarget.placement": "Dedicated",
    },
    "spec.speculation.draftTarget.draft.gpu.deviceIds": {
        "spec.speculation.draftTarget.draft.parallelism.tensor": 4
    },
    "spec.speculation.draftTarget.draft.kvCache.memoryPercent": {
        "spec.target.kvCache.memoryPercent": 70
    },
    "spec.target.quantization.kvCache": {
        "spec.target.engine.pagedContextFmha": False,
        "spec.target.kvCache.reuse": False,
    },
    "spec.target.kvCache.memoryPercent": {
        "spec.speculation.draftTarget.draft.kvCache.memoryPercent": 10
    },
}


@pytest.mark.parametrize("path", REMOVED)
def test_field_of_engines_or_the_bls_is_removed_and_named(path: str) -> None:
    result = migrate(changed({path: REMOVED[path], **ALSO.get(path, {})}))
    assert result.body is not None
    assert value(result.body, path) is None
    top = path.rsplit(".", 1)[0]
    assert any(path in change or change.startswith(top) for change in result.changes)
    complete(result.body, "b.yaml")


KEPT = {
    "metadata.labels.team": "a",
    "spec.runtime.version": "1.2.1",
    "spec.runtime.image": "registry.example/tritonserver:1",
    "spec.target.limits.maxBatchSize": 5,
    "spec.target.kvCache.memoryPercent": 70,
    "spec.verification.mode": "Gate",
    "spec.storage.size": "1Gi",
    "spec.serving.replicas": 3,
}


@pytest.mark.parametrize("path", KEPT)
def test_other_field_is_kept(path: str) -> None:
    result = migrate(changed({path: KEPT[path], **ALSO.get(path, {})}))
    assert result.body is not None
    assert value(result.body, path) == KEPT[path]


# Each with its base: engines of a target and a draft do not allow all of these values.
NEEDS = {
    "spec.target.quantization.method": (BASELINE, "INT8SQ", "already quantized"),
    "spec.speculation.draftTarget.draft.quantization.method": (BASE, "FP8", "draft.source to a"),
    "spec.target.quantization.kvCache": (BASELINE, "INT8", "set it to FP8 or Auto"),
    "spec.target.dtype": (BASELINE, "Float32", "Auto, Float16, BFloat16"),
    "spec.target.parallelism.pipeline": (BASE, 2, "set it to 1 and raise tensor"),
    "spec.serving.nodesPerReplica": (BASE, 2, "in one pod"),
    "spec.runtime.parameters.enable_lora": (BASE, "true", "together with runtime.version 1.3.0"),
    "spec.runtime.parameters.guided_decoding_backend": (
        BASE,
        "xgrammar",
        "remove it if no client sends one",
    ),
}


@pytest.mark.parametrize("path", NEEDS)
def test_field_without_an_equivalent_is_reported_with_its_fix(path: str) -> None:
    base, given, fix = NEEDS[path]
    result = migrate(changed({path: given, **ALSO.get(path, {})}, base))
    assert result.body is None
    (need,) = result.needs
    assert need.startswith(f"{path} is {given}")
    assert fix in need


def test_what_the_api_server_and_kubectl_add_is_left_out() -> None:
    added = {
        "metadata.resourceVersion": "7",
        "metadata.managedFields": [{}],
        "metadata.annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "a/b": "c",
        },
    }
    body = migrate({**changed(added), "status": {"phase": "Ready"}}).body
    assert body is not None
    assert body["metadata"] == {"name": BASE["metadata"]["name"], "annotations": {"a/b": "c"}}
    assert "status" not in body


def test_benchmark_is_turned_off_and_named() -> None:
    result = migrate(changed({"spec.benchmark.mode": "OnReady"}))
    assert result.body is not None
    assert result.body["spec"]["benchmark"]["mode"] == "Disabled"
    assert any(change.startswith("spec.benchmark.mode is Disabled") for change in result.changes)


def test_benchmark_with_a_baseline_stays() -> None:
    own = {"mode": "OnReady", "baseline": {"modelRef": {"name": "plain"}}}
    result = migrate(changed({"spec.benchmark": own}))
    assert result.body is not None
    assert result.body["spec"]["benchmark"] == own


def test_limits_that_are_not_set_are_named() -> None:
    """With engines they are 1024, 2048 and so on; with PyTorch they follow from the memory."""
    body = changed({})
    body["spec"]["target"]["limits"] = {"maxBatchSize": 16, "maxSeqLen": 4096}

    sentence = "spec.target.limits leaves maxInputLen, maxNumTokens open: "
    assert any(change.startswith(sentence) for change in migrate(body).changes)
    full = {"maxBatchSize": 16, "maxInputLen": 64, "maxSeqLen": 4096, "maxNumTokens": 8192}
    body["spec"]["target"]["limits"] = full
    assert not any("limits" in change for change in migrate(body).changes)


def test_resource_of_another_backend_is_refused() -> None:
    (need,) = migrate(load(str(SAMPLES["pytorch-ngram"]))).needs
    assert need == "spec.runtime.backend is PyTorch: give a resource of backend TensorRT or VLLM"


def test_command_prints_the_resource_and_reports_changes_on_stderr(tmp_path: Path) -> None:
    result = run("migrate", "-f", SAMPLES["tensorrt-draft-target-shared"], "--to", "PyTorch")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout) == migrate(BASE).body
    name = BASE["metadata"]["name"]
    assert f"# {name}: spec.speculation.maxDraftTokens is 5" in result.stderr
    (tmp_path / "migrated.yaml").write_text(result.stdout)
    assert run("plan", "-f", tmp_path / "migrated.yaml").exit_code == 0


def test_command_migrates_every_resource_of_a_file(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}}
    baseline = load(str(SAMPLES["tensorrt-baseline"]))
    several, listed = tmp_path / "several.yaml", tmp_path / "list.yaml"
    several.write_text(yaml.safe_dump_all([other, BASE, baseline]))
    listed.write_text(yaml.safe_dump({"kind": "List", "items": [other, BASE, baseline]}))
    for file in (several, listed):
        result = run("migrate", "-f", file)
        assert result.exit_code == 0, result.output
        printed = list(yaml.safe_load_all(result.stdout))
        assert printed == [other, migrate(BASE).body, migrate(baseline).body]


def test_one_resource_without_an_equivalent_stops_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    file.write_text(yaml.safe_dump_all([BASE, load(str(SAMPLES["tensorrt-medusa"]))]))
    result = run("migrate", "-f", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "tensorrt-medusa: spec.speculation.method is Medusa" in result.stderr


def test_file_without_a_resource_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("kind: ConfigMap\n")
    result = run("migrate", "-f", file)
    assert result.exit_code == 2
    assert "holds no object of kind SpeculativeModel" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", SAMPLES["tensorrt-medusa"]], "method is Medusa, which needs an engine"),
        (["-f", SAMPLES["pytorch-mtp"]], "give a resource of backend TensorRT or VLLM"),
        (["-f", SAMPLES["tensorrt-medusa"], "--to", "Reference"], "--to Reference: give PyTorch"),
        (["-f", "no-such-file.yaml"], "cannot be read"),
    ],
)
def test_command_reports_bad_input_by_one_sentence(arguments: list[Any], message: str) -> None:
    result = run("migrate", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line
