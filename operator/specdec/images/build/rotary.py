"""Compare the rotary embedding of a checkpoint with the one that a converter of heads wrote.

Converters of EAGLE, Medusa and ReDrafter heads ignore `rope_theta` and `rope_scaling`, or reduce
the scaling to its type, depending on the release. The engine then loads, and its text is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failure import BuildError

# The base of Llama and Qwen2 where a configuration has none.
_BASE = 10000.0
_TYPES = ("rope_type", "type")
# Fields of a checkpoint's config.json; newer releases of transformers write the last one alone.
_SOURCES = ("rope_theta", "rope_scaling", "rope_parameters")
# Parameters that TensorRT-LLM reads of `rotary_scaling`, by type
# (`Attention.create_attention_const_params` and `RopeEmbeddingUtils`).
_HELD = {
    "linear": frozenset({"factor"}),
    "dynamic": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset(
        {
            "factor",
            "original_max_position_embeddings",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
        }
    ),
}
# From 1.0 on, TensorRT-LLM scales the base once, by alpha, and ignores the factor.
_DYNAMIC_SINCE_1 = frozenset({"alpha"})
# Neither transformers nor TensorRT-LLM computes with these parameters.
_UNUSED = {"linear": frozenset({"original_max_position_embeddings"})}


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding: its base (theta), its kind of scaling, and the kind's parameters."""

    base: float
    kind: str = "default"
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """The scaling in a message."""
        if self.kind == "default":
            return "absent"
        listed = ", ".join(f"{name} {value}" for name, value in self.parameters)
        return f"{self.kind} ({listed})"[:200] if listed else self.kind

    @property
    def scaling(self) -> dict[str, Any] | None:
        """`rotary_scaling` of TensorRT-LLM: with both spellings of the type, or None."""
        if self.kind == "default":
            return None
        return {**dict.fromkeys(_TYPES, self.kind), **dict(self.parameters)}


def of_checkpoint(config: Mapping[str, Any]) -> Rotary:
    """Read the rotary embedding in any spelling that transformers has used.

    Raises:
        BuildError: a field has a value of another type.
    """
    name = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    scaling = config.get(name) or {}
    if not isinstance(scaling, Mapping):
        raise _damaged(name, scaling, "an object")
    # As transformers does: the base inside the object comes first.
    base = scaling.get("rope_theta") or config.get("rope_theta") or _BASE
    if isinstance(base, bool) or not isinstance(base, int | float) or not base > 0:
        raise _damaged("rope_theta", base, "a positive number")
    kind = next((scaling[key] for key in _TYPES if scaling.get(key)), "default")
    if not isinstance(kind, str):
        raise _damaged(f"type of {name}", kind, "a name")
    given = {
        k: v for k, v in scaling.items() if k not in (*_TYPES, "rope_theta") and v is not None
    }
    positions = config.get("max_position_embeddings")
    if kind == "yarn" and positions:
        # TensorRT-LLM takes 4096 where transformers takes the length of the configuration.
        given.setdefault("original_max_position_embeddings", positions)
    for unused in _UNUSED.get(kind, ()):
        given.pop(unused, None)
    return Rotary(float(base), kind, tuple(sorted(given.items())))


def has_rotary(config: Mapping[str, Any]) -> bool:
    """Whether a config.json has a rotary embedding of its own."""
    return any(config.get(name) for name in _SOURCES)


def restore(path: Path, base: Rotary, net: Rotary, version: str) -> Iterator[str]:
    """Write into a converted checkpoint's `config.json` what its converter lost.

    Args:
        path: the file, in the folder of a step that is not done yet.
        base: of the target's checkpoint.
        net: of the EAGLE net, which is a model of its own inside the file.
        version: the release that defines the file's format.

    Yields:
        a sentence for each value that was lost.

    Raises:
        BuildError: RotaryMismatch; the format cannot hold what was lost.
    """
    config = json.loads(path.read_text(encoding="utf-8"))
    sentences = list(_restore(config, base, version, "the heads' checkpoint"))
    inner = config.get("eagle_net_config")
    if isinstance(inner, dict):
        sentences += _restore(inner, net, version, "eagle_net_config")
    if sentences:
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    yield from sentences


def _restore(config: dict[str, Any], source: Rotary, version: str, where: str) -> Iterator[str]:
    converted = config.get("rotary_base", _BASE)
    if converted != source.base:
        yield f"restored rotary_base {source.base} of {where}, where it was {converted}"
    config["rotary_base"] = source.base
    given = config.get("rotary_scaling")
    if _same(given, source):
        return
    actual = of_checkpoint({"rope_scaling": given}) if isinstance(given, dict) else Rotary(_BASE)
    missing = _not_held(source, version)
    if missing:
        raise BuildError(
            "RotaryMismatch",
            f"rotary_scaling is {actual.text} after the conversion of the heads and "
            f"{source.text} in the checkpoint, and TensorRT-LLM {version} cannot hold {missing}: "
            "use another target, or an engine of your own in engine.prebuilt",
        )
    config["rotary_scaling"] = source.scaling
    yield f"restored rotary_scaling {source.text} of {where}, where it was {actual.text}"


def _same(given: object, source: Rotary) -> bool:
    """Whether a `rotary_scaling` states at least what the source does."""
    if source.kind == "default":
        return given is None
    if not isinstance(given, Mapping):
        return False
    kind = given.get("type") or given.get("rope_type")
    return kind == source.kind and all(given.get(name) == v for name, v in source.parameters)


def _not_held(source: Rotary, version: str) -> str:
    """The values that a release's format cannot store; empty if it can store all."""
    if source.kind == "default":
        return ""
    held = _HELD.get(source.kind)
    if held is None:
        return source.kind
    if source.kind == "dynamic" and not version.startswith("0."):
        held = _DYNAMIC_SINCE_1
    names = [name for name, _ in source.parameters if name not in held]
    return f"{' and '.join(names)} of {source.kind}" if names else ""


def _damaged(name: str, value: object, expected: str) -> BuildError:
    return BuildError(
        "CheckpointCorrupt",
        f"{name} in config.json is {value!r:.80}, not {expected}; fetch the checkpoint again",
    )
