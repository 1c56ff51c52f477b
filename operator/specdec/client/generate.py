"""Ask a served model over gRPC, streaming or not, and read what speculation did for the answer."""

import queue
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from specdec.client.errors import BadRequestError, RefusedError, UnreachableError
from specdec.client.request import Request

_CONNECT_SECONDS = 5.0
_UNREACHABLE = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")


@dataclass(frozen=True)
class Counts:
    """Draft tokens offered to the target for one answer, and those it accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Chunk:
    """A piece of the answer's text; `counts` are those so far, where the server tells them."""

    text: str
    counts: Counts | None = None


@dataclass(frozen=True)
class Answer:
    """A whole answer.

    Attributes:
        text: what was generated.
        chunks: how many pieces carried text.
        counts: None when the server does not tell.
        first_chunk_seconds, seconds: since the request was sent.
    """

    text: str = ""
    chunks: int = 0
    counts: Counts | None = None
    first_chunk_seconds: float = 0.0
    seconds: float = 0.0

    def add(self, chunk: Chunk, elapsed: float) -> "Answer":
        """The answer with one more chunk, which arrived `elapsed` seconds after the request."""
        return replace(
            self,
            text=self.text + chunk.text,
            chunks=self.chunks + bool(chunk.text),
            counts=chunk.counts or self.counts,
            first_chunk_seconds=self.first_chunk_seconds or elapsed,
            seconds=elapsed,
        )


class Client:
    """A connection to one server; use it as a context manager.

    Args:
        url: `host:port` of Triton's gRPC endpoint.
        timeout: seconds one answer may take.

    Every method raises `UnreachableError` when nobody answers, `RefusedError` with the server's
    own words when it refuses.
    """

    def __init__(self, url: str, timeout: float = 120.0) -> None:
        host, _, port = url.rpartition(":")
        if not host or not port.isdigit() or "/" in host:
            raise BadRequestError(f"url is {url!r}; give host:port, for example localhost:8001")
        self.url = url
        self.timeout = timeout
        self._triton = triton.InferenceServerClient(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._triton.close()

    def ask(self, request: Request) -> Answer:
        """The whole answer at once."""
        started = time.monotonic()
        answer = Answer()
        for chunk in self.generate(request):
            answer = answer.add(chunk, time.monotonic() - started)
        return answer

    def generate(self, request: Request) -> Iterator[Chunk]:
        """The answer's chunks as they arrive; abandoning the iterator cancels the request."""
        inputs, outputs = self._prepare(request)
        replies: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._triton.start_stream(lambda result, error: replies.put((result, error)))
        # What has ended is not cancelled: Triton 2.51 then keeps the request now and then, and
        # with it the model, so that the server's next stop lasts until its exit timeout.
        ended = False
        try:
            self._triton.async_stream_infer(
                request.model,
                inputs,
                outputs=outputs,
                enable_empty_final_response=True,
            )
            yield from self._replies(replies)
            ended = True
        except RefusedError:
            ended = True
            raise
        except InferenceServerException as error:
            raise self._spoken(error) from error
        finally:
            self._triton.stop_stream(cancel_requests=not ended)

    def _prepare(self, request: Request) -> tuple[list[Any], list[Any]]:
        config = self._model_config(request.model)
        # An ensemble has no policy of its own: it streams when its steps do.
        streams = config.model_transaction_policy.decoupled or config.HasField(
            "ensemble_scheduling"
        )
        if request.stream and not streams:
            raise BadRequestError(
                f"model {request.model} at {self.url} does not stream; "
                "ask without streaming, or set spec.serving.streaming to true"
            )
        inputs = []
        for name, array in request.tensors({i.name for i in config.input}).items():
            tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        wanted = ("text_output", "total_draft_tokens", "total_accepted_draft_tokens")
        declared = {output.name for output in config.output}
        return inputs, [triton.InferRequestedOutput(n) for n in wanted if n in declared]

    def _model_config(self, model: str) -> Any:
        try:
            if not self._triton.is_server_live(client_timeout=_CONNECT_SECONDS):
                raise UnreachableError(f"the server at {self.url} is not live; ask again later")
            return self._triton.get_model_config(model, client_timeout=_CONNECT_SECONDS).config
        except InferenceServerException as error:
            raise self._spoken(error) from error

    def _replies(
        self, replies: "queue.SimpleQueue[tuple[Any, Exception | None]]"
    ) -> Iterator[Chunk]:
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                result, error = replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise UnreachableError(
                    f"no whole answer from {self.url} within {self.timeout:g} s; "
                    "ask for fewer tokens or give more time"
                ) from None
            if error is not None:
                raise self._spoken(error)
            text = result.as_numpy("text_output")
            if text is not None and text.size:
                yield Chunk(text.reshape(-1)[0].decode(errors="replace"), _counts(result))
            if result.get_response().parameters["triton_final_response"].bool_param:
                return

    def _spoken(self, error: Exception) -> RefusedError | UnreachableError:
        words = error.message() if isinstance(error, InferenceServerException) else str(error)
        status = error.status() if isinstance(error, InferenceServerException) else None
        if status in _UNREACHABLE:
            return UnreachableError(
                f"nobody answers at {self.url}; check the address, "
                "and that the server is ready and port 8001 is forwarded"
            )
        return RefusedError(f"the server at {self.url} refused: {words}")


def _counts(result: Any) -> Counts | None:
    drafted = result.as_numpy("total_draft_tokens")
    accepted = result.as_numpy("total_accepted_draft_tokens")
    if drafted is None or accepted is None or not drafted.size or not accepted.size:
        return None
    return Counts(int(drafted.reshape(-1)[0]), int(accepted.reshape(-1)[0]))
