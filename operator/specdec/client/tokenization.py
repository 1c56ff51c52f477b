"""Tokenize and detokenize with the server's models, and convert the result to engine inputs.

The client's draft/target loop, single engine calls and verification use it. The tokenizer itself
runs in the preprocessing and postprocessing models, so the client needs none.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.client.errors import BadRequestError, RefusedError
from specdec.client.grpc_calls import Calls, Server, Tensors
from specdec.client.tensors import array, strings
from specdec.servers.sampling import Sampling, input_name
from specdec.triton.model_names import POSTPROCESSING, PREPROCESSING

_OUTPUTS = (
    "INPUT_ID",
    "REQUEST_INPUT_LEN",
    "STOP_WORDS_IDS",
    "BAD_WORDS_IDS",
    "EMBEDDING_BIAS",
    "OUT_END_ID",
    "OUT_PAD_ID",
)


@dataclass(frozen=True)
class Prepared:
    """A tokenized prompt.

    Attributes:
        ids: token ids.
        end_id, pad_id: of the request, or else of the tokenizer.
        stop_words: as token ids.
        lists: non-empty word lists [1, 2, n] and bias [1, vocabulary], by input name.
    """

    ids: tuple[int, ...]
    end_id: int
    pad_id: int
    stop_words: tuple[tuple[int, ...], ...]
    lists: Tensors


async def prepare(calls: Calls, prompt: str, sampling: Sampling) -> Prepared:
    """Tokenize a prompt and its stop, bad and bias words.

    Raises:
        BadRequestError: the prompt is empty.
        RefusedError: the server returned an error, for example because it lacks the model.
    """
    if not prompt:
        raise BadRequestError("prompt is empty; give at least one character")
    answer = await calls.call(PREPROCESSING, _inputs(prompt, sampling), _OUTPUTS)
    length = int(answer["REQUEST_INPUT_LEN"].reshape(-1)[0])
    lists = {
        "stop_words_list": answer["STOP_WORDS_IDS"],
        "bad_words_list": answer["BAD_WORDS_IDS"],
        "embedding_bias": answer["EMBEDDING_BIAS"],
    }
    return Prepared(
        ids=tuple(int(token) for token in answer["INPUT_ID"].reshape(-1)[:length]),
        end_id=int(answer["OUT_END_ID"].reshape(-1)[0]),
        pad_id=int(answer["OUT_PAD_ID"].reshape(-1)[0]),
        stop_words=word_list(answer["STOP_WORDS_IDS"]),
        lists={name: array for name, array in lists.items() if array.size},
    )


async def max_tokens(server: Server, prepared: Prepared, requested: int) -> int:
    """How many of the requested new tokens fit behind a prompt.

    The engine of a speculating target takes longer sequences than the limit that the server
    states. A loop must not use the tokens beyond the limit: a verification step
    near the engine's own maximum would return fewer tokens.

    Raises:
        BadRequestError: the prompt leaves no room for a token.
    """
    parameter = (await server.config(PREPROCESSING)).parameters["max_seq_len"].string_value
    if not parameter.isdecimal() or not (limit := int(parameter)):
        return requested
    if len(prepared.ids) >= limit:
        raise BadRequestError(
            f"the prompt has {len(prepared.ids)} tokens, more than the limit of {limit - 1} at "
            f"{server.url}; give a shorter prompt"
        )
    return min(requested, limit - len(prepared.ids))


def _inputs(prompt: str, sampling: Sampling) -> dict[str, NDArray[Any]]:
    tensors = {
        "QUERY": strings((prompt,)),
        # The model requires a length, which has no effect here: each engine call sets its own.
        "REQUEST_OUTPUT_LEN": np.array([1], np.int32),
    }
    for name, texts in (
        ("STOP_WORDS_DICT", sampling.stop_words),
        ("BAD_WORDS_DICT", sampling.bad_words),
        ("EMBEDDING_BIAS_WORDS", sampling.bias_words),
    ):
        if texts:
            tensors[name] = strings(texts)
    if sampling.bias_weights:
        tensors["EMBEDDING_BIAS_WEIGHTS"] = np.array(sampling.bias_weights, np.float32)
    for name, value in (("END_ID", sampling.end_id), ("PAD_ID", sampling.pad_id)):
        if value is not None:
            tensors[name] = np.array([value], np.int32)
    return {name: array.reshape(1, -1) for name, array in tensors.items()}


async def text(calls: Calls, ids: Sequence[int]) -> str:
    """The text of token ids."""
    if not ids:
        return ""
    tensors = {
        "TOKENS_BATCH": np.array([[ids]], np.int32),
        "SEQUENCE_LENGTH": np.array([[len(ids)]], np.int32),
    }
    answer = await calls.call(POSTPROCESSING, tensors, ("OUTPUT",))
    return str(answer["OUTPUT"].reshape(-1)[0].decode(errors="replace"))


def word_list(table: NDArray[Any]) -> tuple[tuple[int, ...], ...]:
    """The token sequences of a word list [1, 2, n]: row 0 has all ids, row 1 end offsets or -1."""
    if not table.size:
        return ()
    ids, ends = table.reshape(2, -1)
    sequences, start = [], 0
    for end in ends:
        if end < 0:
            break
        sequences.append(tuple(int(token) for token in ids[start:end]))
        start = end
    return tuple(sequences)


def engine_inputs(
    sampling: Sampling, prepared: Prepared, declared: Collection[str], model: str
) -> dict[str, NDArray[Any]]:
    """The inputs that all engine calls for a prompt share, by the engine's names, [1, ...].

    Raises:
        BadRequestError: the engine has no input for a value of the request.
    """
    # Each call sets the first two, and the tokenizer the others.
    excluded = ("seed", "min_tokens", "end_id", "pad_id")
    tensors = {
        input_name(field, declared, model): array(value.batched())
        for field, value in sampling.numbers()
        if field not in excluded
    }
    tensors["end_id"] = np.array([[prepared.end_id]], np.int32)
    tensors["pad_id"] = np.array([[prepared.pad_id]], np.int32)
    # The loop needs the prefix in the output, whatever the server's configuration is.
    tensors["exclude_input_in_output"] = np.array([[False]])
    return {**tensors, **prepared.lists}


def prefix(ids: Sequence[int], length: int) -> dict[str, NDArray[Any]]:
    """The three inputs of every engine call: continue `ids` by at most `length` tokens."""
    return {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[length]], np.int32),
    }


def new_tokens(answer: Tensors, skip: int, engine: str) -> list[int]:
    """The tokens of beam 0 after the first `skip`, which are the prefix of the request.

    Raises:
        RefusedError: the answer is shorter than the prefix, so the engine excludes the prefix.
    """
    length = int(answer["sequence_length"].reshape(-1)[0])
    if length < skip:
        raise RefusedError(
            f"{engine} returned {length} tokens for a prefix of {skip}; "
            "set its parameter exclude_input_in_output to false"
        )
    return [int(token) for token in answer["output_ids"][0, 0, skip:length]]
