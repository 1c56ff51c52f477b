"""The Triton model of the Reference backend: one instance, one process, one scheduler.

Triton passes requests to `execute`, which queues them and returns at once. Responses go through
Triton's response senders as soon as they exist, in decoupled mode or not. Requests of both kinds
therefore share the in-flight batch.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).resolve().parent))

from reference_engine import answers, wire
from reference_engine.config import EngineConfig, ModelSettings, resolve_lookahead
from reference_engine.errors import EngineError, Kind, RequestError
from reference_engine.inputs import Call, Inputs
from reference_engine.llama import Llama
from reference_engine.outbox import Answer, Exchange, Outbox
from reference_engine.request import Listener, Request, Ticket, Update
from reference_engine.scheduler import Scheduler, SchedulerLimits
from reference_engine.simulated_rank import SimulatedRank
from reference_engine.weights import load

_BATCH = (
    "Batch size > 1 requires the tensorrt_llm backend to be using decoupled transaction policy"
)
_STREAM = "Streaming is only supported if model is deployed using decoupled mode."
_ENSEMBLE_OUTPUT = "sequence_index"
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def _write_termination_message(sentence: str) -> None:
    """Write to the termination message why a model does not load.

    The server stops some time after the failure. What it logs until then pushes the reason out of
    the few log lines that Kubernetes would use as the message.
    """
    path = Path(os.environ.get("SPECDEC_TERMINATION_LOG", "/dev/termination-log"))
    if not path.exists():
        return
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{sentence}\n")
    except OSError as error:
        pb_utils.Logger.log_warn(f"{path} cannot be written: {error}")


class _Metrics:
    """The engine's metrics, by which hooks and probes see whether it has work and runs steps."""

    def __init__(self, model: str, version: str) -> None:
        # Triton removes a metric when the last reference to its family is dropped.
        self._families = [
            pb_utils.MetricFamily(
                name="specdec_engine_requests",
                description="Requests that an engine of the Reference backend runs or queues",
                kind=pb_utils.MetricFamily.GAUGE,
            ),
            pb_utils.MetricFamily(
                name="specdec_engine_steps_total",
                description="Steps of an engine of the Reference backend",
                kind=pb_utils.MetricFamily.COUNTER,
            ),
        ]
        labels = {"model": model, "version": version}
        self._requests, self._steps = (family.Metric(labels=labels) for family in self._families)
        self._published = (0, 0)

    def publish(self, requests: int, steps: int) -> None:
        """Publish what changed: the number of requests now, and the steps since the start."""
        before, self._published = self._published, (requests, steps)
        if requests != before[0]:
            self._requests.set(requests)
        if steps != before[1]:
            self._steps.increment(steps - before[1])

    def close(self) -> None:
        """Remove the metrics while the server runs: removal at the process's end would crash."""
        del self._requests, self._steps, self._families


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine that the model's configuration names."""
        config = json.loads(args["model_config"])
        self._name = args["model_name"]
        logging.basicConfig(level=logging.WARNING, format=f"{self._name}: %(message)s")
        policy = config.get("model_transaction_policy") or {}
        self._decoupled = bool(policy.get("decoupled", False))
        self._outputs = {
            output["name"]: pb_utils.triton_string_to_numpy(output["data_type"])
            for output in config["output"]
        }
        try:
            self._settings = ModelSettings.read(config)
            self._engine = EngineConfig.read(self._settings.engine_dir)
            lookahead = resolve_lookahead(self._settings, self._engine)
            model = Llama(self._engine, load(self._settings.engine_dir / "rank0.engine"))
        except EngineError as error:
            _write_termination_message(f"{self._name}: {error}")
            raise pb_utils.TritonModelException(f"{self._name}: {error}") from None
        settings = self._settings
        self._rank = self._simulated_rank()
        limits = SchedulerLimits(
            settings.kv_tokens,
            settings.kv_reuse,
            settings.max_queue,
            settings.step_latency,
            None if self._rank is None else self._rank.serving,
            settings.normalize_log_probs,
        )
        self._scheduler = Scheduler(model, limits, lookahead)
        self._metrics = _Metrics(self._name, args["model_version"])
        self._outbox = Outbox(
            settings.cancel_period, _FINAL, pb_utils.Logger.log_warn, self._publish
        )
        # All objects so far stay for the life of the process: keep the collector from scanning
        # them again and again.
        gc.freeze()
        if settings.step_latency:
            pb_utils.Logger.log_warn(
                f"{self._name}: SIMULATION: every step lasts {settings.step_latency * 1e3:g} ms"
            )

    def execute(self, requests: list[Any]) -> None:
        """Queue requests. Never raises and never waits; other threads send the responses."""
        # All requests have arrived now, although the last one is read milliseconds later.
        arrived = time.monotonic()
        started = []
        for request in requests:
            exchange = self._open(request, arrived)
            try:
                tickets = self._read(exchange, request)
            except RequestError as error:
                self._fail(exchange, error)
            except Exception as error:  # noqa: BLE001 - raising from execute would harm the others
                pb_utils.Logger.log_error(f"{self._name}: {type(error).__name__}: {error}")
                failure = RequestError("the backend failed; see its log", Kind.INTERNAL)
                self._fail(exchange, failure)
            else:
                if tickets:
                    exchange.open_rows = len(tickets)
                    exchange.tickets = tickets
                    started.append(exchange)
        refusals = self._scheduler.submit([exchange.tickets for exchange in started])
        for exchange, refusal in zip(started, refusals, strict=True):
            if refusal is not None:
                self._fail(exchange, refusal)

    def finalize(self) -> None:
        """Stop; requests in flight end with an error."""
        self._scheduler.close()
        self._outbox.close()
        self._metrics.close()
        if self._rank is not None:
            self._rank.close()

    def _simulated_rank(self) -> SimulatedRank | None:
        """SIMULATION: the rank that the settings ask for."""
        settings = self._settings
        if settings.simulated_load is None:
            return None
        rank = SimulatedRank(self._name, settings.simulated_load)
        pb_utils.Logger.log_warn(
            f"{self._name}: SIMULATION: its rank loads for {settings.simulated_load:g} s"
        )
        if not settings.simulated_ready_early and not rank.await_load():
            raise pb_utils.TritonModelException(f"{self._name}: its simulated rank ended")
        return rank

    def _publish(self, requests: int) -> None:
        self._metrics.publish(requests, self._scheduler.steps)

    def _open(self, request: Any, arrived: float) -> Exchange:
        requested = set(request.requested_output_names())
        outputs = tuple(name for name in self._outputs if name in requested)
        # An ensemble asks for every output that it maps, and pairs responses by their order. The
        # BLS asks only for outputs that it uses, and identifies a response by its row. So it gains
        # from parallel sending.
        ordered = _ENSEMBLE_OUTPUT in requested
        exchange = Exchange(
            request.get_response_sender(),
            request.request_id(),
            outputs,
            arrived=arrived,
            ordered=ordered,
        )
        self._outbox.open(exchange)
        return exchange

    def _read(self, exchange: Exchange, request: Any) -> list[Ticket]:
        """Return a ticket for each row of the request; none for a `stop` request."""
        call = Call({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
        first = Inputs(call, 0)
        stop = call.arrays.get("stop")
        if stop is not None and bool(stop.reshape(-1)[0]):
            self._outbox.cancel(exchange.request_id)
            self._end_stop(exchange)
            return []
        if call.rows > 1 and not self._decoupled:
            raise RequestError(_BATCH)
        rows = wire.parse_call(call, self._engine)
        if rows[0].streaming and not self._decoupled:
            raise RequestError(_STREAM)
        exclude = first.flag("exclude_input_in_output", self._settings.exclude_input)
        return [
            self._scheduler.ticket(
                request, self._listener(exchange, request, row, exclude), exchange.arrived
            )
            for row, request in enumerate(rows)
        ]

    def _listener(self, exchange: Exchange, request: Request, row: int, exclude: bool) -> Listener:
        return lambda update: self._respond(exchange, request, update, row, exclude)

    def _respond(
        self, exchange: Exchange, request: Request, update: Update, row: int, exclude: bool
    ) -> None:
        exchange.open_rows -= update.finished
        last = update.finished and exchange.open_rows == 0
        if update.error is not None:
            response = self._error(update.error)
        else:
            tensors = answers.answer(request, update, row, exclude, exchange.outputs)
            response = pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(name, np.ascontiguousarray(array, self._outputs[name]))
                    for name, array in tensors.items()
                ]
            )
        self._outbox.send(Answer(exchange, row, response, last, update.due))

    def _error(self, error: RequestError) -> Any:
        code = getattr(pb_utils.TritonError, error.kind.value)
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(f"{self._name}: {error}", code)
        )

    def _fail(self, exchange: Exchange, error: RequestError) -> None:
        self._outbox.send(Answer(exchange, 0, self._error(error), True))

    def _end_stop(self, exchange: Exchange) -> None:
        """Answer a `stop` request, which has no tokens of its own."""
        empty = Update([], [], 0.0, [], None, True, 0, 0, 0, 0)
        exchange.open_rows = 1
        self._respond(exchange, Request(np.empty(0, np.int64), 1), empty, 0, True)
