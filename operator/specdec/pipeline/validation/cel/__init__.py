"""The part of the Common Expression Language (CEL) that the CRD's rules use.

`parse` reads an expression, `evaluate` computes its value with the semantics and error messages
of the API server. For what the CRD does not use, `parse` raises an `UnsupportedError`. So no rule
is read differently than the API server reads it.
"""

from specdec.pipeline.validation.cel.evaluation import evaluate
from specdec.pipeline.validation.cel.parser import parse
from specdec.pipeline.validation.cel.syntax import Node, UnsupportedError, names
from specdec.pipeline.validation.cel.values import EvaluationError, OptionalValue

__all__ = [
    "EvaluationError",
    "Node",
    "OptionalValue",
    "UnsupportedError",
    "evaluate",
    "names",
    "parse",
]
