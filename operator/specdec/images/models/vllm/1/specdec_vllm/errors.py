"""Errors of vLLM, by what they mean for the client."""

from vllm import exceptions
from vllm.v1.engine.exceptions import EngineDeadError

DEAD = EngineDeadError
# The request is at fault. Some releases of vLLM only raise ValueError for it.
CLIENT: tuple[type[Exception], ...] = (
    ValueError,
    getattr(exceptions, "VLLMClientError", ValueError),
)
