"""How the tokens of an answer are selected: what the body sets, and what it leaves out."""

import secrets
import struct
from typing import Any

from specdec.images.openai.models import Common

_MASK = 2**64 - 1
_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens")


def sampling(body: Common, *, draws_seed: bool) -> dict[str, Any]:
    """The sampling parameters of a `Request`; temperature 0 is greedy decoding.

    Args:
        body: a validated body.
        draws_seed: the server gives requests without a seed the same samples, so that clients
            which ask again, or for several answers, would get the same one.
    """
    values: dict[str, Any] = {name: getattr(body, name) for name in _PENALTIES}
    if body.temperature is not None and _single(body.temperature) == 0:
        return values
    values |= {"temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k}
    if body.temperature is not None and body.top_p is None and body.top_k is None:
        # Engines decode greedily at any temperature unless one of these two is set.
        values["top_p"] = 1.0
    if body.seed is not None:
        values["seed"] = body.seed & _MASK
    elif draws_seed and any(values[name] is not None for name in ("top_p", "top_k")):
        values["seed"] = secrets.randbits(63)
    return values


def _single(value: float) -> float:
    """The number rounded to 32 bits, as a server gets it."""
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result
