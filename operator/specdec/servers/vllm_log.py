"""Lines of vLLM's log, which both kinds of server with vLLM have.

Source: the wheel of vLLM 0.27.1, `logger.py`, `model_executor/model_loader` and, in `v1`:
`core/kv_cache_utils.py`, `engine/core.py`, `engine/utils.py`, `worker/utils.py` and
`worker/gpu_model_runner.py`. In Triton, these lines stand among Triton's own.
"""

import re
from dataclasses import replace

from specdec.triton.log_lines import TRITON, Fix, Step

# `(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1349] `, or only the name of the process.
_HEAD = r"^(?:\(\w+ pid=\d+\) )?(?:ERROR [\d-]+ [\d:]+ \[[^\]]*\] )?"
_SIZES = "lower spec.target.limits, or choose GPUs with more memory"


def _line(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


# Of the GPU, and in newer releases also of the CPU.

VLLM = replace(
    TRITON,
    errors=(
        # Of the parser of the command line.
        _line(r"^(?:\([^)]*\) )?\S+: error: (.*)$"),
        # The last line of a traceback. Those of other processes follow that of the cause.
        _line(_HEAD + r"((?:\w+\.)*\w*(?:Error|Exception): (?!Engine core initialization).*)$"),
        *TRITON.errors,
    ),
    prefix=re.compile(rf"(?:{TRITON.prefix.pattern})(?:ValueError: |RuntimeError: )?"),
    noise=re.compile(
        rf"""{TRITON.noise.pattern}|{_HEAD}(?:\s.*|Traceback .*|During handling of .*)?$"""
    ),
    fixes=(
        Fix(re.compile(r"OutOfMemoryError|out of memory"), _SIZES),
        Fix(re.compile(r"No available memory for the cache blocks|max seq len .* larger"), _SIZES),
        Fix(
            re.compile(r"^Free memory on device"),
            "end the other programs on that GPU, or choose another node",
        ),
        Fix(
            re.compile(r"unrecognized arguments|unexpected keyword argument|invalid choice"),
            "correct spec.runtime.arguments",
        ),
        Fix(
            re.compile(r"Repo id must be|Invalid repository ID or|No such file or directory"),
            "check the files of the checkpoint on the volume",
        ),
    ),
    steps=(
        Step(_line(r"Starting to load model "), "loading weights"),
        Step(
            _line(r"Loading safetensors checkpoint shards: +(\d+)% Completed"),
            "loading weights, {0} %",
        ),
        Step(_line(r"Loading drafter model"), "loading the draft"),
        Step(_line(r"(?:Loading weights|Model loading) took "), "weights loaded"),
        Step(_line(r"Compiling a graph for |Dynamo bytecode transform time"), "compiling"),
        Step(_line(r"\bKV cache size: ([\d,]+) tokens\b"), "KV cache of {0} tokens allocated"),
        Step(_line(r"Capturing CUDA graphs[^:\r\n]*: +(\d+)%"), "capturing CUDA graphs, {0} %"),
        Step(_line(r"Graph capturing finished "), "CUDA graphs captured"),
        Step(_line(r"init engine \(.*\) took "), "engine started"),
        Step(_line(r"Application startup complete"), "waiting for a first token"),
    ),
)
