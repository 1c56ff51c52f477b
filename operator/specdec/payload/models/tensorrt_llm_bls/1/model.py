"""Triton model `tensorrt_llm_bls`: speculative decoding of many requests in one process.

Every prompt in flight has a worker thread that calls the engines synchronously. Threads were
measured against coroutines: coroutines over decoupled engines crash the stub at sixteen clients.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import triton_python_backend_utils as pb_utils
from specdec_bls.ahead import DraftAhead
from specdec_bls.answer import Answer, Part
from specdec_bls.engine import TritonEngine
from specdec_bls.guard import Guard, GuardedEngine, LostError, Turn
from specdec_bls.metrics import Metrics
from specdec_bls.policy import AdaptiveLength, FixedLength, Lengths
from specdec_bls.reply import FINAL, Reply, StreamReply, WholeReply, failure
from specdec_bls.request import Parsed, RequestError, Server, parse
from specdec_bls.task import Engine, EngineError, EngineGoneError, Task
from specdec_bls.watch import Watch, WatchedEngine
from specdec_text import TextError, Tokenizer, is_true, parameter

_INTERNAL = "tensorrt_llm_bls failed on this request: the server's log has the details"
_CANCELLED = "the request was cancelled"
# Threads for each answer in flight. They start when they are needed; one that waits for a process
# that died never comes back, and another answers in its place.
_SPARE = 8


@dataclass(frozen=True)
class _Prompt:
    """One prompt in flight."""

    reply: Reply
    row: int
    task: Task
    answer: Answer
    turn: Turn


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
        self._policy = self._adaptive(config)
        workers = int(parameter(config, "max_in_flight", "16"))
        ahead = int(parameter(config, "draft_ahead", "0"))
        self._ahead = DraftAhead(ahead, self._draft) if ahead and self._draft else None
        self._pool = ThreadPoolExecutor(_SPARE * workers, thread_name_prefix="answer")
        self._slots = threading.BoundedSemaphore(workers)
        self._watch = Watch()
        self._guard = Guard()

    def execute(self, requests: list[Any]) -> None:
        """Start every request and return; the answers leave from the worker threads.

        That holds for a model that is not decoupled too: its one response comes through the
        response sender, so that one process serves many unary requests at once.
        """
        for request in requests:
            self._start(request)

    def finalize(self) -> None:
        """Let running answers end, then stop the threads."""
        self._pool.shutdown(wait=not self._guard.lost)
        if self._ahead is not None:
            self._ahead.close()
        self._watch.close()
        self._guard.close()

    def _offer(self, config: dict[str, Any], *, has_draft: bool) -> Server:
        inputs = {tensor["name"] for tensor in config["input"]}
        # What the target adds besides text, log probabilities, logits and counts of tokens.
        own = {"text_output", "batch_index", "sequence_index", "cum_log_probs"}
        own |= {"output_log_probs", "context_logits", "generation_logits"}
        own |= {"num_input_tokens", "num_output_tokens"}
        return Server(
            draft_tokens=int(parameter(config, "num_draft_tokens", "0")) if has_draft else 0,
            max_draft_tokens=int(parameter(config, "max_draft_tokens", "0")),
            max_seq_len=int(parameter(config, "max_seq_len", "0")),
            has_draft=has_draft,
            streams=self._decoupled,
            use_draft_logits=parameter(config, "use_draft_logits").lower() == "true",
            min_name="min_tokens" if "min_tokens" in inputs else "min_length",
            passed_on=tuple(sorted(self._declared - own)),
        )

    def _adaptive(self, config: dict[str, Any]) -> AdaptiveLength | None:
        if parameter(config, "draft_length_policy", "Fixed") != "Adaptive":
            return None
        if not self._server.draft_tokens:
            return None
        most = int(parameter(config, "max_draft_length", str(self._server.max_draft_tokens)))
        least = int(parameter(config, "min_draft_length", "0"))
        return AdaptiveLength(least, most, self._server.draft_tokens, self._metrics.draft_length)

    def _parse(self, request: Any) -> Parsed | Any:
        """Tasks of a request, or the error response that says why there are none."""
        try:
            given = {tensor.name(): tensor.as_numpy().copy() for tensor in request.inputs()}
            parsed = parse(given, self._server, self._tokenizer)
        except RequestError as error:
            return failure(str(error))
        except Exception:  # noqa: BLE001 - raising from execute would leak and blame others
            self._log_failure()
            return failure(_INTERNAL, pb_utils.TritonError.INTERNAL)
        if parsed.fallback:
            self._metrics.fallback(parsed.fallback)
        return parsed

    def _start(self, request: Any) -> None:
        sender = request.get_response_sender()
        parsed = self._parse(request)
        if not isinstance(parsed, Parsed):
            sender.send(parsed, flags=FINAL)
            return
        reply = self._reply(request, sender, len(parsed.tasks))
        self._watch.add(reply)
        for row, task in enumerate(parsed.tasks):
            # Without a free slot this waits, and later requests wait in Triton's queue.
            self._slots.acquire()
            self._metrics.in_flight(1)
            self._pool.submit(self._work, reply, row, task)

    def _reply(self, request: Any, sender: Any, rows: int) -> Reply:
        # Triton 2.51 throws away what nobody asked for without Python's lock, which corrupts the
        # heap of this process (ADR 0022): such tensors are not made.
        outputs = self._declared & set(request.requested_output_names())
        if self._decoupled:
            return StreamReply(sender, rows, outputs, accumulate=self._accumulate)
        return WholeReply(sender, rows, outputs)

    def _work(self, reply: Reply, row: int, task: Task) -> None:
        try:
            # Who drains the server reads from the metrics whether an answer is still under way.
            self._metrics.flush()
            prompt = self._prompt(reply, row, task)
            self._guard.add(prompt.turn, [one.name for one in (self._target, self._draft) if one])
        except Exception:  # noqa: BLE001 - the client must get an end, whatever happened
            self._log_failure()
            self._close(reply, (_INTERNAL, pb_utils.TritonError.INTERNAL))
            return
        self._end(prompt, prompt.answer.parts)

    def _prompt(self, reply: Reply, row: int, task: Task) -> _Prompt:
        def take_over(engine: str) -> None:
            self._pool.submit(self._end, prompt, lambda: self._rest(prompt, engine))

        turn = Turn(take_over)
        prompt = _Prompt(reply, row, task, self._answer(task, reply, turn), turn)
        return prompt

    def _rest(self, prompt: _Prompt, engine: str) -> Iterator[Part]:
        """What is missing of an answer that waited for an engine whose process died."""
        words = f"{engine}: its process ended during the call"
        if self._draft is not None and engine == self._draft.name:
            return prompt.answer.without_draft(words)
        prompt.answer.abandon()
        raise EngineGoneError(f"{words}: ask again when the server has started again")

    def _end(self, prompt: _Prompt, parts: Callable[[], Iterator[Part]]) -> None:
        """Send parts and the end, unless another thread has taken the answer over."""
        try:
            error = self._run(prompt, parts)
        except LostError:
            return
        self._guard.remove(prompt.turn)
        prompt.turn.close()
        self._close(prompt.reply, error)

    def _close(self, reply: Reply, error: tuple[str, int] | None) -> None:
        try:
            # Before the end is sent: who has the answer finds its counts in the metrics.
            self._metrics.in_flight(-1)
            self._metrics.flush()
            if error is None:
                reply.done()
            else:
                reply.fail(*error)
        except Exception:  # noqa: BLE001 - the client may be gone; the thread serves others
            self._log_failure()
        finally:
            self._slots.release()

    def _run(self, prompt: _Prompt, parts: Callable[[], Iterator[Part]]) -> tuple[str, int] | None:
        """Answer one prompt; the error's words and code if it cannot be."""
        reply = prompt.reply
        try:
            for part in parts():
                reply.part(prompt.row, prompt.task, part)
        except EngineGoneError as gone:
            return str(gone), pb_utils.TritonError.UNAVAILABLE
        except EngineError as refused:
            if not reply.cancelled():
                return str(refused), pb_utils.TritonError.INVALID_ARG
        except Exception:  # noqa: BLE001 - the client must get an end, whatever happened
            self._log_failure()
            return _INTERNAL, pb_utils.TritonError.INTERNAL
        return (_CANCELLED, pb_utils.TritonError.CANCELLED) if reply.cancelled() else None

    def _answer(self, task: Task, reply: Reply, turn: Turn) -> Answer:
        watched = WatchedEngine(self._target, self._watch, reply)
        target = GuardedEngine(self._target.name, watched, turn)
        draft: Engine | None = None
        if self._draft is not None:
            draft = GuardedEngine(self._draft.name, self._draft, turn)
        lengths: Lengths = FixedLength(task.draft_tokens)
        if self._policy is not None and task.adaptive:
            lengths = self._policy.answer()
        return Answer(
            task,
            target,
            draft,
            self._tokenizer,
            lengths,
            self._metrics,
            reply.cancelled,
            self._ahead,
        )

    def _log_failure(self) -> None:
        pb_utils.Logger.log_error(traceback.format_exc())
