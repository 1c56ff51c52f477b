"""The rule on `spec.runtime.arguments`: arguments of vLLM's engine that no field sets."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.arguments import Arguments, arguments
from specdec.backends.facts import Images
from specdec.backends.rule import invalid


def table() -> Arguments:
    """The arguments of vLLM's engine."""
    return arguments(__package__, "vLLM")


def checked(model: SpeculativeModel, _: Images) -> Cause | None:
    """The release has each argument with its type, and no field sets it."""
    message = table().problem(model)
    return invalid(message) if message else None
