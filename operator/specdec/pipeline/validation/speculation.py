"""Rules on the blocks of `spec.speculation`; the definition of each method has its own rules."""

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.rule import invalid


def blocks(model: SpeculativeModel, _: Images) -> Cause | None:
    """The block of the method is set where it is needed, and no other."""
    speculation = model.spec.speculation
    for method in speculation.blocks:
        if method is not speculation.method:
            return invalid(
                f"spec.speculation.{speculation.block_name(method)} is set and method is "
                f"{speculation.method}: remove the block, or set method to {method}"
            )
    method, name = speculation.method, speculation.block_name(speculation.method)
    definition = backends.method(model)
    if name is None or not definition.needs_block or method in speculation.blocks:
        return None
    return invalid(f"spec.speculation.method is {method}: {definition.missing_block(name)}")
