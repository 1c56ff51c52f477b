"""`e2e_grpc_speculative_decoding_client`: speculation by a client that calls both engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
from numpy.typing import NDArray

from support.published_clients.streams import Inputs
from support.triton_client import request_inputs

_Ids = NDArray[np.int32]


def draft_target(
    urls: tuple[str, str],
    prompt: str,
    length: int = 100,
    *,
    models: tuple[str, str] = ("tensorrt_llm", "tensorrt_llm_draft"),
    draft_tokens: int = 5,
    request_id: str = "1",
) -> str:
    """Decode one prompt; return the whole text.

    Args:
        urls: of the target with `postprocessing`, and of the draft with `preprocessing`.
        prompt: the result begins with it.
        length: maximum number of new tokens.
        models: the target's name and the draft's.
        draft_tokens: number of draft tokens in a round.
        request_id: id of every call.
    """
    target_url, draft_url = urls
    with (
        grpc.InferenceServerClient(target_url) as target,
        grpc.InferenceServerClient(draft_url) as draft,
    ):
        loop = _Loop(target, draft, models, request_id)
        ids = loop.decode(prompt, length, draft_tokens)
        return loop.text(ids)


@dataclass(frozen=True)
class _Loop:
    target: Any
    draft: Any
    models: tuple[str, str]
    request_id: str

    def decode(self, prompt: str, length: int, draft_tokens: int) -> _Ids:
        """Return the ids of the prompt and of at most `length` new tokens."""
        start, common = self._prepare(prompt, length)
        ids, proposed = start, None
        while True:
            count = min(draft_tokens, len(start) + length - len(ids) - 1)
            inputs = {**common, **_continuation(ids, 1)}
            if count > 0:
                drafting = {**common, **_continuation(ids, count)}
                proposed, end = _tokens(self._call(self.draft, self.models[1], drafting))
                tokens = proposed[len(ids) : end]
                inputs.update(_continuation(ids, len(tokens) + 1))
                inputs["draft_input_ids"] = np.expand_dims(tokens, 0)
            previous = ids
            ids, _ = _tokens(self._call(self.target, self.models[0], inputs))
            repeated = proposed is not None and np.array_equal(proposed, ids)
            if len(ids) >= len(start) + length or repeated or np.array_equal(previous, ids):
                return ids

    def text(self, ids: _Ids) -> str:
        """Return the text of all ids."""
        inputs = {
            "TOKENS_BATCH": np.expand_dims(ids, (0, 1)),
            "SEQUENCE_LENGTH": np.array([[len(ids)]], np.int32),
        }
        output = self._call(self.target, "postprocessing", inputs).as_numpy("OUTPUT")
        text: str = output[0].decode("utf8")
        return text

    def _prepare(self, prompt: str, length: int) -> tuple[_Ids, Inputs]:
        """Return the prompt's ids, and the inputs that all engine calls share."""
        inputs = {
            "QUERY": np.array([[prompt.encode()]], object),
            "REQUEST_OUTPUT_LEN": np.array([[length]], np.int32),
        }
        result = self._call(self.draft, "preprocessing", inputs)
        end_id, pad_id = (result.as_numpy(name)[0][0] for name in ("OUT_END_ID", "OUT_PAD_ID"))
        common = {
            "bad_words_list": result.as_numpy("BAD_WORDS_IDS").astype(np.int32),
            "stop_words_list": result.as_numpy("STOP_WORDS_IDS").astype(np.int32),
            "end_id": np.array([[end_id]], np.int32),
            "pad_id": np.array([[pad_id]], np.int32),
            "beam_width": np.array([[1]], np.int32),
            "temperature": np.array([[1.0]], np.float32),
        }
        return np.squeeze(result.as_numpy("INPUT_ID").astype(np.int32), axis=0), common

    def _call(self, client: Any, model: str, inputs: Inputs) -> Any:
        return client.infer(model, request_inputs(inputs), request_id=self.request_id)


def _continuation(ids: _Ids, length: int) -> Inputs:
    return {
        "input_ids": np.expand_dims(ids, 0),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[length]], np.int32),
    }


def _tokens(result: Any) -> tuple[_Ids, int]:
    """Return the tokens of the only beam of the only row, and the sequence length."""
    ids = np.squeeze(result.as_numpy("output_ids").astype(np.int32), axis=(0, 1))
    lengths = result.as_numpy("sequence_length")
    assert lengths.shape == (1, 1)
    return ids, int(lengths[0, 0])
