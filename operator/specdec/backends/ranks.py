"""GPUs and ranks of a resource's servers."""

from dataclasses import replace

from specdec.api.model import SpeculativeModel
from specdec.backends import methods
from specdec.triton.layout import RankPlan, Split
from specdec.triton.rank_plan import plan


def ranks(model: SpeculativeModel, *, one_process: bool = False) -> RankPlan:
    """The rank plan of the method's layout; `one_process` is as in `Layout`."""
    splits = {
        role: Split(spec.parallelism.tensor, spec.parallelism.pipeline, spec.gpu.device_ids)
        for role, spec in model.models.items()
    }
    layout = methods.of(model).layout(model, splits)
    return plan(replace(layout, one_process=one_process))
