"""The methods of the LLM API, one module for each; a module has the name `Method.key`."""

from importlib import import_module

from specdec.api.model import SpeculativeModel
from specdec.backends.pytorch.methods.definition import LlmApiMethod


def of(model: SpeculativeModel) -> LlmApiMethod:
    """The definition of a resource's method."""
    key = model.spec.speculation.method.key
    definition: LlmApiMethod = import_module(f"{__name__}.{key}").METHOD
    return definition
