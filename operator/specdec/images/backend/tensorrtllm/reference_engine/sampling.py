"""Choosing a token: a pure function of the logits, the tokens before it and the request.

Randomness is counter-based: the noise at a position depends on the seed and the absolute position
only. So a request draws the same tokens in one go, in rounds of speculation, in any batch.

Choices are made by Gumbel-max: an argmax of logits plus noise is a sample of their softmax. So a
sampled choice is as easy to guard against rounding as a greedy one: see `Choice.sure`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .kv import Tokens
from .weights import Floats
from .word_lists import EMPTY, WordList, banned

Doubles = npt.NDArray[np.float64]

# Independent streams of noise at one position: the choice itself, and rejection sampling's draws.
_CHOICE, _ACCEPT, _RESIDUAL = 0, 1, 2


@dataclass(frozen=True)
class Sampling:
    """The sampling parameters of a request, with TensorRT-LLM's defaults.

    `top_k` 0 is all tokens. Without a `top_k` or `top_p` decoding is greedy.
    """

    top_k: int = 0
    top_p: float = 0.0
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    end_id: int = -1
    min_length: int = 0
    bad_words: WordList = EMPTY
    bias: Floats | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return (
            self.top_k == 1 or (self.top_k == 0 and self.top_p == 0.0) or self.temperature == 0.0
        )

    @property
    def candidate_count(self) -> int:
        """Number of tokens to choose from before `top_p`; 0 is all tokens."""
        return 1 if self.greedy else self.top_k

    @property
    def plain(self) -> bool:
        """Whether the logits are used as they are."""
        return (
            self.repetition_penalty == 1.0
            and self.presence_penalty == self.frequency_penalty == 0.0
            and not self.bad_words
            and self.bias is None
        )


@dataclass(frozen=True)
class Choice:
    """A token. `sure`: logits that differ only by rounding would have given the same one."""

    token: int
    sure: bool


def adjust(rules: Sampling, logits: Floats, tokens: Tokens, generated: int) -> Floats:
    """Apply bias, penalties, bad words and the minimum length.

    Penalties count the prompt as well as the answer, because a BLS sends generated tokens again as
    part of the prompt. Only so is a speculated answer equal to a plain one.

    Args:
        logits: [vocabulary], left unchanged.
        tokens: everything before the token to choose.
        generated: how many of them are answer.

    Returns:
        [vocabulary], the same array where nothing applies.
    """
    hold_end = generated < rules.min_length and 0 <= rules.end_id < logits.size
    if rules.plain and not hold_end:
        return logits
    result = logits.copy() if rules.bias is None else logits + rules.bias
    if rules.repetition_penalty != 1.0:
        seen = np.unique(tokens)
        values = result[seen]
        penalty = np.float32(rules.repetition_penalty)
        result[seen] = np.where(values > 0, values / penalty, values * penalty)
    if rules.presence_penalty != 0.0 or rules.frequency_penalty != 0.0:
        seen, counts = np.unique(tokens, return_counts=True)
        penalties = rules.presence_penalty + rules.frequency_penalty * counts
        result[seen] -= penalties.astype(np.float32)
    bad = banned(tokens, rules.bad_words)
    result[bad[(bad >= 0) & (bad < result.size)]] = -np.inf
    if hold_end:
        result[rules.end_id] = -np.inf
    return result


def choose(rules: Sampling, logits: Floats, position: int, noise: float) -> Choice:
    """Choose the token at `position` from adjusted logits.

    Args:
        noise: how far rounding may move a logit.
    """
    if rules.greedy:
        return _best(logits, noise)
    inverse = 1.0 / rules.temperature
    scaled = logits.astype(np.float64) * inverse
    blur = noise * inverse
    surely, maybe = _kept(rules, scaled, blur)
    scores = scaled + gumbel(rules.seed, position, logits.size)
    scores[~maybe] = -np.inf
    choice = _best(scores, blur)
    return choice if surely[choice.token] else Choice(choice.token, False)


def _best(scores: npt.NDArray[Any], noise: float) -> Choice:
    token = int(scores.argmax())
    first = scores[token]
    scores[token] = -np.inf
    second = np.maximum.reduce(scores)
    scores[token] = first
    return Choice(token, float(first) - float(second) > 2 * noise)


def _kept(
    rules: Sampling, scaled: Doubles, blur: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which tokens are surely inside top-k and top-p, and which may be."""
    surely = np.isfinite(scaled)
    maybe = surely.copy()
    if 0 < rules.top_k < scaled.size:
        ranked = np.sort(scaled)
        last_in, first_out = ranked[-rules.top_k], ranked[-rules.top_k - 1]
        surely &= scaled > first_out + 2 * blur
        maybe &= scaled >= last_in - 2 * blur
    if 0.0 < rules.top_p < 1.0:
        _cut_mass(rules.top_p, scaled, blur, surely, maybe)
    return surely, maybe


