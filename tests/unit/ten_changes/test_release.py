"""Adding a release of TensorRT-LLM touches two production files."""

from pathlib import Path

from unit.ten_changes.scratch import Scratch

PROGRAM = """
from support.simulated_cluster import IMAGES
from specdec import validation
from specdec.api.model import SpeculativeModel
from specdec.triton import contract
from unit.pipeline.tensorrt import engines, plans, tensorrt

cr = tensorrt(version="1.3.0")
assert validation.first_problem(SpeculativeModel.parse(cr), IMAGES) is None
(plan,) = plans(cr).values()
names = [tensor.name for tensor in contract.inputs("tensorrt_llm_bls", plan.version)]
assert "stop_soon" in names, names
print(plan.version, engines(cr)["target"].plan["examples"])
"""
TENSOR = '    - {type: BOOL, dims: [1], optional: true, since: "1.3.0", names: [stop_soon]}\n'


def test_new_release_touches_two_production_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    image = '      "1.2.1": nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3\n'
    scratch.edit(
        "api/support.yaml",
        ('  TensorRT: "1.2.1"\n', '  TensorRT: "1.3.0"\n'),
        (
            '  TensorRT:\n    served: true\n    versions: ["0.18.0", "0.19.0", "1.2.1"]\n',
            "  TensorRT:\n    served: true\n"
            '    versions: ["0.18.0", "0.19.0", "1.2.1", "1.3.0"]\n',
        ),
        (image, image + image.replace("1.2.1", "1.3.0").replace("26.07", "26.10")),
        (
            '      "1.2.1": /app/examples\n',
            '      "1.2.1": /app/examples\n      "1.3.0": /opt/examples\n',
        ),
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
