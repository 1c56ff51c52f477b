"""The Triton model of the LLM API on CPUs: same inputs, outputs, settings and refusals.

It stands in for the program in TensorRT-LLM's images, and reads the same `model.yaml`. The
checkpoint is converted when the model loads. Every request has a thread of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "text"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import reference_build
from failure import BuildError
from helpers import get_sampling_params_from_request
from specdec_text import TextError, Tokenizer
from tensorrtllm.llm_api_engine.generation import Generator, Progress
from tensorrtllm.llm_api_engine.settings import Settings
from tensorrtllm.reference_engine.config import EngineConfig
from tensorrtllm.reference_engine.errors import EngineError, RequestError
from tensorrtllm.reference_engine.llama import Llama
from tensorrtllm.reference_engine.sampling import Sampling
from tensorrtllm.reference_engine.scheduler import Scheduler, SchedulerLimits
from tensorrtllm.reference_engine.weights import load

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_STREAM = "Streaming is only supported in decoupled mode."
_ONE_PROMPT = "The current implementation only supports text_input being a 1D tensor."
_CANCELLED = "Request cancelled by client"
_REQUEST_ID = "A request id must be provided for request cancellation"
_DEFAULT_TOKENS = 32
_THREADS = 64


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read `model.yaml`, and load target and draft."""
        config = json.loads(args["model_config"])
        name = os.environ.get("LLM_CONFIG_PATH", "model.yaml")
        try:
            path = Path(pb_utils.get_model_dir()) / name
            devices = config.get("parameters", {}).get("gpu_device_ids", {})
            settings = Settings.read(
                yaml.safe_load(path.read_text(encoding="utf-8")),
                int(config.get("instance_group", [{}])[0].get("count", 1)),
                str(devices.get("string_value", "")),
            )
            _check_policy(config, settings)
            self._tokenizer = Tokenizer(str(settings.model))
            self._schedulers = self._load(settings)
        except (EngineError, BuildError, TextError, OSError, yaml.YAMLError) as error:
            raise pb_utils.TritonModelException(f"{args['model_name']}: {error}") from None
        target, draft = (*self._schedulers, None)[:2]
        self._settings = settings
        self._generator = Generator(target, draft, settings.speculation)
        self._threads = ThreadPoolExecutor(_THREADS)
        self._stops: dict[str, threading.Event] = {}

    def execute(self, requests: list[Any]) -> None:
        """Start requests; other threads answer them."""
        for request in requests:
            self._threads.submit(self._serve, request, request.get_response_sender())

    def finalize(self) -> None:
        """Finish requests in flight, then stop."""
        self._threads.shutdown()
        for scheduler in self._schedulers:
            scheduler.close()

    def _load(self, settings: Settings) -> tuple[Scheduler, ...]:
        """Convert the checkpoints into a temporary folder, and load them."""
        self._folder = tempfile.TemporaryDirectory(prefix="llm-api-")
        draft = settings.speculation.draft
        checkpoints = [settings.model, *([draft] if draft else [])]
        return tuple(
            _scheduler(checkpoint, Path(self._folder.name) / str(number), settings)
            for number, checkpoint in enumerate(checkpoints)
        )

    def _serve(self, request: Any, sender: Any) -> None:
        values = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        name, stop = request.request_id(), threading.Event()
        try:
            if _flag(values, "stop"):
                self._stop(name, sender)
                return
            if name:
                self._stops[name] = stop
            stops = self._stop_texts(get_sampling_params_from_request(request)["stop"])
            self._generate(values, stops, sender, lambda: stop.is_set() or sender.is_cancelled())
        except Exception as error:  # noqa: BLE001 - the model goes on, as the real one does
            cancelled = stop.is_set() or getattr(error, "kind", "") == "CANCELLED"
            sender.send(_failure(error, cancelled=cancelled), flags=_FINAL)
        finally:
            if self._stops.get(name) is stop:
                del self._stops[name]

    def _stop(self, name: str, sender: Any) -> None:
        if not name:
            sender.send(_error(_REQUEST_ID, pb_utils.TritonError.INTERNAL), flags=_FINAL)
            return
        if name in self._stops:
            self._stops[name].set()
        sender.send(_error(_CANCELLED, pb_utils.TritonError.CANCELLED), flags=_FINAL)

    def _stop_texts(self, given: Any) -> list[str]:
        """The stop texts, which the LLM API encodes: its tokenizer refuses bytes."""
        texts = [] if given is None else list(given)
        for text in texts:
            self._tokenizer.encode(text)
        return texts

    def _generate(
        self, values: dict[str, Any], stops: list[str], sender: Any, cancelled: Any
    ) -> None:
        arrived = time.monotonic_ns()
        streaming = _flag(values, "streaming")
        if streaming and not self._settings.decoupled:
            raise RequestError(_STREAM)
        prompt, max_new, rules = self._request(values)
        answer = Answer(self._tokenizer, stops, arrived)
        for progress in self._generator.run(prompt, max_new, rules, cancelled):
            answer.extend(progress, last=len(progress.tokens) >= max_new)
            if streaming:
                flags = _FINAL if answer.reason else 0
                sender.send(answer.response(values, progress), flags=flags)
            if answer.reason:
                break
        if not streaming:
            sender.send(answer.response(values, progress), flags=_FINAL)

    def _request(self, values: dict[str, Any]) -> tuple[list[int], int, Sampling]:
        text = values["text_input"]
        if text.ndim > 1:
            raise RequestError(_ONE_PROMPT)
        prompt = self._tokenizer.encode(_text(text[0]))
        if not prompt:
            raise RequestError("text_input is empty: send at least one token")

        def number(name: str, default: float) -> float:
            tensor = values.get(f"sampling_param_{name}")
            if tensor is not None and tensor.size != 1:
                raise RequestError(f"Expected a scalar tensor for tensor sampling_param_{name}")
            return default if tensor is None else tensor.reshape(-1)[0].item()

        if number("best_of", 1) != 1:
            raise RequestError("sampling_param_best_of must be 1: speculation has one sequence")
        max_new = int(number("max_tokens", _DEFAULT_TOKENS))
        if max_new < 1:
            raise RequestError(f"sampling_param_max_tokens is {max_new}: set it to 1 or more")
        room = self._settings.max_seq_len - len(prompt)
        if room < 1:
            raise RequestError(
                f"text_input has {len(prompt)} tokens and max_seq_len is "
                f"{self._settings.max_seq_len}: send a shorter prompt"
            )
        rules = Sampling(
            top_k=int(number("top_k", 0)),
            top_p=number("top_p", 0.0),
            temperature=number("temperature", 1.0),
            presence_penalty=number("presence_penalty", 0.0),
            frequency_penalty=number("frequency_penalty", 0.0),
            seed=int(number("seed", 0)),
            end_id=self._tokenizer.end_id,
        )
        return prompt, min(max_new, room), rules


