"""What the accept stage asks of a spec."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.validation import hardware, precision, runtime, sizes, speculation
from specdec.validation.rule import Rule, version

__all__ = ["first_problem", "version"]

# In this order: a later rule relies on what the earlier ones made sure of.
_RULES: tuple[Rule, ...] = (
    runtime.served,
    runtime.known_version,
    runtime.method,
    runtime.image,
    speculation.blocks,
    speculation.lengths,
    speculation.choices,
    speculation.split,
    speculation.converter,
    runtime.dtypes,
    runtime.parameters,
    runtime.sources,
    runtime.storage,
    hardware.capability,
    precision.lost,
    hardware.claims,
    hardware.paging,
    precision.attention,
    sizes.steps,
    sizes.batch,
    sizes.sink,
    hardware.ranks,
)


def first_problem(model: SpeculativeModel, images: Images) -> Cause | None:
    """The first rule that the resource breaks, in a reason and a sentence; None without one."""
    return next((words for rule in _RULES if (words := rule(model, images))), None)
