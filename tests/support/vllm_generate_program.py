"""Generates greedily with vLLM; runs in the Python of an installed vLLM.

Standard input has `arguments` (of `LLM`, by name), `prompts` (lists of token ids) and
`max_tokens`. The last line of standard output has the tokens of each answer, vLLM's own counters
of drafts, and the blocks of the cache with the tokens of a block.

PATCH OF THIS PROCESS: the CPU build of 0.24.0 starts with no method, because its function for
recovered tokens lacks a parameter of the caller. The function ignores that parameter here. Greedy
requests do not call it; vLLM calls it when it warms up.
"""

import inspect
import json
import sys
from typing import Any

_PREFIX = "vllm:spec_decode_num_"


def repair() -> None:
    """Let the function for recovered tokens of 0.24 ignore a parameter that it lacks."""
    from vllm import __version__

    if not __version__.startswith("0.24."):
        return
    from vllm.utils import cpu_triton_utils

    kernel = cpu_triton_utils.sample_recovered_tokens_kernel
    implementation = kernel.func
    known = inspect.signature(implementation).parameters

    def tolerant(*arguments: object, **options: object) -> object:
        options = {name: value for name, value in options.items() if name in known}
        return implementation(*arguments, **options)

    kernel.func = tolerant


def main() -> None:
    """Read the request, and write the answers and counters in the last line."""
    from vllm import LLM, SamplingParams

    repair()
    body = json.load(sys.stdin)
    engine = LLM(**body["arguments"], disable_log_stats=False)
    sampling = SamplingParams(temperature=0.0, max_tokens=body["max_tokens"], ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in body["prompts"]]
    answers = engine.generate(prompts, sampling, use_tqdm=False)
    metrics = [metric for metric in engine.get_metrics() if metric.name.startswith(_PREFIX)]
    counters: dict[str, Any] = {
        metric.name.removeprefix(_PREFIX): getattr(metric, "values", None) or metric.value
        for metric in metrics
    }
    tokens = [list(answer.outputs[0].token_ids) for answer in answers]
    cache = engine.llm_engine.vllm_config.cache_config
    blocks = [cache.num_gpu_blocks, cache.block_size]
    print(json.dumps({"tokens": tokens, "counters": counters, "blocks": blocks}))


if __name__ == "__main__":
    main()
