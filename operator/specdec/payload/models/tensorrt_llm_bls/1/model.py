"""Triton model `tensorrt_llm_bls`: speculative decoding of many requests in one process.

Every prompt in flight has a worker thread that calls the engines synchronously. Threads were
measured against coroutines: coroutines over decoupled engines crash the stub at sixteen clients.
"""

from __future__ import annotations

import json
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from specdec_bls.answer import Answer
from specdec_bls.engine import TritonEngine
from specdec_bls.metrics import Metrics
from specdec_bls.reply import Reply, failure, response, stacked, tensors
from specdec_bls.request import Parsed, RequestError, Server, parse
from specdec_bls.task import Cancelled, Engine, EngineError, Task
from specdec_bls.watch import Watch, WatchedEngine
from specdec_text import TextError, Tokenizer, is_true, parameter

_INTERNAL = "tensorrt_llm_bls failed on this request: the server's log has the details"


class TritonPythonModel:
    """Never raises from `execute`: an error is an answer, and leaves other requests alone."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters and open the tokenizer; fails the load with one sentence."""
        config: dict[str, Any] = json.loads(args["model_config"])
        policy = config.get("model_transaction_policy") or {}
        self._decoupled = bool(policy.get("decoupled", False))
        self._declared = {output["name"] for output in config["output"]}
        try:
            self._tokenizer = Tokenizer(
                parameter(config, "tokenizer_dir"),
                add_special_tokens=is_true(parameter(config, "add_special_tokens", "true")),
                skip_special_tokens=is_true(parameter(config, "skip_special_tokens", "true")),
            )
        except TextError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        draft = parameter(config, "tensorrt_llm_draft_model_name")
        target = parameter(config, "tensorrt_llm_model_name", "tensorrt_llm")
        # The generator gives the engines and this model one transaction policy.
        self._target = TritonEngine(target, decoupled=self._decoupled)
        self._draft = TritonEngine(draft, decoupled=self._decoupled) if draft else None
        self._server = self._offer(config, has_draft=bool(draft))
        self._accumulate = parameter(config, "accumulate_tokens").lower() in {"true", "1", "yes"}
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self._metrics = Metrics(labels, self._server.draft_tokens)
        workers = int(parameter(config, "max_in_flight", "16"))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="answer")
        self._slots = threading.BoundedSemaphore(workers)
        self._watch = Watch()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Decoupled: start every request and return. Otherwise: one response for each."""
        if self._decoupled:
            for request in requests:
                self._start(request)
            return None
        begun = [self._begin(request) for request in requests]
        return [self._gather(rows) if isinstance(rows, list) else rows for rows in begun]

    def finalize(self) -> None:
        """Let running answers end, then stop the threads."""
        self._pool.shutdown(wait=True)
        self._watch.close()

    def _offer(self, config: dict[str, Any], *, has_draft: bool) -> Server:
        inputs = {tensor["name"] for tensor in config["input"]}
        # What the target adds besides text, log probabilities and logits.
        own = {"text_output", "batch_index", "sequence_index", "cum_log_probs"}
        own |= {"output_log_probs", "context_logits", "generation_logits"}
        return Server(
            draft_tokens=int(parameter(config, "num_draft_tokens", "0")) if has_draft else 0,
            max_draft_tokens=int(parameter(config, "max_draft_tokens", "0")),
            has_draft=has_draft,
            streams=self._decoupled,
            use_draft_logits=parameter(config, "use_draft_logits").lower() == "true",
            min_name="min_tokens" if "min_tokens" in inputs else "min_length",
            passed_on=tuple(sorted(self._declared - own)),
        )

    def _parse(self, request: Any) -> Parsed | Any:
        """Tasks of a request, or the error response that says why there are none."""
        try:
            given = {tensor.name(): tensor.as_numpy().copy() for tensor in request.inputs()}
            parsed = parse(given, self._server, self._tokenizer)
        except RequestError as error:
            return failure(str(error))
        except Exception:  # noqa: BLE001 - raising from execute would leak and blame others
            return self._internal_error()
        if parsed.fallback:
            self._metrics.fallback(parsed.fallback)
        return parsed

    def _start(self, request: Any) -> None:
        sender = request.get_response_sender()
        parsed = self._parse(request)
        if not isinstance(parsed, Parsed):
            sender.send(parsed, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        reply = Reply(sender, len(parsed.tasks), self._declared, accumulate=self._accumulate)
        for row, task in enumerate(parsed.tasks):
            # Without a free slot this waits, and later requests wait in Triton's queue.
            self._submit(self._send, reply, row, task)

    def _begin(self, request: Any) -> list[Future[Any]] | Any:
        parsed = self._parse(request)
        if not isinstance(parsed, Parsed):
            return parsed
        cancelled = request.is_cancelled
        return [
            self._submit(self._collect, cancelled, row, task)
            for row, task in enumerate(parsed.tasks)
        ]

    def _submit(self, work: Any, *arguments: Any) -> Future[Any]:
        self._slots.acquire()
        self._metrics.in_flight(1)
        return self._pool.submit(self._work, work, *arguments)

    def _work(self, work: Any, *arguments: Any) -> Any:
        try:
            return work(*arguments)
        finally:
            self._slots.release()

    def _send(self, reply: Reply, row: int, task: Task) -> None:
        error: tuple[str, int | None] | None = None
        try:
            for part in self._answer(task, reply.cancelled).parts():
                reply.part(row, task, part)
            if reply.cancelled():
                error = ("the request was cancelled", pb_utils.TritonError.CANCELLED)
        except EngineError as refused:
            error = (str(refused), None)
        except Exception:  # noqa: BLE001 - the client must get an end, whatever happened
            self._log_failure()
            error = (_INTERNAL, pb_utils.TritonError.INTERNAL)
        # Before the end is sent: who has the answer finds its counts in the metrics.
        self._account()
        if error is None:
            reply.done()
        else:
            reply.fail(*error)

    def _collect(
        self, cancelled: Cancelled, row: int, task: Task
    ) -> dict[str, NDArray[Any]] | Any:
        try:
            parts = list(self._answer(task, cancelled).parts())
            if not parts:
                return failure("the request was cancelled", pb_utils.TritonError.CANCELLED)
            return tensors(parts[0].text, row, task, parts[0], self._declared)
        except EngineError as refused:
            return failure(str(refused))
        except Exception:  # noqa: BLE001 - as above
            return self._internal_error()
        finally:
            self._account()

    def _gather(self, rows: list[Future[Any]]) -> Any:
        results = [row.result() for row in rows]
        for result in results:
            if not isinstance(result, dict):
                return result
        merged = stacked(results)
        merged["batch_index"] = np.arange(len(results), dtype=np.int32).reshape(-1, 1)
        return response(merged)

    def _answer(self, task: Task, cancelled: Cancelled) -> Answer:
        target: Engine = self._target
        if not task.stream:
            target = WatchedEngine(self._target, self._watch, cancelled)
        return Answer(task, target, self._draft, self._tokenizer, self._metrics, cancelled)

    def _account(self) -> None:
        self._metrics.in_flight(-1)
        self._metrics.flush()

    def _internal_error(self) -> Any:
        self._log_failure()
        return failure(_INTERNAL, pb_utils.TritonError.INTERNAL)

    def _log_failure(self) -> None:
        pb_utils.Logger.log_error(traceback.format_exc())
