"""How the operator runs vLLM's own OpenAI server, behind a proxy in the same pod."""

from functools import partial

from specdec.servers import proxied, vllm_engine
from specdec.servers.kind import Proxy, Serving, Start

# The repository's only file: arguments of the engine, by the names of the server's flags.
OPTIONS = "options.yaml"
_PAGE = "/metrics"
# A request whose client left is no proof that the engine works, and neither is a failed one.
_COUNTED = {
    "page": _PAGE,
    "counters": ["vllm:request_success_total", vllm_engine.GENERATED],
    "without": ['finished_reason="abort"', 'finished_reason="error"'],
}


def command(start: Start) -> list[str]:
    """Arguments of the server's container; the options file has those of the engine.

    The console script `vllm serve` runs the same program.
    """
    counted = ("--enable-per-request-metrics", "--per-request-spec-decode-metrics", "summary")
    return [
        *("python3", "-m", "vllm.entrypoints.openai.api_server"),
        *("--config", f"{start.directory}/{OPTIONS}"),
        *("--host", proxied.ADDRESS, "--port", str(proxied.PORT)),
        *("--served-model-name", start.name),
        *("--disable-fastapi-docs", "--disable-uvicorn-access-log"),
        *(counted if vllm_engine.counts_by_request(start.version) else ()),
    ]


def model_name(resource: str, checkpoint: str) -> str:
    """The name of the model in requests to the server: that of the resource."""
    del checkpoint
    return resource


SERVING = Serving(
    ports=proxied.PORTS,
    command=command,
    environment=vllm_engine.environment,
    probes=partial(proxied.programs, _COUNTED, model_name),
    pre_stop=proxied.pre_stop,
    files=proxied.FILES,
    openai="http",
    proxy=Proxy(
        address=f"{proxied.ADDRESS}:{proxied.PORT}",
        model=model_name,
        health=proxied.HEALTH,
        page=_PAGE,
        owner="vllm",
    ),
    attempt_seconds=proxied.ATTEMPT_SECONDS,
    readiness_failures=proxied.READINESS_FAILURES,
)
