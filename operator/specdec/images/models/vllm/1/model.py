"""The Triton model that runs vLLM: AsyncLLM with the inputs and outputs of NVIDIA's vLLM backend.

`model.json` beside it has the arguments of the engine by name.
"""

from __future__ import annotations

import asyncio
import json
import locale
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import triton_python_backend_utils as pb_utils

# Triton starts this process with the locale C, with which Python reads files as ASCII.
locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
os.environ["LC_ALL"] = "C.UTF-8"
for _stream in (sys.stdout, sys.stderr):
    _stream.reconfigure(encoding="utf-8", errors="backslashreplace")

from specdec_vllm import requests  # noqa: E402
from specdec_vllm.answers import Answer, Arrays  # noqa: E402
from specdec_vllm.draft_counts import DraftCounts, Source  # noqa: E402
from specdec_vllm.engine import Engine, EngineError, one_line  # noqa: E402
from specdec_vllm.metrics import Copies, Exporter  # noqa: E402
from specdec_vllm.requests import Request, RequestError  # noqa: E402
from specdec_vllm.senders import Sender, Senders  # noqa: E402

_ADAPTERS = "multi_lora.json"
# Requests that may wait if `max_queue_size` of config.pbtxt is absent.
_QUEUE = 1000
# How vLLM finishes a request that failed.
_ERROR = "error"
_CANCELLED = "Request cancelled by client"
_DEAD = "the engine of vLLM has failed: its process ended during the call; try again later"
# Time for the errors of requests in flight to leave, before this process ends.
_LAST_SECONDS = 5.0


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Start the engine.

        Raises:
            TritonModelException: with the reason in one sentence.
        """
        self._config = json.loads(args["model_config"])
        self._streams = pb_utils.using_decoupled_model_transaction_policy(self._config)
        instance = int(args["model_instance_name"].rpartition("_")[2])
        self._set_devices(instance)
        folder = Path(pb_utils.get_model_dir())
        self._senders = Senders(pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, _log)
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._dead = False
        try:
            self._engine = Engine(folder, _log, self._end)
            self._start(folder, instance, args)
        except EngineError as error:
            raise pb_utils.TritonModelException(f"{args['model_name']}: {error}") from None

    def _start(self, folder: Path, instance: int, args: dict[str, str]) -> None:
        # They need vLLM, which the image may lack.
        from prometheus_client import REGISTRY
        from specdec_vllm import errors, sampling

        self._errors, self._sampling = errors, sampling
        drafts = self._engine.drafts is not Source.ZERO
        queue = self._config.get("dynamic_batching", {}).get("default_queue_policy", {})
        # Triton's own queue stays empty, because the engine takes each request immediately.
        self._most = self._engine.max_num_seqs + int(queue.get("max_queue_size") or _QUEUE)
        self._greedy_only = drafts and sampling.samples_wrong()
        if self._greedy_only:
            _log("this build of vLLM samples wrongly with draft tokens: only greedy requests run")
        path = folder / _ADAPTERS
        self._adapters = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        for name in self._adapters:
            self._engine.load(self._adapter(name))
        labels = {"model": args["model_name"], "version": args["model_version"]}
        # Processes of one model share Triton's registry.
        own = {"engine": str(instance)} if instance else {}
        exporter = Exporter(REGISTRY.collect, _Metrics().create, {**labels, **own})
        self._copies = Copies(
            exporter, lambda error: _log(f"no more metrics of vLLM: {one_line(error)}")
        )

    def _set_devices(self, instance: int) -> None:
        lists = self._config.get("parameters", {}).get("gpu_device_ids", {}).get("string_value")
        if lists:
            os.environ["CUDA_VISIBLE_DEVICES"] = lists.split(";")[instance]

    def execute(self, batch: list[Any]) -> None:
        """Start requests; their answers are sent by other threads."""
        self._copies.start()
        for request in batch:
            sender = Sender(request.get_response_sender(), self._senders)
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            name = request.request_id()
            try:
                if self._dead:
                    _refuse(sender, _DEAD, pb_utils.TritonError.UNAVAILABLE)
                    continue
                if requests.stops(tensors):
                    self._stop(name)
                    sender.send(None, final=True)
                    continue
                parameters = "" if "sampling_parameters" in tensors else request.parameters()
                known = self._sampling.KNOWN
                asked = requests.read(tensors, parameters, known, streams=self._streams)
                self._copies.began()
                sender.sent = self._copies.ended
                self._engine.loop.call_soon_threadsafe(self._begin, asked, name, sender)
            except Exception as error:  # noqa: BLE001 - the other requests go on
                self._fail(sender, error)

    def _begin(self, request: Request, name: str, sender: Sender) -> None:
        loop = self._engine.loop
        if len(self._tasks) >= self._most:
            text = f"{self._most} requests are in flight, and no more fit: try again later"
            _refuse(sender, text, pb_utils.TritonError.UNAVAILABLE)
            return
        task = loop.create_task(self._answer(request, sender))
        self._tasks[task] = name
        task.add_done_callback(self._tasks.pop)
        sender.cancelled = lambda: loop.call_soon_threadsafe(task.cancel)
        self._senders.watch(sender)

    def _stop(self, name: str) -> None:
        if not name:
            raise RequestError("stop is true, and the request has no id: send that of the request")

        def cancel() -> None:
            for task, own in self._tasks.items():
                if own == name:
                    task.cancel()

        self._engine.loop.call_soon_threadsafe(cancel)

    async def _answer(self, request: Request, sender: Sender) -> None:
        try:
            await self._generate(request, sender)
        except asyncio.CancelledError:
            _refuse(sender, _CANCELLED, pb_utils.TritonError.CANCELLED)
        except Exception as error:  # noqa: BLE001 - the other requests go on
            self._fail(sender, error)

    def _fail(self, sender: Sender, error: Exception) -> None:
        codes = pb_utils.TritonError
        if isinstance(error, self._errors.DEAD):
            _refuse(sender, _DEAD, codes.UNAVAILABLE)
        elif isinstance(error, self._errors.CLIENT):
            _refuse(sender, one_line(error), codes.INVALID_ARG)
        else:
            text = f"the request failed: {one_line(error)}"
            _log(text)
            _refuse(sender, text, codes.INTERNAL)

    async def _generate(self, request: Request, sender: Sender) -> None:
        engine = self._engine
        params = self._sampling.build(request, engine.max_num_seqs, engine.vocabulary)
        if self._greedy_only:
            self._sampling.check_samples(params)
        adapter = self._adapter(request.adapter)
        ids = list(request.token_ids)
        if request.text is not None:
            ids = await engine.tokens(request.text)
        room = engine.max_model_len - 1
        if len(ids) > room:
            field = "input_ids" if request.text is None else "text_input"
            raise RequestError(
                f"{field} has {len(ids)} tokens, and the model has room for a prompt of {room} "
                "(max_model_len less one token of the answer): send a shorter prompt"
            )
        answer = Answer(request, params.n, len(ids))
        counts = DraftCounts(engine.drafts, params.n)
        prompt = {"prompt_token_ids": ids}
        async for output in engine.generate(prompt, params, uuid.uuid4().hex, adapter):
            counts.note(output)
            arrays = answer.response(output.outputs)
            if output.finished:
                self._check(output.outputs, params)
                arrays |= counts.outputs()
            sender.send(_response(arrays), final=output.finished)

    @staticmethod
    def _check(completions: Any, params: Any) -> None:
        if not any(completion.finish_reason == _ERROR for completion in completions):
            return
        if params.structured_outputs is not None:
            raise RequestError(
                "structured_outputs is no form that vLLM can compile: correct it; the log of the "
                "server has the cause"
            )
        raise RuntimeError("vLLM ended it; the log of the server has the cause")

    def _adapter(self, name: str | None) -> Any:
        if name is None:
            return None
        if name not in self._adapters:
            known = ", ".join(self._adapters) or "none, because enable_lora is off"
            raise RequestError(f"lora_name is {name!r}, which is no adapter: known are {known}")
        from vllm.lora.request import LoRARequest

        number = list(self._adapters).index(name) + 1
        return LoRARequest(name, number, self._adapters[name])

    def _end(self) -> None:
        """End this process after its engine, so that Triton sees that the model is dead."""
        self._dead = True
        _log(_DEAD)
        self._engine.loop.create_task(self._last())

    async def _last(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
        self._senders.close()
        _exit(1)

    def finalize(self) -> None:
        """End the engine, and this process; Triton has waited for the requests."""
        self._engine.close()
        self._copies.close()
        self._senders.close()
        _exit(0)


class _Metrics:
    """Creates metrics of Triton; metrics with the same name share a family."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}

    def create(self, name: str, text: str, counts: bool, labels: Any) -> Any:
        kind = pb_utils.MetricFamily.COUNTER if counts else pb_utils.MetricFamily.GAUGE
        if name not in self._families:
            self._families[name] = pb_utils.MetricFamily(name=name, description=text, kind=kind)
        return self._families[name].Metric(labels=labels)


def _response(arrays: Arrays) -> Callable[[], Any]:
    def make() -> Any:
        tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        return pb_utils.InferenceResponse(tensors)

    return make


def _refuse(sender: Sender, text: str, code: int) -> None:
    error = pb_utils.TritonError(text, code)
    sender.send(lambda: pb_utils.InferenceResponse(error=error), final=True)


def _exit(status: int) -> NoReturn:
    """End this process without the end of Python.

    Python would need seconds to free the modules of vLLM, and crash when it frees the metrics.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _log(text: str) -> None:
    print(f"specdec: {text}", flush=True)
