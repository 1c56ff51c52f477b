"""Adding a release of TensorRT-LLM touches two production files."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import Scratch

PROGRAM = """
from support.simulated_cluster import IMAGES
from specdec.pipeline import validation
from specdec.api.model import SpeculativeModel
from specdec.triton import contract
from unit.pipeline.tensorrt import engines, plans, tensorrt

cr = tensorrt(version="1.3.0")
assert validation.first_problem(SpeculativeModel.parse(cr), IMAGES) is None
(plan,) = plans(cr).values()
names = [tensor.name for tensor in contract.inputs("tensorrt_llm_bls", plan.version)]
assert "stop_soon" in names, names
print(plan.version, engines(cr)["target"].plan["examples"][0])
"""
FOLDERS = "      - {examples: /opt/examples, templates: /opt/models}\n"
TENSOR = '    - {type: BOOL, dims: [1], optional: true, since: "1.3.0", names: [stop_soon]}\n'


@pytest.mark.slow
def test_new_release_touches_two_production_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    image = "        image: nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3\n"
    head, source = '      "1.2.1":\n', "        source: branch r26.10\n"
    present = "        source: triton-inference-server/tensorrtllm_backend, branch r26.07; images"
    newer = head.replace("1.2.1", "1.3.0") + image.replace("26.07", "26.10") + source
    scratch.edit(
        "api/support.yaml",
        ('  TensorRT: "1.2.1"\n', '  TensorRT: "1.3.0"\n'),
        (
            '  TensorRT:\n    served: true\n    versions: ["0.18.0", "0.19.0", "1.2.1"]\n',
            "  TensorRT:\n    served: true\n"
            '    versions: ["0.18.0", "0.19.0", "1.2.1", "1.3.0"]\n',
        ),
        (head + image + present, newer + head + image + present),
        ("    folders:\n", "    folders:\n" + FOLDERS),
    )
    scratch.edit(
        "triton/contract.yaml",
        ('"1.2.1"]\n', '"1.2.1", "1.3.0"]\n'),
        ("  request_bls:\n", "  request_bls:\n" + TENSOR),
    )

    assert scratch.run(PROGRAM).split() == ["1.3.0", "/opt/examples"]
    assert scratch.touched() == [
        "operator/specdec/api/support.yaml",
        "operator/specdec/triton/contract.yaml",
    ]
