"""What can go wrong between a client and a server, each with the exit status of the command."""

from specdec.api.text import line


class ClientError(Exception):
    """One sentence for the user; `exit_status` is what the command line ends with."""

    exit_status = 1

    def __init__(self, message: str) -> None:
        # It may quote what a server answered.
        super().__init__(line(message))


class RefusedError(ClientError):
    """The server answered, and its answer is an error."""


class BadRequestError(ClientError):
    """The request cannot be sent as it stands."""

    exit_status = 2


class UnreachableError(ClientError):
    """Nobody answers at the address, or not in time."""

    exit_status = 3
