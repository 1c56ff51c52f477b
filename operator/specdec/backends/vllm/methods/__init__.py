"""The methods of vLLM, one module for each; a module has the name `Method.key`."""

from importlib import import_module

from specdec.api.model import SpeculativeModel
from specdec.backends.vllm.methods.definition import VllmMethod


def of(model: SpeculativeModel) -> VllmMethod:
    """The definition of a resource's method."""
    key = model.spec.speculation.method.key
    definition: VllmMethod = import_module(f"{__name__}.{key}").METHOD
    return definition
