"""Models and rank plans for tests of memory plans."""

from collections.abc import Mapping

from specdec.api.methods.draft_target import Placement, Topology
from specdec.backends.footprint import EngineSizes, Footprint, Sizes, footprint
from specdec.backends.memory_plan import Budget
from specdec.triton.layout import Layout, RankPlan, Split
from specdec.triton.rank_plan import plan as ranks_of

NONE: Mapping[str, Budget] = {}
LLAMA_8B = Sizes(128256, 4096, 32, 32, 8, 128, 14336, 8030261248)
LLAMA_70B = Sizes(128256, 8192, 80, 64, 8, 128, 28672, 70553706496)
LLAMA_1B = Sizes(128256, 2048, 16, 32, 8, 64, 8192, 1235814400, tied=True)
H100 = 81559


def engine(sizes: Sizes, tensor: int = 1, batch: int = 8, length: int = 2048) -> EngineSizes:
    return EngineSizes(sizes, tensor, 1, 2, 2, 2, batch, length, 8192)


def on(
    target: int = 1,
    draft: int | None = None,
    *,
    placement: Placement = Placement.SHARED,
    topology: Topology = Topology.SINGLE_SERVER,
    fast_logits: bool = False,
) -> RankPlan:
    splits = Split(target), Split(draft) if draft else None
    return ranks_of(Layout(*splits, topology, placement, fast_logits))


def both(target: EngineSizes, draft: EngineSizes) -> dict[str, Footprint]:
    return {"target": footprint(target), "draft": footprint(draft)}
