"""The Python API for a served model (extra `client`): generation, speculation and verification.

The command line, the benchmark and the in-cluster Jobs use this package. A name in `__all__`
is imported at its first use, because some of the modules import gRPC, which takes time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.client.answer import Answer, Chunk, Counts
    from specdec.client.connection import Connection
    from specdec.client.dataset import Entry
    from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
    from specdec.client.generate import Client
    from specdec.client.infer import Inference, Output
    from specdec.client.request import Request
    from specdec.client.speculate import Options, Result
    from specdec.client.verification import Verification, verify

__all__ = [
    "Answer",
    "BadRequestError",
    "Chunk",
    "Client",
    "ClientError",
    "Connection",
    "Counts",
    "Entry",
    "Inference",
    "Options",
    "Output",
    "RefusedError",
    "Request",
    "Result",
    "UnreachableError",
    "Verification",
    "verify",
]
_MODULES = {
    "Answer": "answer",
    "Chunk": "answer",
    "Client": "generate",
    "Connection": "connection",
    "Counts": "answer",
    "Entry": "dataset",
    "Inference": "infer",
    "Options": "speculate",
    "Output": "infer",
    "Request": "request",
    "Result": "speculate",
    "Verification": "verification",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "errors")
    return getattr(import_module(f"{__name__}.{module}"), name)