class Answer:
    """The text of one answer, cut at a stop text, and why it ended."""

    def __init__(self, tokenizer: Tokenizer, stops: list[str], arrived: int) -> None:
        self._tokenizer = tokenizer
        self._stops = [stop for stop in stops if stop]
        self._times = {"arrival": arrived, "first_scheduled": arrived, "first_token": 0}
        self._last = 0
        self.text = ""
        self.reason = ""
        self.stop = ""

    def extend(self, progress: Progress, *, last: bool) -> None:
        """Take the tokens so far."""
        self._last = time.monotonic_ns()
        self._times["first_token"] = self._times["first_token"] or self._last
        self.text = self._tokenizer.decode(progress.tokens)
        cuts = [(self.text.index(stop), stop) for stop in self._stops if stop in self.text]
        if cuts:
            at, self.stop = min(cuts)
            self.text, self.reason = self.text[:at], "stop"
        elif progress.ended:
            self.reason = "stop"
        elif last:
            self.reason = "length"

    def response(self, values: dict[str, Any], progress: Progress) -> Any:
        """The whole text so far, as the LLM API sends it, and what else was asked for."""
        tensors = [_strings("text_output", self.text)]
        if _flag(values, "return_finish_reason"):
            tensors.append(_strings("finish_reason", self.reason or "None"))
        if _flag(values, "return_stop_reason"):
            tensors.append(_strings("stop_reason", self.stop or "None"))
        if _flag(values, "return_cumulative_logprob"):
            total = sum(update.cum_log_prob for update in progress.updates)
            tensors.append(pb_utils.Tensor("cumulative_logprob", np.array([total], np.float32)))
        if _flag(values, "sampling_param_return_perf_metrics") and self.reason:
            tensors += self._metrics(progress)
        return pb_utils.InferenceResponse(tensors)

    def _metrics(self, progress: Progress) -> list[Any]:
        uses = [update.usage for update in progress.updates]
        reused = sum(use.reused_blocks for use in uses)
        new = sum(use.new_blocks for use in uses)
        rate = progress.accepted / progress.drafted if progress.drafted else 0.0
        integers = {
            "kv_cache_reused_block": reused,
            "kv_cache_missed_block": new,
            "kv_cache_alloc_new_blocks": new,
            "kv_cache_alloc_total_blocks": new,
            "total_accepted_draft_tokens": progress.accepted,
            "total_draft_tokens": progress.drafted,
        }
        hits = reused / (reused + new) if reused + new else 0.0
        times = {**self._times, "last_token": self._last}
        return [
            *(pb_utils.Tensor(name, np.array([n], np.int32)) for name, n in integers.items()),
            pb_utils.Tensor("kv_cache_hit_rate", np.array([hits], np.float32)),
            pb_utils.Tensor("acceptance_rate", np.array([rate], np.float32)),
            *(
                pb_utils.Tensor(f"{name}_time_ns", np.array([moment], np.int64))
                for name, moment in times.items()
            ),
        ]


