"""The methods, a module each: `METHOD` of the module with the key of the member of `Method`.

Backends share them: the repository layout and the build modes of TensorRT-LLM are what both of
today serve. A backend that configures a method in another way holds that in its own package.
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
