"""What a request to the model asks for: its tensors and its sampling parameters, checked.

The inputs are those of NVIDIA's vLLM backend, and besides: `input_ids` in place of a text,
`return_token_ids`, and `stop`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

# Optional outputs by the inputs that ask for them.
_ASKED = {
    "return_finish_reason": "finish_reason",
    "return_cumulative_logprob": "cumulative_logprob",
    "return_logprobs": "logprobs",
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
    "return_token_ids": "output_ids",
}
# Request parameters that Triton's endpoints set themselves.
_TRITON = ("triton_", "sequence_", "priority", "timeout", "binary_data")
ADAPTER = "lora_name"
# Enough for a list of all tokens of a vocabulary.
MOST_CHARACTERS = 1 << 21
_INT64 = 2**63


class RequestError(ValueError):
    """A request that cannot be answered; the message is one sentence."""


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        text: the prompt, None if it came as token ids.
        token_ids: the prompt, empty if it came as text.
        stream: whether each step's new tokens are sent at once.
        prepend: whether the prompt is sent before the answer.
        sampling: fields of vLLM's SamplingParams by name.
        adapter: name of a LoRA adapter, or None.
        outputs: names of the optional outputs that were asked for.
    """

    text: str | None
    token_ids: tuple[int, ...] = ()
    stream: bool = False
    prepend: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    adapter: str | None = None
    outputs: frozenset[str] = frozenset()


def stops(tensors: Mapping[str, NDArray[Any]]) -> bool:
    """Whether this request only ends another one, which has the same id."""
    return bool(_flag(tensors, "stop"))


def read(
    tensors: Mapping[str, NDArray[Any]],
    parameters: str,
    known: Collection[str],
    *,
    streams: bool = True,
) -> Request:
    """Read a request.

    Args:
        tensors: the input tensors by name.
        parameters: Triton's request parameters as JSON, used without `sampling_parameters`.
        known: names of the sampling parameters.
        streams: whether the model may send several responses.

    Raises:
        RequestError: with the field, its value and the fix.
    """
    text, token_ids = _prompt(tensors)
    stream = bool(_flag(tensors, "stream"))
    if stream and not streams:
        raise RequestError(
            "stream is true, and this model sends one response per request: set it to false"
        )
    excluded = _flag(tensors, "exclude_input_in_output")
    prepend = not (stream or text is None) if excluded is None else not excluded
    if prepend and stream:
        raise RequestError(
            "exclude_input_in_output is false, which streams cannot have: set it to true"
        )
    if prepend and text is None:
        raise RequestError(
            "exclude_input_in_output is false, and the prompt came as input_ids: set it to true"
        )
    sampling = _sampling(tensors, parameters, known)
    adapter = sampling.pop(ADAPTER, None)
    if not isinstance(adapter, str | None):
        raise RequestError(
            f"{ADAPTER} is {adapter!r:.80}, which is no text: send the name of an adapter"
        )
    asked = frozenset(output for name, output in _ASKED.items() if _flag(tensors, name))
    return Request(text, token_ids, stream, prepend, sampling, adapter, asked)


def _prompt(tensors: Mapping[str, NDArray[Any]]) -> tuple[str | None, tuple[int, ...]]:
    texts, ids = tensors.get("text_input"), tensors.get("input_ids")
    if (texts is None) == (ids is None):
        count = "neither" if ids is None else "both"
        raise RequestError(f"the request has {count} of text_input and input_ids: send one")
    if ids is not None:
        if not ids.size:
            raise RequestError("input_ids is empty: send at least one token id")
        # vLLM only checks the largest one.
        if (least := int(ids.min())) < 0:
            raise RequestError(f"input_ids has {least}: send token ids, which are at least 0")
        return None, tuple(ids.reshape(-1).tolist())
    assert texts is not None
    if texts.size != 1:
        raise RequestError(f"text_input has {texts.size} texts: send one text per request")
    text = _text(texts)
    if not text:
        raise RequestError("text_input is empty: send at least one token")
    return text, ()


def _sampling(
    tensors: Mapping[str, NDArray[Any]], parameters: str, known: Collection[str]
) -> dict[str, Any]:
    tensor = tensors.get("sampling_parameters")
    source = "the request" if tensor is None else "sampling_parameters"
    given = parameters if tensor is None else _text(tensor)
    if len(given) > MOST_CHARACTERS:
        raise RequestError(
            f"{source} has sampling parameters of {len(given)} characters: send at most "
            f"{MOST_CHARACTERS}"
        )
    try:
        values = json.loads(
            given or "{}", parse_constant=_finite, parse_float=_finite, parse_int=_integer
        )
    except RequestError:
        raise
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"sampling_parameters is {given[:80]!r}, which is no JSON ({error}): send a JSON "
            "object"
        ) from None
    if not isinstance(values, dict):
        raise RequestError(
            f"sampling_parameters is {given[:80]!r}, which is no JSON object: send an object like "
            '{"temperature": 0, "max_tokens": 64}'
        )
    if tensor is None:
        values = {name: v for name, v in values.items() if not name.startswith(_TRITON)}
    for name in values:
        if name not in known and name != ADAPTER:
            raise RequestError(
                f"{source} has the unknown sampling parameter {name}: remove it; known are "
                + ", ".join(sorted({*known, ADAPTER}))
            )
    # A missing value is the default, as in NVIDIA's backend.
    return {name: value for name, value in values.items() if value is not None}


def _finite(text: str) -> float:
    """A number with a fraction, or NaN and Infinity, which Python reads in JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise RequestError(f"sampling_parameters has the number {text[:40]}: send a finite number")
    return value


def _integer(text: str) -> int:
    # Larger ones raise in the engine, which then ends.
    if len(text) > 20 or not -_INT64 <= (value := int(text)) < _INT64:
        raise RequestError(
            f"sampling_parameters has the number {text[:40]}: send integers of 64 bits"
        )
    return value


def _flag(tensors: Mapping[str, NDArray[Any]], name: str) -> bool | None:
    tensor = tensors.get(name)
    return None if tensor is None or not tensor.size else bool(tensor.reshape(-1)[0])


def _text(tensor: NDArray[Any]) -> str:
    value = tensor.reshape(-1)[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
