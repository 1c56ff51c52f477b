"""Requests of the published clients, and the outputs that their flags request."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import tritonclient.grpc as grpc
from numpy.typing import NDArray

from support.triton_client import RefusedError, request_inputs

Inputs = dict[str, NDArray[Any]]
KV_STATISTICS = (
    "kv_cache_alloc_new_blocks",
    "kv_cache_reused_blocks",
    "kv_cache_alloc_total_blocks",
)
PERF_METRICS = (
    *KV_STATISTICS,
    "arrival_time_ns",
    "first_scheduled_time_ns",
    "first_token_time_ns",
    "last_token_time_ns",
    "acceptance_rate",
    "total_accepted_draft_tokens",
    "total_draft_tokens",
)
OUTPUTS_OF_FLAG = {
    "return_log_probs": ("cum_log_probs", "output_log_probs"),
    "return_context_logits": ("context_logits",),
    "return_generation_logits": ("generation_logits",),
    "return_kv_cache_reuse_stats": KV_STATISTICS,
    "return_perf_metrics": PERF_METRICS,
}


def streamed(
    client: Any, model: str, inputs: Inputs, names: Sequence[str], request_id: str
) -> list[Any]:
    """Send a request on its own stream; return its responses after the stream has ended."""
    replies: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: replies.put(error or result))
    outputs = [grpc.InferRequestedOutput(name) for name in names] or None
    tensors = request_inputs(inputs)
    client.async_stream_infer(model, tensors, outputs=outputs, request_id=request_id)
    client.stop_stream()
    return [checked(replies.get(block=False)) for _ in range(replies.qsize())]


def checked(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise RefusedError(str(reply))
    return reply
