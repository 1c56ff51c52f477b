"""`end_to_end_grpc_client`: sends prompts to the ensemble or the BLS, always on a gRPC stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
from numpy.typing import NDArray

from support.published_clients.streams import OUTPUTS_OF_FLAG, Inputs, streamed

_TYPES: dict[type, Any] = {bool: np.bool_, int: np.int32, float: np.float32}
_STATISTICS = ("return_kv_cache_reuse_stats", "return_perf_metrics")


@dataclass
class Reading:
    """The result of `end_to_end`.

    Attributes:
        texts: the text for each prompt.
        statistics: the numbers of each response.
        arrays: log probabilities and logits of the last response.
        responses: the number of responses.
    """

    texts: list[str] = field(default_factory=list)
    statistics: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    responses: int = 0


def end_to_end(
    url: str,
    model: str,
    prompts: Sequence[str],
    length: int = 100,
    *,
    streaming: bool = False,
    batched: bool = False,
    flags: Sequence[str] = (),
    biased: bool = False,
    request_id: str = "",
    **extra: Any,
) -> Reading:
    """Send prompts and read the answers.

    Args:
        url: address of the gRPC endpoint.
        model: Triton name.
        prompts: one request for each, or one request with a row for each if `batched`.
        length: max_tokens.
        streaming: the value of `stream`.
        batched: see `prompts`.
        flags: inputs `return_...` to set; their outputs are requested and read.
        biased: send empty lists of bias words and weights, as the client's callers do.
        request_id: id of every request.
        **extra: further inputs with one value each, such as num_draft_tokens.
    """
    values = {
        "stream": streaming,
        "beam_width": 1,
        "temperature": 1.0,
        "exclude_input_in_output": False,
        **dict.fromkeys(flags, True),
        **extra,
    }
    rows = [_row(prompt, length, values, biased) for prompt in prompts]
    requests = [_stacked(rows)] if batched else rows
    names = ["text_output", *(name for flag in flags for name in OUTPUTS_OF_FLAG[flag])]
    names += ["batch_index"] if batched else []
    reading = Reading()
    with grpc.InferenceServerClient(url) as client:
        for inputs in requests:
            texts = [""] * inputs["text_input"].shape[0]
            for result in streamed(client, model, inputs, names, request_id):
                _read(result, texts, reading, flags, append=streaming)
            reading.texts += texts
    return reading


def _row(prompt: str, length: int, values: Mapping[str, Any], biased: bool) -> Inputs:
    inputs: Inputs = {
        "text_input": np.array([[prompt.encode()]], object),
        "max_tokens": np.array([[length]], np.int32),
    }
    for name, value in values.items():
        inputs[name] = np.array([[value]], _TYPES[type(value)])
    if biased:
        inputs["embedding_bias_words"] = np.array([[]], object)
        inputs["embedding_bias_weights"] = np.array([[]], np.float32)
    return inputs


def _stacked(rows: Sequence[Inputs]) -> Inputs:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _read(
    result: Any, texts: list[str], reading: Reading, flags: Sequence[str], *, append: bool
) -> None:
    output = result.as_numpy("text_output")
    index = result.as_numpy("batch_index")
    row = 0 if index is None else index[0][0]
    text = output[0].decode("utf-8")
    texts[row] = texts[row] + text if append else text
    reading.responses += 1
    for flag in flags:
        if flag in _STATISTICS:
            names = OUTPUTS_OF_FLAG[flag]
            reading.statistics.append({name: result.as_numpy(name)[0][0] for name in names})
        else:
            arrays = {name: result.as_numpy(name) for name in OUTPUTS_OF_FLAG[flag]}
            reading.arrays.update(arrays)
