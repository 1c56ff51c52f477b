"""`specdec plan`: the plan itself, and invalid input."""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specdec.jobs.inspection import inspect
from specdec.jobs.volume import digest
from specdec.tools.dry_run.plan import make
from support.simulated_cluster import IMAGES, World, resource
from unit.dry_run.commands import (
    DRAFT_TARGET,
    ROOT,
    Json,
    Write,
    plan_json,
    run,
    sample_plan,
    sample_text,
)
from unit.jobs import checkpoints

SAMPLES = sorted((ROOT / "manifests" / "samples").glob("reference-[!p]*.yaml"))


def test_there_are_samples() -> None:
    assert len(SAMPLES) >= 3


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.stem)
def test_every_sample_has_a_plan(sample: Path) -> None:
    plan = sample_plan(sample.stem)
    spec = yaml.safe_load(sample.read_text())["spec"]
    refused = {item["reason"] for item in plan["stages"] if item["status"] == "False"}
    assert refused <= {"MethodNone"}
    assert plan["jobs"][0]["component"] == "fetch"
    assert len(plan["engines"]) == (2 if spec["speculation"]["method"] == "DraftTarget" else 1)
    (server,) = plan["servers"]
    assert server["command"][0] == "tritonserver"
    assert server["command"][1].endswith(plan["repository"]["hash"])
    assert "tensorrt_llm/config.pbtxt" in {item["path"] for item in plan["repository"]["files"]}


def test_plan_of_draft_and_target_has_devices_and_modes() -> None:
    plan = sample_plan("tensorrt-draft-target-dedicated")
    assert plan["plan"]["devices"] == {"target": [0, 1, 2, 3], "draft": [4]}
    assert plan["servers"][0]["gpusPerPod"] == 5
    modes = {e["role"]: e["build"]["speculativeDecodingMode"] for e in plan["engines"]}
    assert modes == {"target": "draft_tokens_external", "draft": "none"}
    assert [e["build"]["maxDraftTokens"] for e in plan["engines"]] == [10, 0]


def test_reference_sample_needs_no_gpu() -> None:
    plan = sample_plan(DRAFT_TARGET.stem)
    assert plan["plan"]["devices"] == {"target": [], "draft": []}
    assert {job["gpus"] for job in plan["jobs"]} == {0}
    assert plan["servers"][0]["gpusPerPod"] == 0


def test_measurements_are_unknown() -> None:
    plan = sample_plan(DRAFT_TARGET.stem)
    stages = {item["type"]: item for item in plan["stages"]}
    for kind in ("SpeculationActive", "OutputEquivalent", "SpeculationEffective"):
        assert (stages[kind]["status"], stages[kind]["reason"]) == ("Unknown", "Waiting")
        assert stages[kind]["message"] == "measured by a Job once pods serve"
    assert stages["BenchmarkCompleted"]["reason"] == "NotRun"
    assert plan["jobs"][-1]["component"] == "verify"


def test_values_known_after_fetch_are_marked() -> None:
    plan = sample_plan(DRAFT_TARGET.stem)
    stages = {item["type"]: item for item in plan["stages"]}
    assert stages["Compatible"]["status"] == "Unknown"
    assert {item["basis"] for item in plan["engines"]} == {"known after fetch"}
    assert stages["Accepted"]["basis"] == "checked"
    assert stages["Available"]["basis"] == "assumed"
    shown = sample_text(DRAFT_TARGET.stem)
    assert plan["engines"][0]["key"][:16] + "*" in shown
    assert "placeholders, known after fetch" in shown


def test_given_checkpoints_are_inspected(write: Write, tmp_path: Path) -> None:
    folders = {role: checkpoints.write(tmp_path / role) for role in ("target", "draft")}
    given = [part for r, f in folders.items() for part in ("--checkpoint", f"{r}={f}")]
    plan = plan_json("-f", write(), *given)
    stages = {item["type"]: item for item in plan["stages"]}
    assert (stages["Compatible"]["status"], stages["Compatible"]["basis"]) == ("True", "checked")
    assert {item["basis"] for item in plan["engines"]} == {"checked"}


def test_incompatible_pair_is_refused(write: Write, tmp_path: Path) -> None:
    target = checkpoints.write(tmp_path / "target")
    config = checkpoints.config(vocab_size=5)
    draft = checkpoints.write(tmp_path / "draft", **{"config.json": config})
    given = ("--checkpoint", f"target={target}", "--checkpoint", f"draft={draft}")
    result = run("plan", "-f", write(), *given)
    assert result.exit_code == 1
    assert "VocabSizeMismatch" in result.stderr
    assert "vocab_size" in result.stderr


def test_engine_keys_equal_those_of_the_operator(tmp_path: Path) -> None:
    """A plan and a reconcile with the same checkpoints have the same engine keys."""
    folders = {role: checkpoints.write(tmp_path / role) for role in ("target", "draft")}
    models = {
        role: {"digest": digest(folder), "facts": inspect(folder).shown()}
        for role, folder in folders.items()
    }
    world = World(resource())
    world.settle(lambda component: {"models": models} if component == "fetch" else {})
    plan = make(resource(), IMAGES, folders)
    keys = [engine["key"] for engine in world.cr["status"]["engines"]]
    assert [entry["key"] for entry, _ in plan.engines()] == keys
    assert [entry["key"] for entry, _ in make(resource(), IMAGES).engines()] != keys


def test_version_option_replaces_that_of_the_spec() -> None:
    assert plan_json("-f", DRAFT_TARGET, "--version", "0.18.0")["plan"]["version"] == "0.18.0"


def test_suspended_resource_has_no_pods(write: Write) -> None:
    plan = plan_json("-f", write(suspend=True))
    assert plan["servers"][0]["replicas"] == 0
    assert plan["refused"] == ""
    assert len(plan["engines"]) == 2


