"""The settings of the endpoint, which its command line sets."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec.images.openai.limits import Limits
from specdec.images.openai.sampling import Defaults
from specdec.servers.kind import ServerKind, kind

DEFAULT = kind("bls")


@dataclass(frozen=True)
class EndpointSettings:
    """What the endpoint serves.

    Attributes:
        served_name: the name of the model in requests and answers.
        kind: of the server.
        model: the Triton model.
        tool_parser, reasoning_parser: names in `parsers`; None for no parser.
        max_tokens: of a chat completion without a limit, if the server's longest sequence is
            unknown.
        defaults: sampling parameters of requests without them.
        ends: texts of end tokens that the server does not know; see `checkpoint.ends`.
        limits: what one process accepts.
        metrics_url: `host:port` of Triton's metrics.
    """

    served_name: str
    kind: ServerKind = DEFAULT
    model: str = DEFAULT.requests.model
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    max_tokens: int = 4096
    defaults: Defaults = field(default_factory=Defaults)
    ends: Mapping[str, bool] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    metrics_url: str = "127.0.0.1:8002"
