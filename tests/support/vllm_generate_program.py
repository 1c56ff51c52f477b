"""Generates greedily with vLLM; runs in the Python of an installed vLLM.

Standard input has `arguments` (of `LLM`, by name), `prompts` (lists of token ids) and
`max_tokens`. The last line of standard output has the tokens of each answer, and vLLM's own
counters of drafts.
"""

import json
import sys
from typing import Any

_PREFIX = "vllm:spec_decode_num_"


def main() -> None:
    """Read the request, and write the answers and counters in the last line."""
    from vllm import LLM, SamplingParams

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
    print(json.dumps({"tokens": tokens, "counters": counters}))


if __name__ == "__main__":
    main()
