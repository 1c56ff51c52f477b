"""Errors of requests to the API server, by what the caller can do about them.

`Cluster` raises them, and the controller's retry policy depends on the class. Every message is one
sentence that names the object and is fit for a user.
"""

import json

from kubernetes.aio.client.exceptions import ApiException


class ClusterError(Exception):
    """A request failed; the message is fit for a user."""


class Conflict(ClusterError):  # noqa: N818 - named for what it is, as the server does
    """The object was changed by another client: read it and decide again."""


class Transient(ClusterError):  # noqa: N818
    """No response, or one that a later try may change."""


class Rejected(ClusterError):  # noqa: N818
    """The server refuses the request; a retry fails until a person changes something.

    `code` is the HTTP status, `target` the object, `message` the server's own sentence.
    """

    def __init__(self, code: int, target: str, message: str) -> None:
        super().__init__(f"the API server rejects {target}: {message}")
        self.code = code
        self.target = target
        self.message = message


class Missing(Rejected):
    """404: the object does not exist, or its namespace or kind does not."""


def convert(error: Exception, target: str) -> ClusterError:
    """The ClusterError for an error of the Kubernetes client about `target`."""
    if not isinstance(error, ApiException):
        cause = str(error) or type(error).__name__
        return Transient(f"the API server did not answer about {target}: {cause}")
    message = server_message(error)
    status = error.status
    if status == 409:
        return Conflict(f"{target} has changed since it was read: {message}")
    if status == 404:
        return Missing(status, target, message)
    # 401 also occurs while a rotated token is not yet mounted.
    if status in (401, 408, 429) or not 400 <= status < 500:
        return Transient(f"the API server answers {status} about {target}: {message}")
    return Rejected(status, target, message)


def server_message(error: ApiException) -> str:
    """The message of the Status object in an error's body, or else the HTTP reason."""
    try:
        body = json.loads(error.body or "null")
    except ValueError:
        body = None
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or error.reason or f"HTTP {error.status}")
