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
    from specdec.client.speculate import Options, Result
    from specdec.client.verification import Verification, verify
    from specdec.servers.request import Request

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
    "Answer": "specdec.client.answer",
    "Chunk": "specdec.servers.chunk",
    "Client": "specdec.client.generate",
    "Connection": "specdec.client.connection",
    "Counts": "specdec.servers.chunk",
    "Entry": "specdec.client.dataset",
    "Inference": "specdec.client.infer",
    "Options": "specdec.client.speculate",
    "Output": "specdec.client.infer",
    "Request": "specdec.servers.request",
    "Result": "specdec.client.speculate",
    "Verification": "specdec.client.verification",
    "verify": "specdec.client.verification",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "specdec.servers.errors")), name)
