"""The published inputs and outputs of Triton's vLLM backend, and the arguments that we write.

Sources: `src/model.py` and `docs/additional_outputs.md` of triton-inference-server/vllm_backend,
and `AsyncEngineArgs` of vLLM. tests/vllm_engine asks vLLM itself.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from tritonclient.grpc import model_config_pb2

from support.published_layouts import parse

_INPUTS = {
    "text_input": "TYPE_STRING [1]",
    "stream": "TYPE_BOOL [1]",
    "sampling_parameters": "TYPE_STRING [1]",
    "exclude_input_in_output": "TYPE_BOOL [1]",
    "return_finish_reason": "TYPE_BOOL [1]",
    "return_cumulative_logprob": "TYPE_BOOL [1]",
    "return_logprobs": "TYPE_BOOL [1]",
    "return_num_input_tokens": "TYPE_BOOL [1]",
    "return_num_output_tokens": "TYPE_BOOL [1]",
}
_OUTPUTS = {
    "text_output": "TYPE_STRING [-1]",
    "finish_reason": "TYPE_STRING [-1]",
    "cumulative_logprob": "TYPE_FP32 [-1]",
    "logprobs": "TYPE_STRING [-1]",
    "num_input_tokens": "TYPE_UINT32 [1]",
    "num_output_tokens": "TYPE_UINT32 [-1]",
}
# What each repository sets.
_ALWAYS = {
    "model",
    "dtype",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "max_num_seqs",
    "max_model_len",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "enable_prefix_caching",
}
_SOMETIMES = {
    "kv_cache_dtype",
    "kv_cache_memory_bytes",
    "gpu_memory_utilization",
    "speculative_config",
}


def vllm_differences(repository: Mapping[str, str]) -> list[str]:
    """Return the differences between a repository of backend VLLM and what is published."""
    if options := repository.get("options.yaml"):
        flags = yaml.safe_load(options)
        return list(_arguments(flag.removeprefix("no-").replace("-", "_") for flag in flags))
    config = parse(repository["vllm_model/config.pbtxt"])
    written = json.loads(repository["vllm_model/1/model.json"])
    return [
        *_tensors(config.input, _INPUTS),
        *_tensors(config.output, _OUTPUTS),
        *_arguments(written),
    ]


def _tensors(ours: Any, published: Mapping[str, str]) -> Iterator[str]:
    kinds = {
        tensor.name: f"{model_config_pb2.DataType.Name(tensor.data_type)} {list(tensor.dims)}"
        for tensor in ours
    }
    for name, kind in published.items():
        if kinds.get(name) != kind:
            yield f"{name} is {kinds.get(name)}, published as {kind}"


def _arguments(names: Iterable[str]) -> Iterator[str]:
    known = set(names)
    for name in sorted(_ALWAYS - known):
        yield f"argument {name} is missing"
    for name in sorted(known - _ALWAYS - _SOMETIMES):
        yield f"argument {name} is unknown"
