"""How the operator runs vLLM's own OpenAI server, behind a proxy in the same pod."""

from specdec.servers import proxied, vllm_engine
from specdec.servers.kind import Start
from specdec.servers.vllm_log import VLLM

# The repository's only file: arguments of the engine, by the names of the server's flags.
OPTIONS = "options.yaml"
# A request whose client left is no proof that the engine works, and neither is a failed one.
_COUNTED = {
    "page": "/metrics",
    "counters": ["vllm:request_success_total", vllm_engine.GENERATED],
    "without": ['finished_reason="abort"', 'finished_reason="error"'],
}


def command(start: Start) -> list[str]:
    """Arguments of the server's container; the options file has those of the engine.

    The console script `vllm serve` runs the same program.
    """
    counted = vllm_engine.counts_by_request(start.version)
    return [
        *("python3", "-m", "vllm.entrypoints.openai.api_server"),
        *("--config", f"{start.directory}/{OPTIONS}"),
        *proxied.listen(),
        *("--served-model-name", start.name),
        *("--disable-fastapi-docs", "--disable-uvicorn-access-log"),
        *(("--enable-per-request-metrics",) if counted else ()),
    ]


def model_name(resource: str, checkpoint: str) -> str:
    """The name of the model in requests to the server: that of the resource."""
    del checkpoint
    return resource


SERVING = proxied.serving(command, vllm_engine.environment, model_name, "vllm", _COUNTED, VLLM)
