"""Adding a backend with a kind of server touches two packages and the table of backends.

The toy server has other ports, probes and an API of its own, and counts drafts in its metrics.
"""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import AGREE, Scratch

TOY = Path(__file__).with_name("toy")
ROW = """  Toy:
    served: true
    fronts: {Triton: toy}
    gpus: false
    images: {"0.19.0": {image: "example.com/toy:0.19.0", source: a test}}
    versions: ["0.19.0"]
    methods: {"None": "0.19.0", "NGram": "0.19.0"}
    dtypes: [Auto]
    architectures: [LlamaForCausalLM]
"""
REFUSALS = [
    "backend Toy cuts no prompt: set runtime.chunkedContext to false",
    "only backends PyTorch and VLLM have several instances: set runtime.instances to 1, or set "
    "spec.runtime.backend to PyTorch or VLLM",
    "only backends TensorRT and Reference draft by this method: set spec.runtime.backend to "
    "TensorRT or Reference, or choose another method",
    "backend Toy has one device: set target.parallelism.tensor and .pipeline to 1",
]
PROGRAM = (
    AGREE
    + """
from unit.ten_changes.toy import program

program.main()
"""
)


@pytest.mark.slow
def test_new_backend_and_kind_of_server_touch_their_packages_and_the_table(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    for source, package in (("backend", "backends/toy"), ("server", "servers/toy")):
        for file in (TOY / source).glob("*.*"):
            scratch.write(f"{package}/{file.name}", file.read_text("utf-8"))
    scratch.edit(
        "api/support.yaml",
        ('  TensorRT: "1.2.1"\n', '  TensorRT: "1.2.1"\n  Toy: "0.19.0"\n'),
        ("  Reference:\n    served: true\n", ROW + "  Reference:\n    served: true\n"),
    )
    scratch.generate_definition()

    output = scratch.run(PROGRAM).splitlines()

    assert output[: len(REFUSALS)] == REFUSALS
    assert output[-1] == "served, verified and measured"
    assert scratch.touched() == [
        "operator/specdec/api/support.yaml",
        "operator/specdec/backends/toy/__init__.py",
        "operator/specdec/backends/toy/rules.yaml",
        "operator/specdec/servers/toy/__init__.py",
        "operator/specdec/servers/toy/counters.py",
        "operator/specdec/servers/toy/requests.py",
        "operator/specdec/servers/toy/serving.py",
    ]
