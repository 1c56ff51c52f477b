"""Triton model `preprocessing`: converts text to token ids and word lists."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from specdec_text import (
    TextError,
    TextLimits,
    Tokenizer,
    is_true,
    number,
    parameter,
    text_of,
    word_array,
)

_EMPTY = "text_input is empty: send at least one character"
_INTERNAL = "preprocessing failed on this request: the server's log has the details"
# Inputs that are encoded, with the names that clients of the ensemble send them by.
_PROMPTS = {"QUERY": "text_input", "DECODER_QUERY": "decoder_text_input"}
_LISTS = {
    "STOP_WORDS_DICT": "stop_words",
    "BAD_WORDS_DICT": "bad_words",
    "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
}


class TritonPythonModel:
    """Tokenizes requests; one may hold several prompts, whose rows are padded on the right."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the tokenizer; without a usable one the model fails to load with a message."""
        config: dict[str, Any] = json.loads(args["model_config"])
        try:
            self._tokenizer = Tokenizer(
                parameter(config, "tokenizer_dir"),
                add_special_tokens=is_true(parameter(config, "add_special_tokens", "true")),
            )
            self._limits = TextLimits(
                number(config, "max_seq_len"), self._tokenizer.bytes_per_token
            )
        except TextError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; an invalid request gets an error and does not affect others."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            arrays = self._arrays({t.name(): t.as_numpy() for t in request.inputs()})
        except TextError as error:
            refusal = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        except Exception as error:  # noqa: BLE001 - raising would show clients the server's paths
            pb_utils.Logger.log_error(f"preprocessing: {type(error).__name__}: {error}")
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(_INTERNAL))
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        )

    def _limit(self, given: dict[str, NDArray[Any]]) -> None:
        """Refuse texts so long that the tokenizer would take seconds for them."""
        for name, field in _PROMPTS.items():
            if name in given:
                self._limits.prompts(given[name].reshape(-1), field)
        for name, field in _LISTS.items():
            if name in given:
                self._limits.items(given[name].reshape(-1), field)

    def _arrays(self, given: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self._limit(given)
        queries = [text_of(row, "text_input") for row in given["QUERY"].reshape(-1)]
        rows = len(queries)
        if not rows:
            raise TextError(_EMPTY)
        end = _column(given.get("END_ID"), rows, self._tokenizer.end_id)
        pad = _column(given.get("PAD_ID"), rows, self._tokenizer.pad_id)
        prompts = [self._prompt(query) for query in queries]
        decoder = self._decoder_prompts(given.get("DECODER_QUERY"), pad)
        arrays: dict[str, NDArray[Any]] = {
            "INPUT_ID": _padded(prompts, pad),
            "REQUEST_INPUT_LEN": _lengths(prompts),
            "DECODER_INPUT_ID": _padded(decoder, pad),
            "REQUEST_DECODER_INPUT_LEN": _lengths(decoder),
            "REQUEST_OUTPUT_LEN": given["REQUEST_OUTPUT_LEN"].astype(np.int32),
            "STOP_WORDS_IDS": self._word_ids(given.get("STOP_WORDS_DICT"), rows, "stop_words"),
            "BAD_WORDS_IDS": self._word_ids(given.get("BAD_WORDS_DICT"), rows, "bad_words"),
            "EMBEDDING_BIAS": self._bias(given, rows),
            "OUT_END_ID": end,
            "OUT_PAD_ID": pad,
        }
        if "PROMPT_TABLE_EXTRA_ID" in given:
            # One identifier for every prompt token, as the prompt table's cache expects it.
            width = arrays["INPUT_ID"].shape[1]
            extra = given["PROMPT_TABLE_EXTRA_ID"].reshape(rows, 1)
            arrays["OUT_PROMPT_TABLE_EXTRA_IDS"] = np.repeat(extra, width, 1).astype(np.uint64)
        return arrays

    def _prompt(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text) if text else []
        if not ids:
            raise TextError(_EMPTY)
        self._limits.tokens(len(ids), "text_input")
        return ids

    def _decoder_prompts(
        self, queries: NDArray[Any] | None, pad: NDArray[np.int32]
    ) -> list[list[int]]:
        if queries is None:
            return [[int(value)] for value in pad.reshape(-1)]
        return [
            self._tokenizer.encode(text_of(row, "decoder_text_input"))
            for row in queries.reshape(-1)
        ]

    def _word_ids(self, texts: NDArray[Any] | None, rows: int, field: str) -> NDArray[np.int32]:
        if texts is None:
            return np.zeros((rows, 2, 0), np.int32)
        arrays = [
            word_array(self._tokenizer.word_list([text_of(text, field) for text in row]))
            for row in texts.reshape(rows, -1)
        ]
        width = max(array.shape[1] for array in arrays)
        filler = ((0, 0), (0, width))
        # -1 ends a list in row 1; row 0 is never read past the last offset.
        return np.stack([np.pad(a, filler, constant_values=-1)[:, :width] for a in arrays]).astype(
            np.int32
        )

    def _bias(self, given: dict[str, NDArray[Any]], rows: int) -> NDArray[np.float32]:
        texts = given.get("EMBEDDING_BIAS_WORDS")
        weights = given.get("EMBEDDING_BIAS_WEIGHTS")
        if texts is None and weights is None:
            return np.zeros((rows, 0), np.float32)
        texts = np.empty((rows, 0), object) if texts is None else texts.reshape(rows, -1)
        weights = np.empty((rows, 0)) if weights is None else weights.reshape(rows, -1)
        return np.stack(
            [
                self._tokenizer.bias([text_of(w, "embedding_bias_words") for w in row], values)
                for row, values in zip(texts, weights, strict=True)
            ]
        )


def _column(given: NDArray[Any] | None, rows: int, default: int) -> NDArray[np.int32]:
    if given is None:
        return np.full((rows, 1), default, np.int32)
    return given.astype(np.int32).reshape(rows, 1)


def _lengths(rows: list[list[int]]) -> NDArray[np.int32]:
    return np.array([[len(row)] for row in rows], np.int32)


def _padded(rows: list[list[int]], pad: NDArray[np.int32]) -> NDArray[np.int32]:
    width = max(len(row) for row in rows)
    filled = np.repeat(pad.reshape(-1, 1), width, 1)
    for target, row in zip(filled, rows, strict=True):
        target[: len(row)] = row
    return filled
