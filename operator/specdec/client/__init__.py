"""Clients of a served model (extra `client`); gRPC is loaded with the first of these names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
    from specdec.client.generate import Answer, Chunk, Client, Counts
    from specdec.client.request import Request

__all__ = [
    "Answer",
    "BadRequestError",
    "Chunk",
    "Client",
    "ClientError",
    "Counts",
    "RefusedError",
    "Request",
    "UnreachableError",
]
_GENERATE = frozenset({"Answer", "Chunk", "Client", "Counts"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "errors" if name.endswith("Error") else "request"
    return getattr(import_module(f"{__name__}.{'generate' if name in _GENERATE else home}"), name)
