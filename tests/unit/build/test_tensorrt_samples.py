"""The build program can build the operator's plan of every sample."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec import backends
from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.versions import at_least
from specdec.backends.facts import Checkpoint, Facts
from unit.build.image import FOLDERS, Image
from unit.pipeline.tensorrt import built

SAMPLES = sorted((Path(__file__).parents[3] / "manifests/samples").glob("tensorrt-*.yaml"))
TENSORRT = support("TensorRT")


def model_of(path: Path) -> SpeculativeModel:
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    (body,) = [d for d in documents if d["kind"] == "SpeculativeModel"]
    body["metadata"] |= {"uid": "u", "namespace": "demo"}
    return SpeculativeModel.parse(body)


def checkpoints(model: SpeculativeModel) -> dict[str, Checkpoint]:
    facts = CheckpointFacts(architecture="LlamaForCausalLM")
    return {
        role: Checkpoint(role, letter * 64, letter, 1 << 30, facts)
        for role, letter in zip(model.sources, "abcde", strict=False)
    }


def inside(image: Image, plan: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Return the plan with paths in the test's image instead of a pod's paths."""
    heads = facts.checkpoints.get("heads")
    assert plan["heads"] in (None, heads and heads.path)
    assert plan["output"] == f"/models/engines/{plan['key']}"
    return {
        **plan,
        "checkpoint": str(image.root / "base"),
        "heads": plan["heads"] and str(image.root / "heads"),
        "output": str(image.output),
        "examples": [str(image.root / folder) for folder in FOLDERS],
    }


@pytest.mark.parametrize("version", ["0.18.0", "0.19.0", "1.2.1"])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_builds_as_planned(path: Path, version: str, tmp_path: Path) -> None:
    model = model_of(path)
    if not at_least(version, TENSORRT.methods[model.spec.speculation.method]):
        pytest.skip("the release has no such method")
    facts = Facts(version=version, image="image", checkpoints=checkpoints(model))
    engines = built(model, facts)
    length = backends.method(model).max_draft_len(model)
    for role, spec in model.models.items():
        image = Image(tmp_path / role, version, checked=True)
        plan = dict(engines[role].plan)
        message, _ = image.build(inside(image, plan, facts))
        engine = message["engine"]
        assert engine["key"] == plan["key"]
        ranks = [name for name in image.made() if name.endswith(".engine")]
        assert len(ranks) == spec.parallelism.tensor * spec.parallelism.pipeline
        given = image.arguments("trtllm-build")
        # As in every guide of TensorRT-LLM: "auto" is the number format of the model.
        assert given["gemm_plugin"] == "auto"
        compared = model.spec.speculation.block.compares_logits
        assert ("gather_generation_logits" in given) == compared
        if role == "target" and length:
            assert engine["maxDraftLen"] == length
