"""The limits of connections, bodies in arrival and requests, for the endpoint and the proxy.

Those of the values in one body are in `servers/openai_body.py`. `docs/openai.md` states all of
them: change that table with these files.
"""

from dataclasses import dataclass

# The head of a request, and a body that follows it.
HEAD_BYTES = 32 << 10
HEADERS = 128
HEAD_SECONDS = 30.0
# A body may have this many chunks of any size, and more if they are not small on average.
FREE_CHUNKS = 1024
CHUNK_BYTES = 64
# The bytes of a body in chunks that are no part of its content: sizes, extensions and trailers.
FRAMING_BYTES = 64 << 10
# What is read of a body that was refused: bytes, and seconds after the refusal.
DRAINED_BYTES = 256 << 20
DRAINED_SECONDS = 10.0
# A client that reads nothing for this long, or for up to twice as long, loses its connection.
WRITE_SECONDS = 15.0
# Bytes of whole answers that the proxy reads and sends.
ANSWER_BYTES = 128 << 20
# Requests that wait on a connection for the answer of an earlier one.
PIPELINED = 16
# Connections besides those of requests in flight.
SPARE_CONNECTIONS = 2048

# Bodies that arrive at a time, and how fast each must arrive.
BODIES = 256
BODY_BYTES_PER_SECOND = 64 << 10

# Prompts of one completion, each of which takes a place among the requests in flight.
PROMPTS = 64

# Chats that wait for the chat template, and for how long.
WAITING_CHATS = 64
WAITING_SECONDS = 10.0


@dataclass(frozen=True)
class Limits:
    """The limits of one process that its command line sets, and those that follow from them.

    Attributes:
        body_bytes: of a request.
        in_flight: requests that are answered at a time; others get status 429.
        seconds: for one answer.
        body_seconds: until a body has arrived; each `BODY_BYTES_PER_SECOND` of it give one more.
    """

    body_bytes: int = 4 << 20
    in_flight: int = 256
    seconds: float = 600.0
    body_seconds: float = 10.0

    @property
    def prompts(self) -> int:
        """Prompts of one completion."""
        return min(PROMPTS, self.in_flight)

    @property
    def arriving_bytes(self) -> int:
        """Bytes of all bodies that arrive at a time: room for eight of the largest by default."""
        return max(32 << 20, 2 * self.body_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes of the bodies of all requests in flight."""
        return max(64 << 20, 4 * self.body_bytes)

    @property
    def connections(self) -> int:
        """Open connections."""
        return self.in_flight + SPARE_CONNECTIONS
