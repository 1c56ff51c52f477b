"""How the operator runs tritonserver with the model of vLLM, which answers with text."""

import json
from dataclasses import replace
from functools import partial

from specdec.servers import vllm_engine
from specdec.servers.bls.serving import SERVING as ENGINES
from specdec.servers.bls.serving import programs
from specdec.servers.vllm_log import VLLM as LOG
from specdec.triton.model_names import VLLM
from specdec.triton.probes import Token

_SAMPLING = json.dumps({"max_tokens": 1, "temperature": 0})
# Triton counts a request of a Python model as a success before it is answered, so the counters are
# those of the engine.
TOKEN = Token(
    {"text_input": "a", "sampling_parameters": _SAMPLING, "exclude_input_in_output": True},
    "text_output",
    counters=((vllm_engine.GENERATED, ""),),
    work=((vllm_engine.RUNNING, ""), (vllm_engine.WAITING, "")),
)

SERVING = replace(
    ENGINES,
    log=LOG,
    models={"target": VLLM},
    environment=vllm_engine.environment,
    probes=partial(programs, TOKEN),
)
