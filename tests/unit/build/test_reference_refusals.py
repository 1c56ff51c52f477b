"""Reference builds that cannot succeed report a single sentence and leave no files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.reference_engines import plan
from unit.build.reference import refused


def test_damaged_weights_are_reported(checkpoint: Path, output: Path, tmp_path: Path) -> None:
    path = checkpoint / "model.safetensors"
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    nan = load_file(path)
    nan["model.norm.weight"][3] = np.nan
    cases: dict[str, bytes] = {
        "cut short": whole[:-1000],
        "cut in the header": whole[: header // 2],
        "empty": b"",
        "header is not JSON": whole[:8] + b"\xff" * header + whole[8 + header :],
        "huge header": (2**60).to_bytes(8, "little") + whole[8:],
        "header is a list": (2).to_bytes(8, "little") + b"[]" + whole[8 + header :],
    }
    for name, contents in cases.items():
        path.write_bytes(contents)
        error = refused(plan(checkpoint, output), tmp_path)
        assert error["reason"] == "CheckpointCorrupt", name
        assert "fetch it again" in error["message"], name
    save_file(nan, path)
    assert "not finite" in refused(plan(checkpoint, output), tmp_path)["message"]
    path.unlink()
    assert "missing" in refused(plan(checkpoint, output), tmp_path)["message"]


def test_weights_that_do_not_fit_the_config_are_reported(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    missing = {name: array for name, array in weights.items() if "q_proj" not in name}
    save_file(missing, checkpoint / "model.safetensors")
    error = refused(plan(checkpoint, output), tmp_path)
    assert "q_proj.weight is in none" in error["message"]
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1].copy()
    save_file(weights, checkpoint / "model.safetensors")
    assert (
        "[31] but config.json asks for [32]"
        in refused(plan(checkpoint, output), tmp_path)["message"]
    )


@pytest.mark.parametrize(
    ("change", "reason", "part"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "UnsupportedArchitecture", "GPT2LMHeadModel"),
        ({"architectures": []}, "UnsupportedArchitecture", "LlamaForCausalLM"),
        ({"attention_bias": True}, "UnsupportedArchitecture", "attention_bias: True"),
        ({"mlp_bias": True}, "UnsupportedArchitecture", "mlp_bias"),
        ({"hidden_act": "gelu"}, "UnsupportedArchitecture", "'gelu'"),
        ({"rope_scaling": {"type": "yarn"}}, "UnsupportedArchitecture", "'yarn'"),
        ({"num_key_value_heads": 3}, "UnsupportedArchitecture", "multiple"),
        ({"quantization_config": {"bits": 4}}, "UnsupportedCheckpoint", "quantized"),
        ({"hidden_size": "many"}, "CheckpointCorrupt", "fetch it again"),
    ],
)
def test_unsupported_models_are_refused_by_name(
    change: dict[str, Any], reason: str, part: str, checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    path = checkpoint / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **change}
    path.write_text(json.dumps(config), encoding="utf-8")
    error = refused(plan(checkpoint, output), tmp_path)
    assert error["reason"] == reason
    assert part in error["message"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"backend": "PyTorch"}, "backend: 'PyTorch' must be one of Reference, TensorRT"),
        ({"dtype": "int4"}, "dtype: 'int4'"),
        ({"tensorParallel": 2}, "tensorParallel: 2 must be 1"),
        ({"speculativeDecodingMode": "medusa"}, "speculativeDecodingMode"),
        ({"limits": {"maxBatchSize": 0}}, "maxBatchSize: 0 must be at least 1"),
        ({"limits": {}}, "maxBatchSize"),
    ],
)
def test_bad_plans_are_refused(
    change: dict[str, Any], part: str, checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    error = refused(plan(checkpoint, output, **change), tmp_path)
    assert error["reason"] == "PlanInvalid"
    assert part in error["message"]


def test_a_plan_that_is_not_json_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[]"):
        assert refused(text, tmp_path)["reason"] == "PlanInvalid"


def test_an_index_may_not_leave_the_checkpoint(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    path = checkpoint / "model.safetensors.index.json"
    index = {"weight_map": {"lm_head.weight": "../../secret.safetensors"}}
    path.write_text(json.dumps(index), encoding="utf-8")
    assert "outside the checkpoint" in refused(plan(checkpoint, output), tmp_path)["message"]


def test_an_image_without_the_builds_modules_is_reported(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    error = refused(plan(checkpoint, output), tmp_path, "-S")
    assert error["reason"] == "BuildFailed"
    assert "no Python module numpy; set spec.runtime.image" in error["message"]
