"""Settings of a model, read from the engine directory and the generated `config.pbtxt`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import EngineError

_TRUE = ("true", "1")
_FALSE = ("false", "0")
_BATCHING = ("inflight_fused_batching", "inflight_batching", "v1")


@dataclass(frozen=True)
class Lookahead:
    """Lookahead decoding's shape (Fu et al. 2024): columns, n-gram length, candidates a step."""

    window: int
    ngram: int
    verification: int

    @property
    def draft_len(self) -> int:
        """Rows beside the current token in one step; what an engine calls its max_draft_len."""
        first = 0 if self.ngram == 1 else self.ngram - 2
        return first + (self.window - 1 + self.verification) * (self.ngram - 1)


@dataclass(frozen=True)
class EngineConfig:
    """The engine's `config.json`, as far as decoding needs it. Lengths are in tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    norm_epsilon: float
    rotary_base: float
    rotary_scaling: Mapping[str, Any] | None
    max_batch_size: int
    max_seq_len: int
    max_num_tokens: int
    max_draft_len: int
    lookahead: Lookahead | None

    @classmethod
    def read(cls, directory: Path) -> EngineConfig:
        """Read `config.json` of an engine directory.

        Raises:
            EngineError: the directory or its config is missing or not one this backend wrote.
        """
        path = directory / "config.json"
        if not directory.is_dir():
            raise EngineError(
                f"gpt_model_path {directory} does not exist; build the engine, "
                "or mount the volume that holds it"
            )
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls._from_json(data["pretrained_config"], data["build_config"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{path} is not an engine's config ({type(error).__name__}: {error}); "
                "build the engine again"
            ) from error

    @classmethod
    def _from_json(cls, model: Mapping[str, Any], build: Mapping[str, Any]) -> EngineConfig:
        shape = build.get("lookahead_config")
        return cls(
            vocab_size=int(model["vocab_size"]),
            hidden_size=int(model["hidden_size"]),
            intermediate_size=int(model["intermediate_size"]),
            layers=int(model["num_hidden_layers"]),
            heads=int(model["num_attention_heads"]),
            kv_heads=int(model["num_key_value_heads"]),
            head_size=int(model["head_size"]),
            norm_epsilon=float(model["norm_epsilon"]),
            rotary_base=float(model["rotary_base"]),
            rotary_scaling=model.get("rotary_scaling"),
            max_batch_size=int(build["max_batch_size"]),
            max_seq_len=int(build["max_seq_len"]),
            max_num_tokens=int(build["max_num_tokens"]),
            max_draft_len=int(build["max_draft_len"]),
            lookahead=None if shape is None else Lookahead(*(int(number) for number in shape)),
        )


class Parameters:
    """The `parameters` of a `config.pbtxt`, read the way TensorRT-LLM's backend reads them.

    A value that cannot be parsed (an empty string, an unfilled `${...}`) counts as absent.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {key: value.strip() for key, value in values.items()}

    def text(self, key: str) -> str:
        """Return the value, or the empty string where there is none."""
        value = self._values.get(key, "")
        return "" if value.startswith("${") else value

    def integer(self, key: str, default: int) -> int:
        """Return a whole number."""
        try:
            return int(self.text(key))
        except ValueError:
            return default

    def number(self, key: str, default: float) -> float:
        """Return a decimal number."""
        try:
            return float(self.text(key))
        except ValueError:
            return default

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean, spelled True, true, TRUE, 1 or False, false, FALSE, 0."""
        value = self.text(key).lower()
        if value in _TRUE:
            return True
        return False if value in _FALSE else default


@dataclass(frozen=True)
class ModelSettings:
    """How the engine of one Triton model runs.

    Attributes:
        engine_dir: where `config.json` and `rank0.engine` are.
        kv_tokens: tokens the KV cache may hold, in use and kept for reuse together; 0 means, for
            each sequence of the engine's batch, the longest sequence and 256 tokens more.
            `kv_cache_free_gpu_mem_fraction` is a share of a GPU's memory and has no meaning here.
        lookahead: the decoding shape, or None for one token a step.
        step_latency: SIMULATION: seconds that every step lasts at least; 0 simulates nothing.
        cancel_period: seconds between checks for clients that disconnected.
        normalize_log_probs: log probabilities are normalized within the top k. In a greedy answer
            the top k is the likeliest token alone. True is TensorRT-LLM's default
            (cpp/tensorrt_llm/kernels/samplingTopKKernels.cu).
        simulated_load: SIMULATION: seconds for which the engine's rank, a process of its own,
            loads; None without such a rank.
        simulated_ready_early: SIMULATION: the model is ready before its rank has loaded.
    """

    engine_dir: Path
    kv_tokens: int
    kv_reuse: bool
    exclude_input: bool
    lookahead: Lookahead | None
    step_latency: float
    cancel_period: float
    max_queue: int
    normalize_log_probs: bool = True
    simulated_load: float | None = None
    simulated_ready_early: bool = False

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> ModelSettings:
        """Read a Triton model configuration (its JSON form).

        Raises:
            EngineError: a required parameter is missing or invalid, or this backend lacks a
                feature that it names.
        """
        declared = config.get("parameters") or {}
        values = Parameters({k: str(v.get("string_value", "")) for k, v in declared.items()})
        batching = values.text("gpt_model_type")
        if batching.lower() not in _BATCHING:
            raise EngineError(f"gpt_model_type {batching!r} must be one of {', '.join(_BATCHING)}")
        if not values.text("gpt_model_path"):
            raise EngineError("gpt_model_path is empty; it must name the engine directory")
        if values.integer("max_beam_width", 1) > 1:
            raise EngineError("max_beam_width must be 1: the Reference backend has no beam search")
        policy = (config.get("dynamic_batching") or {}).get("default_queue_policy") or {}
        load = values.number("simulated_load_seconds", -1.0)
        latency = values.number("draft_step_latency_ms", values.number("step_latency_ms", 0.0))
        return cls(
            engine_dir=Path(values.text("gpt_model_path")),
            kv_tokens=values.integer("max_tokens_in_paged_kv_cache", 0),
            kv_reuse=values.flag("enable_kv_cache_reuse", False),
            exclude_input=values.flag("exclude_input_in_output", False),
            lookahead=_lookahead(values),
            step_latency=max(latency, 0.0) / 1e3,
            cancel_period=values.integer("cancellation_check_period_ms", 100) / 1e3,
            max_queue=int(policy.get("max_queue_size", 0)) or 1024,
            normalize_log_probs=values.flag("normalize_log_probs", True),
            simulated_load=None if load < 0.0 else load,
            simulated_ready_early=values.flag("simulated_ready_early", False),
        )


def _lookahead(values: Parameters) -> Lookahead | None:
    mode = values.text("decoding_mode")
    if mode in ("medusa", "redrafter", "eagle", "beam_search"):
        raise EngineError(
            f"decoding_mode {mode!r} is not in the Reference backend; use lookahead, or none"
        )
    if mode != "lookahead":
        return None
    names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
    window, ngram, verification = (values.integer(name, -1) for name in names)
    if (window, ngram, verification) == (-1, -1, -1):
        # Versions before 0.19 have no such parameters: the engine's own shape holds then.
        return Lookahead(0, 0, 0)
    if window < 1 or ngram < 1 or verification < 0:
        raise EngineError(
            f"{', '.join(names)} must be at least 1, 1 and 0, "
            f"not {window}, {ngram}, {verification}"
        )
    return Lookahead(window, ngram, verification)


def resolve_lookahead(settings: ModelSettings, engine: EngineConfig) -> Lookahead | None:
    """Return the decoding shape to use: the model's, or where it names none, the engine's.

    Raises:
        EngineError: the engine was built for fewer draft tokens than that shape needs.
    """
    shape = settings.lookahead
    if shape is not None and shape.window == 0:
        shape = engine.lookahead
        if shape is None:
            raise EngineError("decoding_mode is lookahead, but the engine was not built for it")
    if shape is not None and shape.draft_len > engine.max_draft_len:
        raise EngineError(
            f"lookahead {shape.window}, {shape.ngram}, {shape.verification} needs an engine built "
            f"for {shape.draft_len} draft tokens, this one has {engine.max_draft_len}"
        )
    return shape