def _check_policy(config: dict[str, Any], settings: Settings) -> None:
    """Check that both files agree: Triton reads `config.pbtxt`, and the model `model.yaml`."""
    policy = config.get("model_transaction_policy") or {}
    if bool(policy.get("decoupled")) != settings.decoupled:
        raise EngineError(
            "config.pbtxt and triton_config of model.yaml differ in decoupled: write the same "
            "value in both"
        )


def _scheduler(checkpoint: Path, output: Path, settings: Settings) -> Scheduler:
    limits = {
        "maxBatchSize": settings.max_batch_size,
        "maxInputLen": settings.max_seq_len,
        # The engine keeps its draft length free behind the longest sequence (`room.py`).
        "maxSeqLen": settings.max_seq_len + settings.speculation.length,
        "maxNumTokens": settings.max_num_tokens,
    }
    reference_build.build(
        {
            "backend": "Reference",
            "checkpoint": str(checkpoint),
            "output": str(output),
            "key": output.name,
            "limits": limits,
            "maxDraftTokens": settings.speculation.length,
            "speculativeDecodingMode": "draft_tokens_external",
        }
    )
    model = Llama(EngineConfig.read(output), load(output / "rank0.engine"))
    return Scheduler(model, SchedulerLimits(settings.kv_tokens, settings.kv_reuse))


def _flag(values: dict[str, Any], name: str) -> bool:
    tensor = values.get(name)
    return tensor is not None and bool(tensor.reshape(-1)[0])


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _strings(name: str, value: str) -> Any:
    return pb_utils.Tensor(name, np.array([value.encode()], np.object_))


def _failure(error: Exception, *, cancelled: bool) -> Any:
    if cancelled:
        return _error(_CANCELLED, pb_utils.TritonError.CANCELLED)
    return _error(f"Error generating request: {error}", pb_utils.TritonError.INTERNAL)


def _error(text: str, code: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
