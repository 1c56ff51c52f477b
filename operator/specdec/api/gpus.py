"""The memory and compute capability of GPU products, read from `gpus.yaml`."""

import re
from dataclasses import dataclass
from functools import cache

from specdec.api.tables import table

# The device plugin names a MIG slice by its compute and memory, and writes "+me" as ".me".
_MIG = re.compile(r"(?P<gpu>.+)-MIG-[1-7]g\.(?P<memory>[1-9][0-9]{0,2})gb(?:\.[a-z.]+)?")
# MIG divides the memory of a GPU into eighths.
_SLICES = 8
# The driver keeps part of a slice: 10 GB of an A100 show as 9728 MiB. Of a larger slice it keeps a
# smaller part.
_SLICE_USABLE = 0.95


@dataclass(frozen=True)
class Gpu:
    """One product: memory in MiB as nvidia-smi shows it, compute capability such as "9.0"."""

    product: str
    memory_mib: int
    compute_capability: str


def gpu(product: str) -> Gpu | None:
    """The product of a value of the node label `nvidia.com/gpu.product`; None when unknown.

    A MIG slice is derived from its GPU. A time-sliced GPU (`...-SHARED`) is unknown on purpose:
    other pods use an unknown part of its memory.
    """
    slice_ = _MIG.fullmatch(product)
    if slice_ is None:
        return products().get(product)
    whole = products().get(slice_["gpu"])
    if whole is None:
        return None
    eighths = round(int(slice_["memory"]) * 1024 * _SLICES / whole.memory_mib)
    share = min(max(eighths, 1), _SLICES) / _SLICES
    memory = int(whole.memory_mib * share * _SLICE_USABLE)
    return Gpu(product, memory, whole.compute_capability)


def labels(short: str) -> tuple[str, ...]:
    """The products that a short name can mean, as "H100" means all H100 products; else empty.

    A label of GPU feature discovery has every part of the name, in any case. A name with a part of
    its own, such as another memory size, may be the label of a product that is not in the table.
    """
    parts = _parts(short)
    if not parts or short in products():
        return ()
    return tuple(name for name in products() if parts <= _parts(name))


def _parts(name: str) -> set[str]:
    return {part for part in re.split(r"[^a-z0-9]+", name.lower()) if part}


@cache
def products() -> dict[str, Gpu]:
    """All products by name, in the order of the table."""
    return {name: Gpu(name, *row) for name, row in table("specdec.api", "gpus.yaml").items()}
