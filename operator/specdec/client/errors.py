"""The errors of a client, under their public names."""

from specdec.servers.errors import BadRequestError, ClientError, RefusedError, UnreachableError

__all__ = ["BadRequestError", "ClientError", "RefusedError", "UnreachableError"]
