"""Triton model `postprocessing`: token ids in, text out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from specdec_text import TextError, Tokenizer, is_true, parameter


class TritonPythonModel:
    """Stateless: it sees one answer, or one chunk of a streamed answer, at a time.

    A character whose bytes lie in two chunks therefore shows as a replacement character in both;
    the BLS, which knows the whole answer, holds such bytes back.
    """

    def initialize(self, args: dict[str, str]) -> None:
        """Open the tokenizer; a directory without one fails the load with a sentence."""
        config: dict[str, Any] = json.loads(args["model_config"])
        try:
            self._tokenizer = Tokenizer(
                parameter(config, "tokenizer_dir"),
                skip_special_tokens=is_true(parameter(config, "skip_special_tokens", "true")),
            )
        except TextError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request: OUTPUT holds a text for every beam of every row."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        tokens = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
        lengths = pb_utils.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy()
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT", self._texts(tokens, lengths))]
        )

    def _texts(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[Any]:
        """[rows, beams, T] and [rows, beams] -> [rows, beams] of UTF-8 bytes."""
        texts = [
            self._tokenizer.decode(beam[:length]).encode("utf-8", "replace")
            for row, ends in zip(tokens, lengths, strict=True)
            for beam, length in zip(row, ends, strict=True)
        ]
        return np.array(texts, object).reshape(lengths.shape)
