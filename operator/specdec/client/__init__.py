"""Clients of a served model (extra `client`)."""

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
