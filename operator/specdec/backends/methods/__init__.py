"""The methods of speculative decoding, one module for each.

The module has the name `Method.key`, and its constant `METHOD` is the definition. All backends use
these definitions, because both serve repositories and engines as TensorRT-LLM names them. Code of
a backend that configures a method in another way belongs to the backend's package.
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
