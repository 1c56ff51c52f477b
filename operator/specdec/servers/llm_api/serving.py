"""How the operator runs tritonserver with the LLM API's model, which answers with text."""

from dataclasses import replace

from specdec.servers.bls.serving import SERVING as ENGINES
from specdec.servers.kind import Probing
from specdec.triton import probes
from specdec.triton.launch import SPAWNED_RANKS
from specdec.triton.layout import Launch
from specdec.triton.model_names import TARGET
from specdec.triton.probes import Programs, Token

# No counters: Triton counts a request of a Python model as a success before it is answered.
TOKEN = Token({"text_input": "a", "sampling_param_max_tokens": 1}, "text_output", ())


def environment(launch: Launch) -> dict[str, str]:
    """The model is in one process of the server, which starts the ranks."""
    del launch
    return dict(SPAWNED_RANKS)


def programs(probing: Probing) -> Programs:
    """The probes ask the model for a token."""
    return probes.programs(
        probing.launch,
        probing.engines,
        TOKEN,
        attempt_seconds=probing.attempt_seconds,
        patience_seconds=probing.patience_seconds,
        tls=probing.tls,
    )


SERVING = replace(
    ENGINES,
    models={"target": TARGET},
    environment=environment,
    probes=programs,
    packages=True,
)
