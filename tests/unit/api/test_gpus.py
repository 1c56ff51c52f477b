"""GPU products by their node label."""

import pytest

from specdec.api.gpus import Gpu, gpu, labels


@pytest.mark.parametrize(
    ("product", "memory", "capability"),
    [
        ("NVIDIA-A10", 23028, "8.6"),
        ("NVIDIA-A100-SXM4-80GB", 81920, "8.0"),
        ("NVIDIA-L4", 23034, "8.9"),
        ("NVIDIA-H100-80GB-HBM3", 81559, "9.0"),
        ("NVIDIA-H200", 143771, "9.0"),
        ("NVIDIA-B200", 183359, "10.0"),
        ("Tesla-T4", 15360, "7.5"),
    ],
)
def test_a_common_product_is_known(product: str, memory: int, capability: str) -> None:
    assert gpu(product) == Gpu(product, memory, capability)


@pytest.mark.parametrize(
    ("product", "shown"),
    [
        # The memory in MiB that nvidia-smi shows for these MIG slices.
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 9728),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me", 9728),
        ("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb", 19968),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", 40192),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864),
        ("NVIDIA-A30-MIG-1g.6gb", 5952),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 9984),
        ("NVIDIA-H100-80GB-HBM3-MIG-4g.40gb", 40448),
    ],
)
def test_a_slice_is_never_taken_for_larger_than_it_is(product: str, shown: int) -> None:
    derived = gpu(product)

    assert derived is not None
    assert 0.92 * shown <= derived.memory_mib <= shown


@pytest.mark.parametrize(
    "product",
    [
        "",
        "NVIDIA-A10-SHARED",
        "NVIDIA-A100-SXM4-80GB-MIG-1g",
        "NVIDIA-A100-SXM4-80GB-MIG-0g.0gb",
        "NVIDIA-Unknown-MIG-1g.10gb",
        "nvidia-a10",
        "NVIDIA-A10\n",
    ],
)
def test_anything_else_is_unknown(product: str) -> None:
    assert gpu(product) is None


@pytest.mark.parametrize(
    ("short", "known"),
    [
        ("H100", ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL", "NVIDIA-H100-PCIe")),
        ("h200", ("NVIDIA-H200", "NVIDIA-H200-NVL")),
        ("L40S", ("NVIDIA-L40S",)),
        ("RTX 4090", ("NVIDIA-GeForce-RTX-4090",)),
        # Labels, and names that may be the label of a product that is not in the table.
        ("NVIDIA-L40", ()),
        ("NVIDIA-H100-96GB-HBM3", ()),
        ("NVIDIA-A10-SHARED", ()),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", ()),
        ("", ()),
        ("MI300X", ()),
    ],
)
def test_short_name_means_the_products_that_have_its_parts(
    short: str, known: tuple[str, ...]
) -> None:
    assert labels(short) == known
