"""The errors of a client, each with the exit status of the command line.

`specdec.client` raises them, and exports them under the same names. A message is a single
printable line, even if it quotes a server.
"""

from specdec.api.text import line


class ClientError(Exception):
    """An error with one sentence for the user; `exit_status` is the command's exit status."""

    exit_status = 1

    def __init__(self, message: str) -> None:
        # The message may quote a server's response, with any characters.
        super().__init__(line(message))


class RefusedError(ClientError):
    """The server answered with an error."""


class BadRequestError(ClientError):
    """The request is invalid, or names something that does not exist."""

    exit_status = 2


class UnreachableError(ClientError):
    """The connection failed, or the answer was not complete in time."""

    exit_status = 3
