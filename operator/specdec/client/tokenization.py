"""Text to tokens and back by the models of a server, and the engine's tensors around them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.client.errors import BadRequestError, RefusedError
from specdec.client.grpc_calls import Calls, Tensors
from specdec.client.model_names import POSTPROCESSING, PREPROCESSING
from specdec.client.sampling import Sampling, spelled, strings

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
    """A prompt as an engine takes it.

    Attributes:
        ids: token ids.
        end_id, pad_id: the tokenizer's, or those asked for.
        stop_words: as token ids.
        lists: word lists [1, 2, n] and bias [1, vocabulary] that are not empty, by input name.
    """

    ids: tuple[int, ...]
    end_id: int
    pad_id: int
    stop_words: tuple[tuple[int, ...], ...]
    lists: Tensors


async def prepare(calls: Calls, prompt: str, sampling: Sampling) -> Prepared:
    """Tokenize a prompt and its words.

    Raises:
        BadRequestError: the prompt is empty.
        RefusedError: the server's words, for example that it has no such model.
    """
    if not prompt:
        raise BadRequestError("prompt is empty; give at least one character")
    answer = await calls.call(PREPROCESSING, _question(prompt, sampling), _OUTPUTS)
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
        stop_words=words(answer["STOP_WORDS_IDS"]),
        lists={name: array for name, array in lists.items() if array.size},
    )


def _question(prompt: str, sampling: Sampling) -> dict[str, NDArray[Any]]:
    tensors = {
        "QUERY": strings((prompt,)),
        # The model wants a length; the loop sets its own in every round.
        "REQUEST_OUTPUT_LEN": np.array([1], np.int32),
    }
    for name, given in (
        ("STOP_WORDS_DICT", sampling.stop_words),
        ("BAD_WORDS_DICT", sampling.bad_words),
        ("EMBEDDING_BIAS_WORDS", sampling.bias_words),
    ):
        if given:
            tensors[name] = strings(given)
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


def words(table: NDArray[Any]) -> tuple[tuple[int, ...], ...]:
    """Token sequences of a word list [1, 2, n]: row 0 all ids, row 1 end offsets, -1 pads."""
    if not table.size:
        return ()
    ids, ends = table.reshape(2, -1)
    found, start = [], 0
    for end in ends:
        if end < 0:
            break
        found.append(tuple(int(token) for token in ids[start:end]))
        start = end
    return tuple(found)


def engine_inputs(
    sampling: Sampling, prepared: Prepared, declared: Collection[str], model: str
) -> dict[str, NDArray[Any]]:
    """What every call for one prompt carries, by the names the engine declares, [1, ...].

    Raises:
        BadRequestError: the engine has no input for a value that was asked for.
    """
    # These are set anew in every round, or by the tokenizer.
    apart = ("seed", "min_tokens", "end_id", "pad_id")
    tensors = {
        spelled(field, declared, model): array.reshape(1, -1)
        for field, array in sampling.numbers()
        if field not in apart
    }
    tensors["end_id"] = np.array([[prepared.end_id]], np.int32)
    tensors["pad_id"] = np.array([[prepared.pad_id]], np.int32)
    # Without it the server's configuration decides, and a loop needs the prefix back.
    tensors["exclude_input_in_output"] = np.array([[False]])
    return {**tensors, **prepared.lists}


def prefix(ids: Sequence[int], length: int) -> dict[str, NDArray[Any]]:
    """The three inputs of every engine call: continue `ids` by at most `length` tokens."""
    return {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[length]], np.int32),
    }


def new(answer: Tensors, skip: int, who: str) -> list[int]:
    """Tokens of beam 0 behind the first `skip`, which are the prefix that was sent.

    Raises:
        RefusedError: the answer is shorter than the prefix, so nothing behind it can be found.
    """
    length = int(answer["sequence_length"].reshape(-1)[0])
    if length < skip:
        raise RefusedError(
            f"{who} answered {length} tokens to a prefix of {skip}; "
            "set its parameter exclude_input_in_output to false"
        )
    return [int(token) for token in answer["output_ids"][0, 0, skip:length]]
