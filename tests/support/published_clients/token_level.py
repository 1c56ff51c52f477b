"""`inflight_batcher_llm_client`: sends token ids to an engine, on a stream or in a unary call."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc

from cluster.processes import DEADLINE_SECONDS
from support.published_clients.streams import OUTPUTS_OF_FLAG, Inputs, checked, streamed
from support.triton_client import request_inputs


@dataclass
class Tokens:
    """The result of `token_level`.

    Attributes:
        ids: the prompt and the new tokens.
        length: the last sequence length.
        arrays: outputs of the last response, without the batch dimension.
    """

    ids: list[int] = field(default_factory=list)
    length: int = 0
    arrays: dict[str, Any] = field(default_factory=dict)


def token_level(
    url: str,
    prompt: Sequence[int],
    length: int = 16,
    *,
    model: str = "tensorrt_llm",
    streaming: bool = False,
    draft: Sequence[int] = (),
    flags: Sequence[str] = (),
    request_id: str = "",
) -> Tokens:
    """Send one prompt and read the answer.

    Args:
        url: address of the gRPC endpoint.
        prompt: token ids.
        length: request_output_len.
        model: Triton name.
        streaming: use a stream, which the deployed model must support.
        draft: draft_input_ids.
        flags: inputs `return_...` to set; their outputs are read.
        request_id: id of the request.
    """
    one: Mapping[str, Any] = {
        "input_lengths": len(prompt),
        "request_output_len": length,
        "beam_width": 1,
        "runtime_top_k": 1,
        "end_id": -1,
        "pad_id": 50256,
    }
    inputs: Inputs = {name: np.array([[value]], np.int32) for name, value in one.items()}
    inputs["input_ids"] = np.array([prompt], np.int32)
    inputs["temperature"] = np.array([[1.0]], np.float32)
    inputs["runtime_top_p"] = np.array([[0.0]], np.float32)
    inputs["streaming"] = np.array([[streaming]])
    inputs |= {flag: np.array([[True]]) for flag in flags}
    if draft:
        inputs["draft_input_ids"] = np.array([draft], np.int32)
    reading = Tokens(list(prompt) if streaming else [])
    with grpc.InferenceServerClient(url) as client:
        if streaming:
            results = streamed(client, model, inputs, (), request_id)
        else:
            results = [_unary(client, model, inputs, request_id)]
    for result in results:
        _read_tokens(result, reading, flags)
    return reading


def _unary(client: Any, model: str, inputs: Inputs, request_id: str) -> Any:
    replies: queue.Queue[Any] = queue.Queue()
    client.async_infer(
        model,
        request_inputs(inputs),
        request_id=request_id,
        callback=lambda result, error: replies.put(error or result),
    )
    return checked(replies.get(timeout=DEADLINE_SECONDS))


def _read_tokens(result: Any, reading: Tokens, flags: Sequence[str]) -> None:
    for flag in flags:
        for name in OUTPUTS_OF_FLAG[flag]:
            reading.arrays[name] = result.as_numpy(name)[0]
    reading.length = result.as_numpy("sequence_length")[0][0]
    if reading.length > 0:
        reading.ids += [int(token) for token in result.as_numpy("output_ids")[0][0]]
