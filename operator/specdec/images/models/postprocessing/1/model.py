"""Triton model `postprocessing`: converts token ids to text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from specdec_text import TextError, Tokenizer, is_true, parameter

_INTERNAL = "postprocessing failed on this request: the server's log has the details"


class TritonPythonModel:
    """Decodes one response, or one chunk of a streamed response, at a time.

    It keeps no state: a character whose bytes are split over two chunks becomes a replacement
    character in both. The BLS decodes whole responses and holds such bytes back.
    """

    def initialize(self, args: dict[str, str]) -> None:
        """Open the tokenizer; without a usable one the model fails to load with a message."""
        config: dict[str, Any] = json.loads(args["model_config"])
        try:
            self._tokenizer = Tokenizer(
                parameter(config, "tokenizer_dir"),
                skip_special_tokens=is_true(parameter(config, "skip_special_tokens", "true")),
            )
        except TextError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request: OUTPUT, [rows x beams], holds a text for every beam."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            texts = self._texts(given["TOKENS_BATCH"], given["SEQUENCE_LENGTH"])
        except TextError as error:
            return pb_utils.InferenceResponse(error=_refusal(str(error)))
        except Exception as error:  # noqa: BLE001 - raising would show clients the server's paths
            pb_utils.Logger.log_error(f"postprocessing: {type(error).__name__}: {error}")
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(_INTERNAL))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", texts)])

    def _texts(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[Any]:
        """[rows, beams, T] and [rows, beams] -> [rows x beams] of UTF-8 bytes.

        The published model returns this shape although config.pbtxt declares a batch dimension,
        and the published clients read `output[0].decode()`.
        """
        _check(tokens, lengths)
        texts = [
            self._tokenizer.decode(beam[:length]).encode("utf-8", "replace")
            for row, ends in zip(tokens, lengths, strict=True)
            for beam, length in zip(row, ends, strict=True)
        ]
        return np.array(texts, object)


def _check(tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> None:
    """Refuse lengths that are not those of the tokens.

    Raises:
        TextError: another shape, or a length below 0 or above the tokens there are.
    """
    if tokens.ndim != 3 or tokens.shape[:2] != lengths.shape:
        raise TextError(
            f"SEQUENCE_LENGTH has the shape {list(lengths.shape)} beside {list(tokens.shape)} of "
            "TOKENS_BATCH: send one length for every beam of every row"
        )
    if not lengths.size:
        return
    # An engine may end a stream with its length and without a token.
    most = tokens.shape[2] or np.iinfo(np.int32).max
    odd = lengths[(lengths < 0) | (lengths > most)]
    if odd.size:
        raise TextError(
            f"SEQUENCE_LENGTH has {odd[0]}, but TOKENS_BATCH has {tokens.shape[2]} tokens in each "
            "beam: send a number from 0 to that"
        )


def _refusal(message: str) -> Any:
    return pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
