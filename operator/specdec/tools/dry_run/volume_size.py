"""Whether the claim that the operator creates has room for the checkpoints.

In a cluster the fetch Job compares the free space of the volume with the sizes that the sources
list, before it downloads weights. A plan compares `spec.storage.size` with the sizes it knows.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.api.quantity import amount

_GIB = 1 << 30


def problem(model: SpeculativeModel, fetched: Mapping[str, Mapping[str, Any]]) -> str:
    """Why the checkpoints do not fit; empty if they do, or if no size is known.

    Args:
        model: the resource.
        fetched: the fetch Job's result by role, with the bytes of each checkpoint; 0 if unknown.
    """
    size = amount(model.spec.storage.size)
    # Equal sources are stored once.
    needed = sum({item["digest"]: int(item["bytes"]) for item in fetched.values()}.values())
    if not isinstance(size, Decimal) or needed <= size:
        return ""
    return (
        f"spec.storage.size is {model.spec.storage.size}, and the checkpoints have "
        f"{needed / 1e9:.1f} GB: set it to {math.ceil(needed / _GIB)}Gi or more"
    )
