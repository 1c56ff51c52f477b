"""The methods of speculative decoding, one module for each.

The module has the name `Method.key`, and its constant `METHOD` is the definition. All backends
with engines use these definitions, because their repositories and engines use the names of
TensorRT-LLM. A backend that configures methods in another way has definitions in its own package.
"""

from importlib import import_module

from specdec.api.model import SpeculativeModel
from specdec.backends.methods.definition import PLAIN, MethodDefinition

__all__ = ["PLAIN", "MethodDefinition", "of"]


def of(model: SpeculativeModel) -> MethodDefinition:
    """The definition of a resource's method."""
    key = model.spec.speculation.method.key
    definition: MethodDefinition = import_module(f"{__name__}.{key}").METHOD
    return definition
