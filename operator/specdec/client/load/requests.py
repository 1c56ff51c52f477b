"""The encoded requests of a benchmark, and the services that its arms send them to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError
from specdec.client.fronts.choice import front
from specdec.client.fronts.protocol import Front
from specdec.client.load.endpoint import Endpoint, LoadClient
from specdec.client.load.exchange import OUTPUTS
from specdec.client.load.settings import Settings
from specdec.client.request import Request
from specdec.client.transport import Model
from specdec.triton.model_names import BLS


@dataclass(frozen=True)
class Service:
    """One model of one server.

    Attributes:
        endpoint: of the server.
        model: its declaration.
        name: of the model.
        connection: for messages.
    """

    endpoint: Endpoint
    model: Model
    name: str
    connection: Connection

    @property
    def front(self) -> Front:
        """The front end of the model."""
        return front(self.model, self.name, self.connection.url)


class Requests:
    """The encoded requests of a run, created before any clock starts.

    Args:
        settings: of the run.
        served: the service with speculation.
        baseline: the service of the first arm; `served` unless the baseline has its own service.

    Raises:
        BadRequestError: a model lacks an input that a benchmark needs.
    """

    def __init__(self, settings: Settings, served: Service, baseline: Service) -> None:
        self._settings = settings
        self._served, self._baseline = served, baseline
        if baseline is served and not settings.single and not served.front.drafts_by_request:
            raise BadRequestError(
                f"model {served.name} has no input num_draft_tokens, so its speculation cannot be "
                f"disabled for the baseline; use model {BLS}, give --baseline-url of a service "
                "without speculation, or --single to measure without a baseline"
            )
        count = max(settings.requests_at(level) for level in settings.concurrency)
        self._encoded = {
            arm: [self._encode(arm, index) for index in range(count)] for arm in settings.arms
        }

    def get(self, length: int | None, index: int) -> Any:
        """An encoded request of an arm."""
        return self._encoded[length][index]

    @asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[Mapping[int | None, list[LoadClient]]]:
        """Open `count` clients for each service; all arms of one service share its clients."""
        async with AsyncExitStack() as stack:

            def opened(service: Service) -> list[LoadClient]:
                clients = [
                    service.endpoint.client(streamed=service.model.streams) for _ in range(count)
                ]
                for client in clients:
                    stack.push_async_callback(client.close)
                return clients

            speculative = opened(self._served)
            own = self._baseline is not self._served
            baseline = opened(self._baseline) if own else speculative
            yield {arm: baseline if arm == 0 else speculative for arm in self._settings.arms}

    def _of(self, length: int | None) -> Service:
        return self._baseline if length == 0 else self._served

    def _encode(self, length: int | None, index: int) -> Any:
        settings, service = self._settings, self._of(length)
        served, declared = service.front, service.model
        request = Request(
            settings.prompts[index % len(settings.prompts)],
            model=service.name,
            max_tokens=settings.output_tokens,
            # No token has the id -1, so that only the length ends the answer.
            end_id=-1 if "end_id" in declared.inputs else None,
            seed=settings.seed + index,
            # A baseline with its own service may have no input for the draft length.
            draft_tokens=length if length != 0 or served.drafts_by_request else None,
            stream=declared.streams,
            token_counts=served.counts_tokens,
        )
        outputs = [name for name in OUTPUTS if name in declared.outputs]
        return service.endpoint.message(
            service.name, served.tensors(request), outputs, streamed=declared.streams
        )
