"""Settings of the stand-in, read from `model.yaml` as the LLM API reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..reference_engine.errors import EngineError

_ARGUMENTS = frozenset(
    {
        "model",
        "backend",
        "dtype",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "max_batch_size",
        "max_input_len",
        "max_seq_len",
        "max_num_tokens",
        "enable_chunked_prefill",
        "enable_lora",
        "disable_overlap_scheduler",
        "return_perf_metrics",
        "kv_cache_config",
        "scheduler_config",
        "speculative_config",
        "triton_config",
    }
)
_COMMON = frozenset(
    {
        "decoding_type",
        "max_draft_len",
        "max_concurrency",
        "draft_len_schedule",
        "acceptance_window",
        "acceptance_length_threshold",
        "acceptance_rate_window_size",
        "acceptance_rate_threshold",
        "enable_penalty",
    }
)
_PATHS = ("speculative_model", "speculative_model_dir")
_DRAFT = frozenset(_PATHS)
_NGRAM = frozenset({"max_matching_ngram_size", "is_keep_all", "is_use_oldest", "is_public_pool"})
_SUFFIX = frozenset({"max_matching_ngram_size", "enable_global_pool", "global_pool_size"})
# The keys of each decoding type that computes here.
_TYPES: Mapping[str, frozenset[str]] = {
    "DraftTarget": _DRAFT,
    "Draft_Target": _DRAFT,
    "NGram": _NGRAM,
    "SA": _SUFFIX,
}
_TRAINED = ("Eagle", "Eagle3", "MTP", "PARD", "DFlash", "Medusa")


@dataclass(frozen=True)
class Speculation:
    """How tokens are drafted.

    Attributes:
        kind: `DraftTarget`, `NGram` or `SA`; empty without speculation.
        length: tokens of a draft.
        draft: directory of the draft's checkpoint.
        options: keys that only the kind has.
        schedule: (number of requests, draft length) in ascending order.
        max_concurrency: requests up to which tokens are drafted; 0 is no limit.
        window, threshold: requests that are averaged, and the lowest mean of accepted draft tokens
            in a step.
        rate_window, rate_threshold: steps that are averaged, and the lowest mean share of accepted
            draft tokens.
    """

    kind: str = ""
    length: int = 0
    draft: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    schedule: tuple[tuple[int, int], ...] = ()
    max_concurrency: int = 0
    window: int = 0
    threshold: float = 0.0
    rate_window: int = 0
    rate_threshold: float = 0.0

    def length_for(self, requests: int) -> int:
        """The draft length for this number of requests."""
        if self.max_concurrency and requests > self.max_concurrency:
            return 0
        steps = [length for least, length in self.schedule if requests >= least]
        return steps[-1] if steps else self.length


@dataclass(frozen=True)
class Settings:
    """One model; lengths are in tokens, `cancel_period` in seconds."""

    model: Path
    max_batch_size: int
    max_seq_len: int
    max_num_tokens: int
    decoupled: bool
    cancel_period: float
    kv_tokens: int
    kv_reuse: bool
    speculation: Speculation

    @classmethod
    def read(cls, data: object, instances: int, devices: str) -> Settings:
        """Read `model.yaml`; `instances` and `devices` (GPU lists) are those of `config.pbtxt`.

        Raises:
            EngineError: a key or value that the LLM API would refuse, or that needs a GPU.
        """
        if not isinstance(data, dict):
            raise EngineError("model.yaml is no mapping of arguments: write one, with model")
        _known(data, _ARGUMENTS, "model.yaml")
        if data.get("backend", "pytorch") != "pytorch":
            raise EngineError(f"backend is {data['backend']!r}: set it to pytorch")
        lists = [part for part in devices.split(";") if part]
        if instances > 1 and len(lists) < instances:
            raise EngineError(
                f"there are {instances} instances and gpu_device_ids has {len(lists)} lists: list "
                "GPUs for each instance, as in 0,1;2,3"
            )
        triton = _section(data, "triton_config")
        if "decoupled" not in triton or "max_batch_size" not in triton:
            raise EngineError("triton_config lacks decoupled or max_batch_size: write both")
        if triton["max_batch_size"] != 0:
            raise EngineError("triton_config.max_batch_size must be 0: a request has one prompt")
        cache = _section(data, "kv_cache_config")
        try:
            return cls(
                model=Path(data["model"]),
                max_batch_size=int(data.get("max_batch_size", 8)),
                max_seq_len=int(data.get("max_seq_len", 2048)),
                max_num_tokens=int(data.get("max_num_tokens", 8192)),
                decoupled=bool(triton["decoupled"]),
                cancel_period=int(triton.get("cancellation_check_period_ms", 100)) / 1e3,
                kv_tokens=int(cache.get("max_tokens") or 0),
                kv_reuse=bool(cache.get("enable_block_reuse", True)),
                speculation=_speculation(data),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"model.yaml has an unusable value ({error}): correct it") from error


def _speculation(data: Mapping[str, Any]) -> Speculation:
    own = _section(data, "speculative_config")
    if not own:
        return Speculation()
    kind = str(own.get("decoding_type"))
    if kind in _TRAINED:
        raise EngineError(
            f"speculative_config.decoding_type is {kind}, which computes on GPUs only: choose "
            f"{', '.join(_TYPES)} for this stand-in"
        )
    if kind not in _TYPES:
        raise EngineError(
            f"speculative_config.decoding_type is {kind}: set it to one of {', '.join(_TYPES)}"
        )
    if int(data.get("pipeline_parallel_size", 1)) > 1:
        raise EngineError(
            "speculation does not work in pipeline stages: set pipeline_parallel_size to 1"
        )
    _known(own, _COMMON | _TYPES[kind], f"speculative_config of {kind}")
    length = int(own.get("max_draft_len") or 0)
    if length < 1:
        raise EngineError("speculative_config.max_draft_len is missing: set it to 1 or more")
    paths = [own[name] for name in _PATHS if own.get(name)]
    if _TYPES[kind] is _DRAFT and not paths:
        raise EngineError("speculative_config.speculative_model is missing: name the draft")
    schedule = tuple(
        sorted((int(k), int(v)) for k, v in (own.get("draft_len_schedule") or {}).items())
    )
    if schedule and own.get("max_concurrency"):
        raise EngineError("max_concurrency and draft_len_schedule exclude each other: remove one")
    if schedule and schedule[0][1] != length:
        raise EngineError(
            f"the smallest key of draft_len_schedule has {schedule[0][1]} tokens and "
            f"max_draft_len is {length}: make them equal"
        )
    return Speculation(
        kind="DraftTarget" if _TYPES[kind] is _DRAFT else kind,
        length=length,
        draft=Path(paths[0]) if paths else None,
        options={key: own[key] for key in own if key in _TYPES[kind] - _DRAFT},
        schedule=schedule,
        max_concurrency=int(own.get("max_concurrency") or 0),
        window=int(own.get("acceptance_window") or 0),
        threshold=float(own.get("acceptance_length_threshold") or 0.0),
        rate_window=int(own.get("acceptance_rate_window_size") or 0),
        rate_threshold=float(own.get("acceptance_rate_threshold") or 0.0),
    )


def _section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise EngineError(f"{key} of model.yaml is no mapping: write key: value lines below it")
    return value


def _known(data: Mapping[str, Any], names: Collection[str], where: str) -> None:
    unknown = sorted(str(key) for key in data if key not in names)
    if unknown:
        raise EngineError(f"{where} has unknown keys {', '.join(unknown)}: remove them")
