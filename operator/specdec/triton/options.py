"""Parameters of the engines' Triton models that `spec.runtime.parameters` may set by name."""

from collections.abc import Iterable
from functools import cache

from specdec.api.versions import at_least

# The first release that reads each parameter. The table leaves out parameters that a typed field
# sets, that are paths in the server's image, or that only encoder-decoder models read.
_SINCE = {
    **dict.fromkeys(
        (
            "cancellation_check_period_ms",
            "cuda_graph_cache_size",
            "cuda_graph_mode",
            "enable_context_fmha_fp32_acc",
            "gpu_weights_percent",
            "iter_stats_max_iterations",
            "kv_cache_onboard_blocks",
            "lora_cache_gpu_memory_fraction",
            "lora_cache_host_memory_bytes",
            "lora_cache_max_adapter_size",
            "lora_cache_optimal_adapter_size",
            "max_attention_window_size",
            "multi_block_mode",
            "normalize_log_probs",
            "recv_poll_period_ms",
            "request_stats_max_iterations",
            "sink_token_length",
            "stats_check_period_ms",
        ),
        "0",
    ),
    **dict.fromkeys(
        ("guided_decoding_backend", "lora_prefetch_dir", "xgrammar_tokenizer_info_path"),
        "0.19.0",
    ),
    "enable_trt_overlap": "1.2.0",
}


@cache
def free(version: str) -> tuple[str, ...]:
    """The names that may be set in a release, in alphabetical order."""
    return tuple(sorted(n for n, since in _SINCE.items() if at_least(version, since)))


def unknown(given: Iterable[str], version: str) -> list[str]:
    """The names in `given` that may not be set in a release."""
    known = free(version)
    return sorted(name for name in given if name not in known)
