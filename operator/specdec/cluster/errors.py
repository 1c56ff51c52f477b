"""What a request to the API server ends with when it does not do what was asked."""

import json

from kubernetes.aio.client.exceptions import ApiException


class ClusterError(Exception):
    """A request that did not do what was asked; the message is fit for a user."""


class Conflict(ClusterError):  # noqa: N818 - named for what it is, as the server does
    """Someone else wrote meanwhile: read again and decide again."""


class Transient(ClusterError):  # noqa: N818
    """No answer, or one that will be different later: try again."""


class Rejected(ClusterError):  # noqa: N818
    """The server refuses; repeating does not help until somebody changes something.

    `code` is the HTTP status, `target` the object in question, `words` the server's own sentence.
    """

    def __init__(self, code: int, target: str, words: str) -> None:
        super().__init__(f"the API server rejects {target}: {words}")
        self.code = code
        self.target = target
        self.words = words


class Missing(Rejected):
    """404: neither the object nor the place it should be in exists."""


def convert(error: Exception, target: str) -> ClusterError:
    """The one place that turns the client's errors into ours."""
    if not isinstance(error, ApiException):
        kind = type(error).__name__
        return Transient(f"the API server did not answer about {target}: {str(error) or kind}")
    words = server_words(error)
    status = error.status
    if status == 409:
        return Conflict(f"{target} changed meanwhile: {words}")
    if status == 404:
        return Missing(status, target, words)
    # 401 comes while a rotated token is not yet in place.
    if status in (401, 408, 429) or not 400 <= status < 500:
        return Transient(f"the API server answers {status} about {target}: {words}")
    return Rejected(status, target, words)


def server_words(error: ApiException) -> str:
    """The message of the Status object in an error's body, else the HTTP reason."""
    try:
        body = json.loads(error.body or "null")
    except ValueError:
        body = None
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or error.reason or f"HTTP {error.status}")
