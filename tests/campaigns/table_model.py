"""The table engine as a model of Triton's python backend; `table.json` lies beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from campaigns.table import TableEngine, given
from campaigns.tabled import seed_of_prompt
from specdec.payload.backend.tensorrtllm.reference_engine.errors import RequestError

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Serves as draft and as target."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the table."""
        written = json.loads(Path(__file__).with_name("table.json").read_text("utf-8"))
        logits = np.array(written["logits"], np.float32)
        self._engine = TableEngine(logits, seed_of_prompt if written["deaf"] else given)

    def execute(self, requests: list[Any]) -> None:
        """Answer every row of every request."""
        for request in requests:
            sender = request.get_response_sender()
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            try:
                for made in self._engine.call(inputs, request.requested_output_names()):
                    tensors = [pb_utils.Tensor(name, array) for name, array in made.items()]
                    sender.send(pb_utils.InferenceResponse(tensors))
            except RequestError as error:
                words = pb_utils.TritonError(str(error))
                sender.send(pb_utils.InferenceResponse(error=words))
            sender.send(flags=_FINAL)
