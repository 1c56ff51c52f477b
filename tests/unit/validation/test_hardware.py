"""A short name of a GPU product is refused with the label that nodes have."""

import pytest

from specdec.api.model import SpeculativeModel
from specdec.pipeline import validation
from support.simulated_cluster import IMAGES
from unit.backends.pytorch_cases import pytorch
from unit.pipeline.tensorrt import tensorrt


@pytest.mark.parametrize("backend", ["PyTorch", "TensorRT"])
def test_short_name_is_refused_with_the_labels_of_nodes(backend: str) -> None:
    cr = pytorch("NGram") if backend == "PyTorch" else tensorrt("DraftTarget", "1.2.1")
    cr["spec"]["gpu"] = {"product": "H100"}

    cause = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)

    assert cause is not None
    assert cause.reason == "UnsupportedGpu"
    assert cause.message == (
        "spec.gpu.product is H100, and nodes have the full name of the product in their label "
        "nvidia.com/gpu.product: set it to that value, such as NVIDIA-H100-80GB-HBM3, "
        "NVIDIA-H100-NVL or NVIDIA-H100-PCIe"
    )
    for label in cause.message.partition("such as ")[2].replace(" or ", ", ").split(", "):
        cr["spec"]["gpu"] = {"product": label}
        assert validation.first_problem(SpeculativeModel.parse(cr), IMAGES) is None


def test_label_of_ones_own_is_accepted_with_its_memory() -> None:
    cr = pytorch("NGram", gpu={"product": "H100", "memoryMiB": 81559})
    assert validation.first_problem(SpeculativeModel.parse(cr), IMAGES) is None
