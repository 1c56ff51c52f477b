"""The build of a Reference engine reads the same sizes from config.json as the fetch Job."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import configuration_facts
from unit.build.image import BUILD
from unit.jobs.test_public_checkpoints import TARGETS

# Prints the sizes of the configuration on stdin; modules of the build are no package.
PROGRAM = """
import dataclasses, json, sys
from convert import Shape
print(json.dumps(dataclasses.asdict(Shape.read(json.load(sys.stdin)))))
"""
SIZES = {
    "vocab": "vocabSize",
    "hidden": "hiddenSize",
    "intermediate": "intermediateSize",
    "layers": "layers",
    "heads": "heads",
    "kv_heads": "kvHeads",
    "head": "headDim",
    "tied": "tieEmbeddings",
}
LLAMA = TARGETS["meta-llama/Llama-3.3-70B-Instruct"]["config"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"head_dim": 64},
        {"num_key_value_heads": None, "tie_word_embeddings": True},
        {"rope_scaling": None, "rope_parameters": {**LLAMA["rope_scaling"], "rope_theta": 5e5}},
    ],
)
def test_build_reads_the_sizes_that_the_fetch_job_reports(change: dict[str, Any]) -> None:
    config = {**LLAMA, **change}
    command = [sys.executable, "-c", PROGRAM]
    environment = {"PYTHONPATH": str(Path(BUILD).parent)}
    text = subprocess.run(
        command,
        input=json.dumps(config),
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    shape = json.loads(text.stdout)
    facts = configuration_facts.checkpoint(config).shown()
    assert {name: shape[name] for name in SIZES} == {n: facts[f] for n, f in SIZES.items()}
    assert facts["maxPosition"] == 131072
