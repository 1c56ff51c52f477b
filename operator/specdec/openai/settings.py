"""The settings of the endpoint, which its command line sets."""

from dataclasses import dataclass

from specdec.client.model_names import BLS


@dataclass(frozen=True)
class Limits:
    """What one process accepts.

    Attributes:
        body_bytes: of a request.
        in_flight: requests that are answered at a time; others get status 429.
        seconds: for one answer.
        body_seconds: until a body has arrived.
        stop: strings of a request.
    """

    body_bytes: int = 4 << 20
    in_flight: int = 256
    seconds: float = 600.0
    body_seconds: float = 30.0
    stop: int = 64


@dataclass(frozen=True)
class Settings:
    """What the endpoint serves.

    Attributes:
        served_name: the name of the model in requests and answers.
        model: the Triton model.
        tool_parser, reasoning_parser: names in `parsers`; None for no parser.
        max_tokens: of a chat completion without a limit, if the server's longest sequence is
            unknown.
        limits: what one process accepts.
        metrics_url: `host:port` of Triton's metrics.
    """

    served_name: str
    model: str = BLS
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    max_tokens: int = 4096
    limits: Limits = Limits()
    metrics_url: str = "127.0.0.1:8002"