BAD = [
    (
        {"runtime__backend": "Pytorch"},
        'spec.runtime.backend: Unsupported value: "Pytorch": supported values: "TensorRT", '
        '"PyTorch", "VLLM", "Reference": did you mean PyTorch?',
    ),
    (
        {"target__limits__maxSeqLen": "long"},
        'spec.target.limits.maxSeqLen: Invalid value: "string": spec.target.limits.maxSeqLen in '
        'body must be of type integer: "string": write an integer in place of "long"',
    ),
    (
        {"speculation__draftToken": 3},
        'strict decoding error: unknown field "spec.speculation.draftToken": '
        "did you mean draftTokens?",
    ),
    ({"target": None}, "spec.target: Required value"),
    (
        {"runtime__version": "9.9"},
        'spec.runtime.version: Invalid value: "9.9": runtime.version must be major.minor.patch',
    ),
    ({"speculation__draftTokens": 9}, "lower draftTokens, or raise maxDraftTokens"),
    ({"target__gpu": {"deviceIds": [0, 0]}}, "gpu.deviceIds must not name a device twice"),
    ({"runtime__parameters": {"a": "x" * 3000}}, "spec.runtime.parameters.a: Too long"),
    ({"runtime__version": "9.9.9"}, "Accepted would be False (UnsupportedVersion)"),
]


@pytest.mark.parametrize(("changed", "sentence"), BAD, ids=lambda v: str(v)[:40])
def test_refused_resource_is_one_sentence(write: Write, changed: Json, sentence: str) -> None:
    result = run("plan", "-f", write(**changed))
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert result.stdout == ""


def test_every_problem_is_a_line(write: Write) -> None:
    path = write(speculation__draftTokens=9, runtime__version="9.9", suspend="x" * 9000)
    (typed,) = run("plan", "-f", path).stderr.splitlines()
    assert "spec.suspend" in typed
    path = write(speculation__draftTokens=9, runtime__version="9" * 31)
    lines = run("plan", "-f", path).stderr.splitlines()
    fields = {line.removeprefix(f"specdec: {path}: ").partition(":")[0] for line in lines}
    assert fields == {"spec.speculation.draftTokens", "spec.runtime.version"}


DEEP = (
    "kind: SpeculativeModel\napiVersion: specdec.dev/v1alpha1\nmetadata: {name: a}\n"
    f"spec: {{serving: {{affinity: {'{a: ' * 900}1{'}' * 900}}}}}\n"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "is not valid YAML"),
        ("? [a, b]\n: c", "is not valid YAML"),
        ("a: &x [*x]", "is not valid YAML"),
        (DEEP, "a field has too many levels"),
        ("kind: Pod", "holds 0 objects of kind SpeculativeModel"),
        ("kind: SpeculativeModel\napiVersion: v1", "this release reads specdec.dev/v1alpha1"),
        ("kind: SpeculativeModel\napiVersion: specdec.dev/v1alpha1", "metadata and spec"),
    ],
)
def test_file_without_a_resource(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    result = run("plan", "-f", path)
    assert (result.exit_code, sentence in result.stderr) == (2, True), result.stderr


def test_special_characters_are_data(write: Write) -> None:
    hostile = "'; $(id) `id` [red]"
    path = write(target__source={"pvc": {"claimName": "c", "path": hostile}})
    shown = run("plan", "-f", path)
    assert shown.exit_code == 0
    assert "$(id)" in shown.stdout
    assert "[red]" in shown.stdout


def test_control_characters_are_escaped(write: Write) -> None:
    path = write(target__source={"pvc": {"claimName": "c", "path": "\x1b[2J"}})
    refused = run("plan", "-f", path)
    assert refused.exit_code == 1
    assert r'spec.target.source.pvc.path: Invalid value: "\x1b[2J"' in refused.stderr


def test_date_is_a_text_as_in_kubectl(write: Write) -> None:
    plan = plan_json("-f", write(serving__affinity={"x": datetime.date(2026, 1, 2)}))
    assert plan["refused"] == ""


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize(
    "value", ["../../x", "a/b", "A", "", "x" * 10_000, "a\nb", "$(id)", "a\0"]
)
def test_name_cannot_be_a_path(tmp_path: Path, field: str, value: str) -> None:
    body = resource()
    body["metadata"][field] = value
    (tmp_path / "cr.yaml").write_text(yaml.safe_dump(body))
    result = run("render", "-f", tmp_path / "cr.yaml", "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert f"metadata.{field}: " in result.stderr
    assert all(len(line) < 1000 + len(str(tmp_path)) for line in result.stderr.splitlines())
    assert [path.name for path in tmp_path.iterdir()] == ["cr.yaml"]


def test_invalid_setting_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_WORKERS", "many")
    result = run("plan", "-f", write())
    assert result.exit_code == 2
    assert "SPECDEC_WORKERS: Input should be a valid integer" in result.stderr


@pytest.mark.parametrize("given", ["target", "judge=/x", "target=/no/such/folder", "draft=/x"])
def test_invalid_checkpoint_is_named(write: Write, given: str) -> None:
    result = run("plan", "-f", write(method="None"), "--checkpoint", given)
    assert result.exit_code == 2
    assert f"--checkpoint {given.partition('=')[0]}" in result.stderr


@pytest.mark.slow
def test_plan_imports_neither_grpc_nor_a_cluster_client() -> None:
    code = (
        "import sys; from specdec.tools.cli.app import app; "
        f"app(['plan', '-f', {str(DRAFT_TARGET)!r}, '--json'], standalone_mode=False); "
        "sys.exit(any(n in sys.modules for n in ('tritonclient', 'grpc', 'kubernetes', 'kopf')))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert process.returncode == 0, process.stderr
