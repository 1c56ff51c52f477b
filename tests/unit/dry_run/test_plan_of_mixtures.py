"""Plans of mixtures of experts from their config.json alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.api.gpus import products
from support.golden_cases import SAMPLES
from unit.dry_run.commands import LLAMA_8B, Json, plan_json, run, write_sample
from unit.mixtures import DEEPSEEK_R1

H100 = "NVIDIA-H100-80GB-HBM3"


def given(folder: Path, configuration: dict[str, Any]) -> tuple[str, str]:
    path = folder / "config.json"
    path.write_text(json.dumps(configuration))
    return "--checkpoint", f"target={path}"


def stage(plan: Json, kind: str) -> Json:
    return next(item for item in plan["stages"] if item["type"] == kind)


def test_prediction_layers_are_read_from_a_configuration(tmp_path: Path) -> None:
    plan = plan_json("-f", SAMPLES["pytorch-mtp"], *given(tmp_path, DEEPSEEK_R1))

    assert not plan["refused"]
    memory = stage(plan, "MemoryFits")
    assert memory["status"] == "True"
    # 61 layers and one that predicts, each with 576 values of 2 bytes, on every rank.
    planned = plan["plan"]["memory"]
    cache = planned["devices"][0]["parts"]["targetKvCache"] << 20
    assert cache / planned["kvTokens"]["target"] == pytest.approx(62 * 576 * 2, rel=1e-3)


def test_configuration_without_prediction_layers_is_refused(tmp_path: Path) -> None:
    bare = {k: v for k, v in DEEPSEEK_R1.items() if k != "num_nextn_predict_layers"}

    result = run("plan", "-f", SAMPLES["pytorch-mtp"], *given(tmp_path, bare))

    assert result.exit_code == 1
    assert "MtpLayersMissing" in result.stderr


def test_deepseek_on_a_node_that_is_smaller_than_its_weights_is_refused(tmp_path: Path) -> None:
    changed = write_sample(tmp_path, "pytorch-mtp", gpu__product=H100)

    result = run("plan", "-f", changed, *given(tmp_path, DEEPSEEK_R1))

    assert 8 * products()[H100].memory_mib << 20 < 685e9
    assert result.exit_code == 1
    assert "InsufficientGpuMemory" in result.stderr


def test_volume_that_is_smaller_than_the_weights_is_refused(tmp_path: Path) -> None:
    configuration = given(tmp_path, DEEPSEEK_R1)
    small = write_sample(tmp_path, "pytorch-mtp", storage__size="20Gi")

    result = run("plan", "-f", small, *configuration)

    assert result.exit_code == 1
    assert "VolumeFull" in result.stderr
    assert "spec.storage.size is 20Gi, and the checkpoints have 68" in result.stderr
    advised = result.stderr.split("set it to ")[1].split(" or more")[0]
    enough = write_sample(tmp_path, "pytorch-mtp", storage__size=advised)
    assert run("plan", "-f", enough, *configuration).exit_code == 0


def test_volume_of_a_dense_pair_is_compared_with_both_models(tmp_path: Path) -> None:
    small = write_sample(tmp_path, "pytorch-draft-target", storage__size="20Gi")

    result = run("plan", "-f", small, *given(tmp_path, LLAMA_8B | {"num_hidden_layers": 80}))

    assert result.exit_code == 1
    assert "set it to 35Gi or more" in result.stderr


def test_plan_prints_the_limits_that_follow_from_a_configuration(tmp_path: Path) -> None:
    sample = write_sample(tmp_path, "pytorch-ngram", target__limits=None)
    configuration = given(tmp_path, LLAMA_8B | {"max_position_embeddings": 131072})

    plan = plan_json("-f", sample, *configuration)
    shown = " ".join(run("plan", "-f", sample, *configuration).stdout.split())

    limits = plan["plan"]["limits"]["target"]
    assert limits["maxSeqLen"] == 32768
    text = ", ".join(f"{name} {value}" for name, value in limits.items())
    assert f"limits of the target {text}" in shown


def test_advice_for_deepseek_on_two_nodes_ends_in_an_accepted_plan(tmp_path: Path) -> None:
    configuration = given(tmp_path, DEEPSEEK_R1)
    changes: dict[str, Any] = {"gpu__product": H100, "serving__nodesPerReplica": 2}

    def refused() -> str:
        result = run(
            "plan", "-f", write_sample(tmp_path, "pytorch-mtp", **changes), *configuration
        )
        assert result.exit_code == 1, result.output
        assert "backend to TensorRT" not in result.stderr
        return result.stderr

    assert "set serving.nodesPerReplica to 1" in refused()
    changes["serving__nodesPerReplica"] = 1
    advised = refused().partition("set spec.gpu.product to ")[2].split()[0]
    changes["gpu__product"] = advised

    sample = write_sample(tmp_path, "pytorch-mtp", **changes)
    assert run("plan", "-f", sample, *configuration).exit_code == 0
