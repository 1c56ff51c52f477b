"""The outputs of an answer: what vLLM reports about a step, as the arrays of a response."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specdec_vllm.requests import Request

Arrays = dict[str, NDArray[Any]]


class Completion(Protocol):
    """One answer of vLLM's CompletionOutput; a delta in a stream."""

    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: Iterable[Mapping[int, Any]] | None
    finish_reason: str | None


class Answer:
    """Turns the outputs for one request into responses.

    Args:
        request: what was asked.
        count: the number of answers.
        prompt_tokens: the length of the prompt.
    """

    def __init__(self, request: Request, count: int, prompt_tokens: int) -> None:
        self._request, self._prompt_tokens = request, prompt_tokens
        # An answer that has ended stays so in the responses that follow.
        self._reasons: list[str | None] = [None] * count
        self._log_probs = [0.0] * count

    def response(self, completions: Iterable[Completion]) -> Arrays:
        """The outputs of one response: element i of each array belongs to answer i."""
        new: list[Completion | None] = [None] * len(self._reasons)
        for completion in completions:
            index = completion.index
            new[index] = completion
            self._reasons[index] = completion.finish_reason or self._reasons[index]
            self._log_probs[index] = completion.cumulative_logprob or self._log_probs[index]
        before = self._request.text if self._request.prepend else ""
        texts = [f"{before}{item.text}" if item else "" for item in new]
        arrays = {"text_output": _texts(texts)}
        arrays.update((name, self._optional(name, new)) for name in self._request.outputs)
        return arrays

    def _optional(self, name: str, new: Sequence[Completion | None]) -> NDArray[Any]:
        lengths = [len(item.token_ids) if item else 0 for item in new]
        match name:
            case "finish_reason":
                return _texts([str(reason) for reason in self._reasons])
            case "cumulative_logprob":
                return np.array(self._log_probs, np.float32)
            case "logprobs":
                return _texts([_log_probs(item) for item in new])
            case "num_input_tokens":
                return np.array([self._prompt_tokens], np.uint32)
            case "num_output_tokens":
                return np.array(lengths, np.uint32)
            case _:
                ids = [token for item in new if item for token in item.token_ids]
                return np.array(ids, np.int32)


def _log_probs(completion: Completion | None) -> str:
    if completion is None or completion.logprobs is None:
        return "null"
    return json.dumps(
        [
            {
                str(token): {
                    "logprob": entry.logprob,
                    "rank": entry.rank,
                    "decoded_token": entry.decoded_token,
                }
                for token, entry in step.items()
            }
            for step in completion.logprobs
        ]
    )


def _texts(texts: Sequence[str]) -> NDArray[Any]:
    return np.array([text.encode() for text in texts], np.object_)
