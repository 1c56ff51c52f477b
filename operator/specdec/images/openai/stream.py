"""The responses of Triton to one request, on a gRPC stream that a reader does not cancel."""

import asyncio
from typing import Any

import grpc


class Stream:
    """One call with one request and many responses.

    gRPC's library cancels a call if the task that reads it is cancelled. Triton 2.51 can crash, or
    block all streams, when a stream is cancelled. Therefore a task of its own reads each message,
    and the next reader gets the message of a reader that was cancelled.

    Args:
        call: from gRPC's asynchronous library.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._next: asyncio.Task[Any] | None = None

    async def read(self) -> Any:
        """The next `ModelStreamInferResponse`; None after the last.

        Raises:
            grpc.aio.AioRpcError: the call or its connection failed.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._call.read())
        reply = await asyncio.shield(self._next)
        self._next = None
        return None if reply is grpc.aio.EOF else reply

    async def finish(self) -> None:
        """Read up to the end of the call, and drop the responses."""
        while await self.read() is not None:
            pass

    def cancel(self) -> None:
        """End the call on the server, if it has not ended."""
        self._call.cancel()
