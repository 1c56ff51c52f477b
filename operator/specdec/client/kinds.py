"""Find the kind of a server by what it declares, and refuse what its model cannot do."""

from specdec.client.errors import BadRequestError
from specdec.servers.encoding import Declaration, Requests
from specdec.servers.kind import kinds
from specdec.servers.request import Request


def text_model(declared: Declaration, url: str) -> Requests:
    """How a model of Triton is asked, by the inputs that it declares.

    Raises:
        BadRequestError: the model takes no text.
    """
    for kind in kinds():
        if kind.requests.takes(declared.inputs):
            return kind.requests
    raise BadRequestError(
        f"model {declared.name} at {url} has no input text_input with a limit of tokens; "
        "name a model that takes text"
    )


def check_streaming(request: Request, declared: Declaration, url: str) -> None:
    """Refuse a streaming request to a model that does not stream.

    Raises:
        BadRequestError: with the fix.
    """
    if request.stream and not declared.streams:
        raise BadRequestError(
            f"model {request.model} at {url} does not stream; "
            "send the request without streaming, or set spec.serving.streaming to true"
        )
