"""Answer one admitted request: read the server's pieces and send the response."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from specdec.images.openai.answer import DONE, Choice, Head, LogProbs, Pieces, whole
from specdec.images.openai.assembly import Assembly, Piece
from specdec.images.openai.errors import CONTEXT_LENGTH, ApiError
from specdec.images.openai.intake import Leave
from specdec.images.openai.metrics import Metrics
from specdec.images.openai.parsers.split import Content, Event
from specdec.images.openai.replies import send_whole
from specdec.images.openai.request import Served, Task
from specdec.images.openai.settings import EndpointSettings
from specdec.images.openai.triton import ModelServer

_DISCONNECTED = 499
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # A proxy that buffers would hold the pieces back.
    (b"x-accel-buffering", b"no"),
]


class Owner(Protocol):
    """What an exchange needs of the endpoint."""

    settings: EndpointSettings
    backend: ModelServer
    metrics: Metrics


class Exchange(Response):
    """The response to one request. It ends when the client disconnects, or at the time limit."""

    def __init__(
        self,
        owner: Owner,
        tasks: Sequence[Task],
        served: Served,
        leave: Leave,
    ) -> None:
        self.background = None
        task = tasks[0]
        self._owner, self._task, self._served = owner, task, served
        # Only a whole answer has several.
        self._tasks = tasks
        self._leave = leave
        self._head = Head(owner.settings.served_name, task.chat)
        self._assembly = Assembly(task, owner.settings, served.max_seq_len)
        self._log_probs = LogProbs(chat=task.chat) if task.log_probs else None
        self._is_plain = self._assembly.plain and self._log_probs is None
        self._started = False
        self._began = time.perf_counter()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 200
        try:
            status = await self._run(receive, send)
        except ApiError as error:
            status = error.status
            raise
        except BaseException:
            status = 500
            raise
        finally:
            self._leave(status)
            self._owner.metrics.duration.observe(time.perf_counter() - self._began)

    async def _run(self, receive: Receive, send: Send) -> int:
        """Answer until the client disconnects; return the HTTP status for the metrics."""
        seconds = self._owner.settings.limits.seconds
        work = asyncio.ensure_future(self._answer(send))
        disconnect = asyncio.ensure_future(_disconnected(receive))
        try:
            done, _ = await asyncio.wait(
                {work, disconnect}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if work in done:
                await work
                return 200
        finally:
            await _cancelled(work, disconnect)
        if done:
            return _DISCONNECTED
        error = ApiError(
            f"no complete answer within {seconds:g} s; request fewer tokens",
            status=504,
            kind="server_error",
            code="timeout",
        )
        await self._failed(error, send)
        return error.status

    async def _answer(self, send: Send) -> None:
        try:
            if self._task.stream:
                await self._stream(send)
            else:
                await self._whole(send)
        except ApiError as error:
            if error.code == CONTEXT_LENGTH:
                error.param = "messages" if self._task.chat else "prompt"
            await self._failed(error, send)

    @asynccontextmanager
    async def _pieces(
        self, task: Task, assembly: Assembly
    ) -> AsyncIterator[AsyncGenerator[Piece, None]]:
        """The pieces of an answer; at the end, the number of its prompt's tokens is known.

        Some servers report that number separately.
        """
        backend, served = self._owner.backend, self._served
        count: asyncio.Future[int | None] | None = None
        if not served.counts_tokens and (task.include_usage or not task.stream):
            count = asyncio.ensure_future(backend.prompt_tokens(task.request.prompt))
        try:
            source = backend.pieces(task.request, served, histogram=task.include_metrics)
            async with aclosing(source) as pieces:
                yield pieces
            if count is not None and (tokens := await count) is not None:
                assembly.totals.prompt_tokens = tokens
        finally:
            if count is not None:
                await _cancelled(count)

    async def _whole(self, send: Send) -> None:
        """Send one body when the answers are complete."""
        reading = [asyncio.ensure_future(self._choice(task)) for task in self._tasks]
        try:
            choices = await asyncio.gather(*reading)
        finally:
            await _cancelled(*reading)
        body = whole(self._head, choices, with_metrics=self._task.include_metrics)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send_whole(body, send)

    async def _choice(self, task: Task) -> Choice:
        assembly = Assembly(task, self._owner.settings, self._served.max_seq_len)
        log_probs = LogProbs(chat=task.chat) if task.log_probs else None
        events: list[Event] = [Content(task.echo)]
        async with self._pieces(task, assembly) as pieces:
            async for piece in pieces:
                if log_probs is not None and not assembly.stopped:
                    log_probs.keep(piece.text, piece.log_probs)
                assembly.count(piece)
                events += assembly.add(piece.text)
                if assembly.stopped and not self._served.ends_at_stop:
                    break
        events += assembly.end()
        return Choice(
            events, assembly.reason(), assembly.totals, log_probs.all() if log_probs else None
        )

    async def _stream(self, send: Send) -> None:
        """Send each piece when it arrives. An error before the first sets the HTTP status."""
        task, assembly = self._task, self._assembly
        encoder = Pieces(
            self._head,
            null_usage=task.include_usage,
            running=assembly.totals if task.running_usage else None,
        )
        async with self._pieces(task, assembly) as pieces:
            async for piece in pieces:
                text = self._encoded(encoder, piece)
                if not self._started:
                    await self._start(send)
                    text = self._first(encoder) + text
                if text:
                    await send(_part(text))
                if assembly.stopped and not self._served.ends_at_stop:
                    # An ensemble compares token ids, and may go on behind a stop string.
                    break
        text = "" if self._started else self._first(encoder)
        if not self._started:
            await self._start(send)
        text += "".join(encoder.event(event) for event in assembly.end())
        metrics = assembly.totals.metrics() if task.include_metrics else None
        text += encoder.last(assembly.reason(), None if task.include_usage else metrics)
        if task.include_usage:
            text += encoder.usage(assembly.totals.usage(), metrics)
        body = text.encode() + DONE
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _first(self, encoder: Pieces) -> str:
        echo = self._task.echo
        return encoder.first() + (encoder.text(echo) if echo else "")

    async def _start(self, send: Send) -> None:
        self._started = True
        self._owner.metrics.first_piece.observe(time.perf_counter() - self._began)
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})

    async def _failed(self, error: ApiError, send: Send) -> None:
        """Raise an error if no response has started; otherwise end the stream with it."""
        if not self._started:
            raise error
        if self._task.stream:
            body = error.event()
            await send({"type": "http.response.body", "body": body, "more_body": False})

    def _encoded(self, encoder: Pieces, piece: Piece) -> str:
        """The events of a piece; the first event has the piece's log probabilities."""
        if self._is_plain:
            self._assembly.count(piece)
            return encoder.text(piece.text) if piece.text else ""
        values = None
        if self._log_probs is not None and not self._assembly.stopped:
            values = self._log_probs.add(piece.text, piece.log_probs)
        self._assembly.count(piece)
        events: list[Event | None] = [*self._assembly.add(piece.text)]
        if values and not events:
            events = [None]
        text = ""
        for event in events:
            text += encoder.event(event, values)
            values = None
        return text


def _part(text: str) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


async def _disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel what still runs, and wait for its end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
