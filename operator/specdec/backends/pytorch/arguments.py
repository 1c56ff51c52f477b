"""Rules on `spec.runtime.arguments`, and on the parameter of engines for grammars."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.arguments import Arguments, arguments
from specdec.backends.facts import Images
from specdec.backends.pytorch import generations
from specdec.backends.rule import invalid, version

# The parameter of engines that serves requests with grammars.
GRAMMARS = "guided_decoding_backend"
_SHOWN = 60


def table() -> Arguments:
    """The arguments of the LLM API."""
    return arguments(__package__, "TensorRT-LLM")


def checked(model: SpeculativeModel, _: Images) -> Cause | None:
    """The release has each argument with its type, and neither a field nor the method sets it."""
    spelling = generations.of(version(model)).methods.get(model.spec.speculation.method)
    message = table().problem(model, spelling.arguments if spelling else ())
    return invalid(message) if message else None


def grammars(model: SpeculativeModel, _: Images) -> Cause | None:
    """No front end passes a grammar on: the parameter of engines would have no effect."""
    given = model.spec.runtime.parameters.get(GRAMMARS)
    if given is None:
        return None
    why = table().refused[GRAMMARS]
    return invalid(f"spec.runtime.parameters.{GRAMMARS} is {given[:_SHOWN]}, and {why}")
