"""How the operator runs tritonserver with the LLM API's model, which answers with text."""

from dataclasses import replace
from functools import partial

from specdec.servers.bls.serving import SERVING as ENGINES
from specdec.servers.bls.serving import programs
from specdec.triton.launch import SPAWNED_RANKS
from specdec.triton.layout import Launch
from specdec.triton.model_names import TARGET
from specdec.triton.probes import Token

# No counters: Triton counts a request of a Python model as a success before it is answered.
TOKEN = Token({"text_input": "a", "sampling_param_max_tokens": 1}, "text_output", ())


def environment(launch: Launch) -> dict[str, str]:
    """The model is in one process of the server, which starts the ranks."""
    del launch
    return dict(SPAWNED_RANKS)


SERVING = replace(
    ENGINES,
    models={"target": TARGET},
    environment=environment,
    probes=partial(programs, TOKEN),
    packages=True,
)
