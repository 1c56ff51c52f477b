"""Compare two answers, and locate their first difference.

`verification_result` uses it for the prompts of a data set. Answers without token ids are compared
by text, and the server's tokenizer gives the token at the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.client import tokenization
from specdec.client.decoding_paths import PathAnswer
from specdec.client.errors import ClientError
from specdec.client.grpc_calls import Calls, Server
from specdec.client.infer import agreement
from specdec.servers.sampling import Sampling


@dataclass(frozen=True)
class Divergence:
    """The first difference between the answers to one prompt.

    Attributes:
        prompt_index: index of the prompt in the data set, from 0.
        prompt: its text.
        position: index of the first different token; None without a tokenizer.
        expected_token, got_token: ids at `position`; None after the end of an answer.
        expected_token_text, got_token_text: their texts, empty without an id.
        character: index of the first different character; None if the texts are equal.
        expected, got: the complete texts.
    """

    prompt_index: int
    prompt: str
    position: int | None
    expected_token: int | None
    got_token: int | None
    expected_token_text: str
    got_token_text: str
    character: int | None
    expected: str
    got: str


def equal(expected: PathAnswer, got: PathAnswer) -> bool:
    """Whether the answers are equal: by token ids if both have them, otherwise by text."""
    if expected.ids is not None and got.ids is not None:
        return expected.ids == got.ids
    return expected.text == got.text


async def divergence(
    server: Server | None, index: int, prompt: str, expected: PathAnswer, got: PathAnswer
) -> Divergence:
    """Locate the first difference between two answers.

    The server tokenizes answers without ids, together with their prompt. These token ids belong to
    the texts and may differ from the generated ones.

    Args:
        server: that has the tokenizer; None without one.
        index: of the prompt.
        prompt: its text.
        expected: the answer of the baseline.
        got: the verified answer.
    """
    position: int | None = None
    pair: tuple[int | None, int | None] = (None, None)
    texts = ("", "")
    if server is not None:
        position, pair, texts = await _token_difference(server, prompt, expected, got)
    return Divergence(
        index, prompt, position, *pair, *texts, _first(expected.text, got.text),
        expected.text, got.text,
    )  # fmt: skip


async def _token_difference(
    server: Server, prompt: str, expected: PathAnswer, got: PathAnswer
) -> tuple[int | None, tuple[int | None, int | None], tuple[str, str]]:
    """The position of the first difference, its token ids and their texts."""
    position: int | None = None
    pair: tuple[int | None, int | None] = (None, None)
    texts = ("", "")
    async with Calls(server) as calls:
        try:
            before, after = await _ids(calls, prompt, expected, got)
            position = _first(before, after)
            if position is not None:
                pair = (_at(before, position), _at(after, position))
                texts = (await _text(calls, pair[0]), await _text(calls, pair[1]))
        except ClientError:
            # The difference in the texts is reported even without a tokenizer.
            texts = ("", "")
    return position, pair, texts


async def _ids(
    calls: Calls, prompt: str, expected: PathAnswer, got: PathAnswer
) -> tuple[Sequence[int], Sequence[int]]:
    if expected.ids is not None and got.ids is not None:
        return expected.ids, got.ids
    start = len((await tokenization.prepare(calls, prompt, Sampling())).ids)
    before, after = [
        (await tokenization.prepare(calls, prompt + answer.text, Sampling())).ids
        for answer in (expected, got)
    ]
    # A tokenizer may merge the prompt's last token with the answer's first.
    first = _first(before, after)
    start = start if first is None else min(start, first)
    return before[start:], after[start:]


def _first(expected: Sequence[object], got: Sequence[object]) -> int | None:
    return agreement(expected, got)[1]


def _at(ids: Sequence[int], position: int) -> int | None:
    return ids[position] if position < len(ids) else None


async def _text(calls: Calls, token: int | None) -> str:
    return "" if token is None else await tokenization.text(calls, [token])
