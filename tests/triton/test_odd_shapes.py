"""Invalid inputs of the text models get one sentence without paths, and answers go on."""

import numpy as np
import pytest

from support.triton_client import Arrays, RefusedError, ask_once
from support.triton_server import Server


def texts(server: Server, tokens: object, lengths: object) -> Arrays:
    """Return the answer of `postprocessing` to these tokens and lengths."""
    return ask_once(
        server.url,
        "postprocessing",
        TOKENS_BATCH=np.array(tokens, np.int32),
        SEQUENCE_LENGTH=np.array(lengths, np.int32),
    )


@pytest.mark.parametrize(
    ("tokens", "lengths"),
    [
        ([[[33, 34]]], [[1, 1]]),
        ([[[33, 34]]], [[-1]]),
        ([[[33, 34]]], [[3]]),
        ([[[33], [34]]], [[1]]),
        ([[[33]]], [[2**31 - 1]]),
        (np.empty((1, 2, 0)), [[0, 0, 0]]),
    ],
)
def test_postprocessing_refuses_odd_shapes_with_a_sentence(
    server: Server, tokens: object, lengths: object
) -> None:
    with pytest.raises(RefusedError) as refused:
        texts(server, tokens, lengths)
    sentence = str(refused.value)
    assert "SEQUENCE_LENGTH has " in sentence
    assert ": send " in sentence
    assert "Traceback" not in sentence
    assert "/" not in sentence
    assert "\n" not in sentence
    assert texts(server, [[[33, -1, 5000, 34]]], [[4]])["OUTPUT"].tolist() == [b"AB"]


def test_preprocessing_refuses_lists_of_many_items(server: Server) -> None:
    with pytest.raises(RefusedError, match="stop_words has 2000 items, more than the limit of"):
        ask_once(
            server.url,
            "preprocessing",
            QUERY="ab",
            REQUEST_OUTPUT_LEN=4,
            STOP_WORDS_DICT=["a"] * 2000,
        )
