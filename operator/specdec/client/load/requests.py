"""The encoded requests of a benchmark, and the services that its arms send them to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError
from specdec.client.kinds import text_model
from specdec.client.load.endpoint import Endpoint, LoadClient
from specdec.client.load.settings import Settings
from specdec.servers.encoding import Declaration, Reader
from specdec.servers.encoding import Requests as Encoding
from specdec.servers.openai_api import OPENAI
from specdec.servers.request import Request
from specdec.triton.model_names import BLS


@dataclass(frozen=True)
class Service:
    """One model of one server.

    Attributes:
        endpoint: of the server.
        model: its declaration.
        requests: how it is asked.
    """

    endpoint: Endpoint
    model: Declaration
    requests: Encoding

    @property
    def name(self) -> str:
        """The server's name for the model."""
        return self.model.name


async def service(
    endpoint: Endpoint, name: str, connection: Connection, requests: Encoding | None
) -> Service:
    """One model of a server.

    Args:
        endpoint: of the server.
        name: of the model; empty for the only one.
        connection: to the server.
        requests: how it is asked; None finds that.

    Raises:
        BadRequestError: the model takes no text.
    """
    model = await endpoint.model(name)
    if requests is None:
        requests = OPENAI if connection.path else text_model(model, connection.url)
    return Service(endpoint, model, requests)


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
        if baseline is served and not settings.single and not _drafts_by_request(served):
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

    def reader(self, length: int | None) -> Reader:
        """A reader for the answer to a request of an arm."""
        return self._of(length).requests.reader(self._request(length, 0))

    def _encode(self, length: int | None, index: int) -> Any:
        service, request = self._of(length), self._request(length, index)
        call = service.requests.encode(request, service.model)
        return service.endpoint.message(call, streamed=service.model.streams)

    def _request(self, length: int | None, index: int) -> Request:
        settings, service = self._settings, self._of(length)
        declared = service.model
        return Request(
            settings.prompts[index % len(settings.prompts)],
            model=service.name,
            max_tokens=settings.output_tokens,
            # No token has the id -1, so that only the length ends the answer.
            end_id=-1 if "end_id" in declared.inputs else None,
            seed=settings.seed + index,
            # A baseline with its own service may have no input for the draft length.
            draft_tokens=length if length != 0 or _drafts_by_request(service) else None,
            stream=declared.streams,
            token_counts=service.requests.counts_tokens(declared),
        )


def _drafts_by_request(service: Service) -> bool:
    return service.requests.takes_draft_length(service.model)