def _cut_mass(
    top_p: float,
    scaled: Doubles,
    blur: float,
    surely: npt.NDArray[np.bool_],
    maybe: npt.NDArray[np.bool_],
) -> None:
    """Leave in both sets what top-p keeps of the (renormalised) top-k set.

    A token is kept while the mass of likelier ones is below `top_p`. Neighbours closer than the
    blur may change places, so that mass has a lower and an upper bound.
    """
    inside = np.where(maybe, scaled, -np.inf)
    rising = np.sort(inside)
    weights = np.exp(rising - rising[-1])
    above = np.append(weights[::-1].cumsum()[::-1], 0.0) / weights.sum()
    least = above[np.searchsorted(rising, inside + 2 * blur, side="right")]
    most = above[np.searchsorted(rising, inside - 2 * blur, side="left")]
    most -= np.exp(inside - rising[-1]) / weights.sum()
    slack = 4 * blur
    best = int(inside.argmax())
    border = not np.array_equal(surely, maybe)
    maybe &= least < top_p + slack
    if border:
        # The mass is a share of the top-k set, and it is not certain which tokens are in that set.
        surely[:] = False
    elif blur:
        surely &= most < top_p - slack
        surely[best] = most[best] <= least[best] + 1e-12
    else:
        surely &= maybe


def probabilities(rules: Sampling, logits: Floats) -> Doubles:
    """Return [vocabulary] the distribution that the rules sample adjusted logits from."""
    result: Doubles = np.zeros(logits.size)
    if rules.greedy:
        result[int(logits.argmax())] = 1.0
        return result
    scaled = logits.astype(np.float64) / rules.temperature
    order = np.argsort(-scaled, kind="stable")
    weights: Doubles = np.exp(scaled - scaled[order[0]])
    if 0 < rules.top_k < scaled.size:
        weights[order[rules.top_k :]] = 0.0
    if 0.0 < rules.top_p < 1.0:
        ranked = weights[order]
        outside = (np.cumsum(ranked) - ranked) / ranked.sum() >= rules.top_p
        outside[0] = False
        weights[order[outside]] = 0.0
    np.divide(weights, weights.sum(), out=result)
    return result


def gumbel(seed: int, position: int, size: int) -> Doubles:
    """Return [size] standard Gumbel noise of one seed and position."""
    noise: Doubles = -np.log(-np.log(_uniform(seed, position, _CHOICE, size)))
    return noise


def accept_draw(seed: int, position: int) -> float:
    """Return the uniform number that decides whether a drafted token is accepted."""
    return float(_uniform(seed, position, _ACCEPT, 1)[0])


def draw(seed: int, position: int, distribution: Doubles) -> int:
    """Sample [vocabulary] probabilities with the noise of one seed and position."""
    target = _uniform(seed, position, _RESIDUAL, 1)[0] * distribution.sum()
    index = int(np.searchsorted(np.cumsum(distribution), target, side="right"))
    return min(index, int(np.flatnonzero(distribution)[-1]))


def _uniform(seed: int, position: int, stream: int, size: int) -> Doubles:
    """Philox (Salmon et al. 2011) of seed, position and stream: [size] numbers in (0, 1)."""
    bits = np.random.Philox(key=seed & (2**64 - 1), counter=[0, 0, stream, position])
    integers = bits.random_raw(size)
    numbers: Doubles = (integers >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    return numbers


def log_probability(logits: Floats, token: int, candidate_count: int = 0) -> float:
    """Return the log softmax of a token over so many of the likeliest tokens; 0 is all tokens."""
    top = np.maximum.reduce(logits)
    kept = logits if candidate_count == 0 else np.sort(logits)[-candidate_count:]
    total = np.exp(kept - top, dtype=np.float64).sum()
    return float(logits[token] - top - np.log(total))
