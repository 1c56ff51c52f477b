"""The errors of the local cluster tool."""


class ClusterError(Exception):
    """An error that the user can fix; its message is one sentence."""


class RefusedError(ClusterError):
    """The API server refused a call."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
