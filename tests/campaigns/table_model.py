"""The table engine as a model of Triton's python backend; it reads `table.json` next to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from campaigns.serving_tables import seed
from campaigns.table import TableEngine
from specdec.images.backend.tensorrtllm.reference_engine.errors import RequestError

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def _responses(row: dict[str, Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the responses of a row: the whole row, or one response per token in a stream.

    A response has one token, as from an engine: its end must not depend on later tokens. A stream
    continues to its last token even if the client cancels it.
    """
    if "streaming" not in inputs or not inputs["streaming"].item():
        return [row]
    one = np.ones_like(row["sequence_length"])
    return [
        {"output_ids": row["output_ids"][..., index : index + 1], "sequence_length": one}
        for index in range(row["sequence_length"].item())
    ]


class TritonPythonModel:
    """Serves as draft and as target."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the table."""
        written = json.loads(Path(__file__).with_name("table.json").read_text("utf-8"))
        self._engine = TableEngine(np.array(written, np.float32), seed)

    def execute(self, requests: list[Any]) -> None:
        """Answer every row of every request."""
        for request in requests:
            sender = request.get_response_sender()
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            try:
                # Compute all rows before the first is sent: rows sent together continue together.
                rows = list(self._engine.call(inputs, request.requested_output_names()))
            except RequestError as error:
                message = pb_utils.TritonError(str(error))
                sender.send(pb_utils.InferenceResponse(error=message))
            else:
                for row in rows:
                    for outputs in _responses(row, inputs):
                        tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items()]
                        sender.send(pb_utils.InferenceResponse(tensors))
            sender.send(flags=_FINAL)
