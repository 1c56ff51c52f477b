"""The configuration of a Reference engine that is as small as possible."""

from typing import Any

from specdec.images.backend.tensorrtllm.reference_engine.config import EngineConfig

_TINY: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 4,
    "intermediate_size": 4,
    "layers": 1,
    "heads": 1,
    "kv_heads": 1,
    "head_size": 2,
    "norm_epsilon": 1e-5,
    "rotary_base": 1e4,
    "rotary_scaling": None,
    "max_batch_size": 4,
    "max_seq_len": 512,
    "max_num_tokens": 64,
    "max_draft_len": 4,
    "lookahead": None,
}


def tiny_config(**changed: Any) -> EngineConfig:
    """Return the configuration with these fields changed."""
    return EngineConfig(**{**_TINY, **changed})
