"""Calls of the draft and the target through Triton, from any thread of this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from specdec_bls.linger import Linger
from specdec_bls.task import EngineError, Tensors


class TritonEngine:
    """A served model, decoupled or not.

    Args:
        name: the Triton model.
        decoupled: whether it may answer in several responses.
    """

    def __init__(self, name: str, *, decoupled: bool) -> None:
        self.name = name
        self._decoupled = decoupled
        self._linger = Linger()

    def call(self, inputs: Tensors, outputs: Sequence[str], request_id: str = "") -> Tensors:
        """One whole answer; raises `EngineError` with the model's own sentence."""
        request = self._request(inputs, outputs, request_id)
        if not self._decoupled:
            response = request.exec()
            self._check(response)
            return _arrays(response)
        answer: Tensors = {}
        # Every response is taken, the empty final one too: abandoned ones stay in shared memory.
        for response, arrays in self._responses(request):
            self._check(response)
            answer = arrays or answer
        if not answer:
            raise EngineError(f"{self.name} ended the call without an answer: it was cancelled")
        return answer

    def stop(self, request_id: str) -> None:
        """Ask the engine to end a running call: the same request id, and `stop`."""
        one = np.ones((1, 1), np.int32)
        inputs: Tensors = {
            "input_ids": one,
            "input_lengths": one,
            "request_output_len": one,
            "stop": np.array([[True]]),
        }
        request = self._request(inputs, ("output_ids", "sequence_length"), request_id)
        if self._decoupled:
            for _ in self._responses(request):
                pass
        else:
            request.exec()

    def _responses(self, request: Any) -> Iterator[tuple[Any, Tensors]]:
        responses = request.exec(decoupled=True)
        self._linger.keep((request, responses))
        for response in responses:
            arrays = _arrays(response)
            self._linger.keep(response, arrays.values())
            yield response, arrays

    def _request(self, inputs: Tensors, outputs: Sequence[str], request_id: str) -> Any:
        return pb_utils.InferenceRequest(
            model_name=self.name,
            request_id=request_id,
            inputs=[pb_utils.Tensor(name, np.ascontiguousarray(a)) for name, a in inputs.items()],
            requested_output_names=list(outputs),
            # Logits would otherwise stay on the GPU, where NumPy cannot see them.
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )

    def _check(self, response: Any) -> None:
        if response.has_error():
            words = response.error().message().strip().splitlines()
            reason = words[0] if words else "refused without a reason"
            named = reason.startswith(f"{self.name}:")
            raise EngineError(reason if named else f"{self.name}: {reason}")


def _arrays(response: Any) -> Tensors:
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
