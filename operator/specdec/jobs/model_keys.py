"""Look up values of `config.json` by the keys of model families, which `model_keys.yaml` lists."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from specdec.api.tables import table
from specdec.jobs.checkpoint_config import INTEGER_LIMIT, Config
from specdec.jobs.weights import corrupt

# Objects in objects: a thinker of an omni model has a text_config.
_DEPTH = 3


@cache
def keys() -> Any:
    """The table."""
    return table("specdec.jobs", "model_keys.yaml")


def language_model(config: Config) -> dict[str, Any]:
    """What config.json states about the language model, with the values that its class adds.

    A larger model has it in an object of its own, beside facts about the whole such as
    `architectures` and `quantization_config`.
    """
    own = {key: value for key, value in config.items() if value is not None}
    for _ in range(_DEPTH):
        name = next((key for key in keys()["wrappers"] if isinstance(own.get(key), dict)), None)
        if name is None:
            break
        inner = {key: value for key, value in own.pop(name).items() if value is not None}
        first = {key: own[key] for key in ("architectures",) if key in own}
        own = own | inner | first
    added = of_model("defaults", own) or {}
    own = {**{key: value for key, value in added.items() if key != "source"}, **own}
    for key in of_model("unpublished", own) or ():
        own.pop(key, None)
    return own


def of_model(table: str, config: Config) -> Any:
    """What a table by `model_type` has about a configuration; None if it has nothing."""
    kind = config.get("model_type")
    return keys()[table].get(kind) if isinstance(kind, str) else None


def value(config: Config, path: str) -> Any:
    """The value of a key, or of a key in an object as in `attn_config.kv_n_heads`."""
    inside: Any = config
    for key in path.split("."):
        inside = inside.get(key) if isinstance(inside, Mapping) else None
    return inside


def first(config: Config, fact: str) -> int | None:
    """The number of a fact, from the first of its keys that has a positive one."""
    return next((n for key in keys()["keys"][fact] if (n := count(value(config, key)))), None)


def size(config: Config, fact: str) -> int | None:
    """As `first`, for a fact whose value must make sense.

    Raises:
        JobError: CheckpointCorrupt: a key has anything but a positive number.
    """
    for key in keys()["keys"][fact]:
        stated = value(config, key)
        if stated is not None:
            if not (number := count(stated)):
                raise corrupt(
                    f"{key} in config.json is {str(stated)[:40]!r}, not a positive number"
                )
            return number
    return None


def count(stated: object) -> int | None:
    """A number from 0 to 64 bits, or the largest of a list of such numbers; else None."""
    if isinstance(stated, list) and stated:
        numbers = [count(item) for item in stated if not isinstance(item, list)]
        return (
            None if None in numbers else max((n for n in numbers if n is not None), default=None)
        )
    if isinstance(stated, float) and stated.is_integer():
        stated = int(stated)
    if isinstance(stated, bool) or not isinstance(stated, int):
        return None
    return stated if 0 <= stated < INTEGER_LIMIT else None
