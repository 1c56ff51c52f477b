"""How the operator runs `trtllm-serve`, behind a proxy in the same pod."""

from pathlib import PurePosixPath

from specdec.servers import proxied
from specdec.servers.kind import Start
from specdec.triton.launch import SPAWNED_RANKS
from specdec.triton.layout import Launch
from specdec.triton.log_lines import TRITON

# The repository's only file: arguments of the LLM API.
OPTIONS = "options.yaml"
# The server's own `/health_generate` sends a chat, so it fails for ever without a chat template,
# and is not asked. A request whose client left is no proof.
_COUNTED = {
    "page": "/prometheus/metrics",
    "counters": ["trtllm_request_success_total", "trtllm_generation_tokens_total"],
    "without": ["cancelled", "timeout"],
}


def command(start: Start) -> list[str]:
    """Arguments of the server's container; all other settings are in the options file.

    That file has limits and parallelism too. They are also flags, because flags have defaults, and
    a release in which flags override the file would serve with these. The server is one process,
    which starts its own ranks.
    """
    limits, split = start.target.limits, start.target.parallelism
    flags = {
        "--max_batch_size": limits.max_batch_size,
        "--max_num_tokens": limits.max_num_tokens,
        "--max_seq_len": limits.max_seq_len,
        # These spellings are in all releases from 1.1 on; newer ones have longer names too.
        "--tp_size": split.tensor,
        "--pp_size": split.pipeline,
    }
    return [
        *("trtllm-serve", start.checkpoint, "--backend", "pytorch"),
        *proxied.listen(),
        *(text for flag, value in flags.items() for text in (flag, str(value))),
        # The oldest spelling, which newer releases accept too.
        *("--extra_llm_api_options", f"{start.directory}/{OPTIONS}"),
    ]


def environment(launch: Launch) -> dict[str, str]:
    """Variables of the server's container; its libraries then never ask the hub for a model."""
    del launch
    return {"HF_HUB_OFFLINE": "1", **SPAWNED_RANKS}


def model_name(resource: str, checkpoint: str) -> str:
    """The name of the model in requests to the server, which names it after its directory."""
    del resource
    return PurePosixPath(checkpoint).name


# From the owner's name, specdec's client derives which parameters it may send: see
# `servers/openai_api.py`.
SERVING = proxied.serving(command, environment, model_name, "tensorrt_llm", _COUNTED, TRITON)
