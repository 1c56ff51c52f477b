"""Where two answers part, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.client import tokenization
from specdec.client.decoding_paths import PathAnswer
from specdec.client.errors import ClientError
from specdec.client.grpc_calls import Calls, Server
from specdec.client.infer import agreement
from specdec.client.sampling import Sampling


@dataclass(frozen=True)
class Divergence:
    """The first difference between the answers to one prompt.

    Attributes:
        prompt_index: the prompt's place in the data set, from 0.
        prompt: its text.
        position: token of the answer, from 0; None where no server turns text into tokens.
        expected_token, got_token: ids there; None behind an answer's end, or with `position` None.
        expected_token_text, got_token_text: their texts, empty without an id.
        character: the first that differs in the answers' texts; None where the texts are equal.
        expected, got: the whole texts.
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
    """Token ids are compared where both answers have them, else the texts."""
    if expected.ids is not None and got.ids is not None:
        return expected.ids == got.ids
    return expected.text == got.text


async def divergence(
    server: Server, index: int, prompt: str, expected: PathAnswer, got: PathAnswer
) -> Divergence:
    """Where two answers part.

    Answers without ids are turned into tokens behind their prompt by the server, both in the same
    way: the ids are then those of the texts, which need not be those that were generated.

    Args:
        server: has the tokenizer.
        index: of the prompt.
        prompt: its text.
        expected: the baseline's answer.
        got: the one that is verified.
    """
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
            # The texts differ whether or not somebody there can name the tokens.
            texts = ("", "")
    return Divergence(
        index, prompt, position, *pair, *texts, _first(expected.text, got.text),
        expected.text, got.text,
    )  # fmt: skip


async def _ids(
    calls: Calls, prompt: str, expected: PathAnswer, got: PathAnswer
) -> tuple[Sequence[int], Sequence[int]]:
    if expected.ids is not None and got.ids is not None:
        return expected.ids, got.ids
    start = len((await tokenization.prepare(calls, prompt, Sampling())).ids)
    before, after = [
        (await tokenization.prepare(calls, prompt + said.text, Sampling())).ids
        for said in (expected, got)
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
