"""How the tokens of an answer are selected: what the body sets, and the defaults."""

import secrets
import struct
from collections.abc import Callable
from typing import Any

from pydantic import Field

from specdec.images.openai.models import Common
from specdec.servers.openai_body import Number, OpenBody

_MASK = 2**64 - 1
_PENALTIES = ("presence_penalty", "frequency_penalty", "min_tokens")


class Defaults(OpenBody):
    """What a request leaves out; the names are those of the checkpoint's generation_config.json.

    Without a value there, the temperature is that of OpenAI. Temperature 0 is greedy decoding.
    """

    do_sample: bool | None = None
    temperature: Number | None = Field(None, ge=0)
    top_p: Number | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    repetition_penalty: Number | None = Field(None, gt=0)

    def temperature_of(self, body: Common) -> float:
        """The temperature of a request, rounded to 32 bits as a server gets it."""
        if body.temperature is not None:
            return _single(body.temperature)
        if self.do_sample is False:
            return 0.0
        return 1.0 if self.temperature is None else _single(self.temperature)


GREEDY = Defaults(do_sample=False)


def sampling(
    body: Common, defaults: Defaults, takes: Callable[[str], bool], *, draws_seed: bool
) -> dict[str, Any]:
    """The sampling parameters of a `Request`.

    Args:
        body: a validated body.
        defaults: of the service.
        takes: whether the server has a parameter; a default that it lacks is left out.
        draws_seed: the server gives requests without a seed the same samples, so that clients
            which ask again, or for several answers, would get the same one.
    """
    values: dict[str, Any] = {name: getattr(body, name) for name in _PENALTIES}
    if body.ignore_eos:
        values["end_id"] = -1
    values["repetition_penalty"] = body.repetition_penalty
    if body.repetition_penalty is None and takes("repetition_penalty"):
        values["repetition_penalty"] = defaults.repetition_penalty
    temperature = defaults.temperature_of(body)
    if temperature == 0 or (body.temperature is None and not takes("temperature")):
        return values
    top_p = defaults.top_p if body.top_p is None else body.top_p
    top_k = defaults.top_k if body.top_k is None else body.top_k
    # "Off" is written as -1 or 0.
    values["top_k"] = None if top_k is None else max(0, top_k)
    # Engines decode greedily at any temperature unless one of these two is set.
    values["top_p"] = 1.0 if top_p is None and not values["top_k"] else top_p
    values["temperature"] = temperature
    if body.seed is not None:
        values["seed"] = body.seed & _MASK
    elif draws_seed:
        values["seed"] = secrets.randbits(63)
    return values


def _single(value: float) -> float:
    """The number rounded to 32 bits."""
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result
