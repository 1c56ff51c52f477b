"""What the layers of a model keep of a sequence: keys and values, a window of them, or a state."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.jobs.checkpoint_config import INTEGER_LIMIT, Config
from specdec.jobs.model_keys import count, first, keys, value

# More is no model.
_MOST_LAYERS = 10_000


def facts(own: Config, layers: int, longest: int | None) -> CheckpointFacts:
    """The facts about layers of several kinds; none if every layer keeps all keys and values.

    Args:
        own: what config.json states about the language model.
        layers: their number.
        longest: positions of the longest sequence. A window of as many has no effect.
    """
    stated = [key for key in keys()["layers"]["unplanned"] if own.get(key)]
    window = _window(own, longest)
    kinds = _kinds(own, layers, window)
    unknown = sorted(set(kinds) - {"full", "window", "state", "none"})
    if stated or unknown:
        return CheckpointFacts(unplanned_caches=", ".join([*stated, *unknown])[:80])
    if set(kinds) <= {"full"}:
        return NO_FACTS
    state = _state(own) if kinds["state"] else 0
    if state is None or kinds["state"] * state >= INTEGER_LIMIT:
        return CheckpointFacts(unplanned_caches="linear attention or state space")
    windowed = kinds["window"] > 0
    other_heads, other_width = first(own, "window_kv_heads"), first(own, "window_head_dim")
    if first(own, "full_head_dim"):
        # The usual keys are then those of the windows.
        other_heads, other_width = first(own, "kv_heads"), first(own, "head_dim")
    return CheckpointFacts(
        full_layers=kinds["full"],
        window_layers=kinds["window"] or None,
        window=window if windowed else None,
        window_kv_heads=other_heads if windowed else None,
        window_head_dim=other_width if windowed else None,
        state_layers=kinds["state"] or None,
        state_size=kinds["state"] * state or None,
    )


def _window(own: Config, longest: int | None) -> int | None:
    """The tokens of a sliding window; None if no layer has one."""
    window = first(own, "window")
    if own.get("use_sliding_window") is False or not window:
        return None
    return None if longest is not None and window >= longest else window


def _kinds(own: Config, layers: int, window: int | None) -> Counter[str]:
    """The number of layers of each kind; the name of a kind that the table lacks is its own."""
    table, model_type = keys()["layers"], own.get("model_type")
    if model_type in table["both"]:
        return Counter({"full": layers, "state": layers})
    if model_type in table["two_attentions"]:
        return Counter({"full": 2 * layers, "none": layers})
    listed = list(_listed(own)) or list(_by_interval(own, min(layers, _MOST_LAYERS)))
    # The last layers read the keys and values of earlier ones.
    shared = count(own.get("num_kv_shared_layers")) or 0
    if not listed:
        whole = 0 if window else layers
        if window and own.get("use_sliding_window") is True:
            whole = min(count(own.get("max_window_layers")) or 0, layers)
        counted = Counter({"full": whole, "window": layers - whole})
    else:
        counted = Counter(listed[: max(min(len(listed), _MOST_LAYERS) - shared, 0)])
        counted["none"] += min(shared, len(listed))
    if not window:
        counted["full"] += counted.pop("window", 0)
    return +counted


def _listed(own: Config) -> Iterable[str]:
    """The kind of each layer, from a list of them."""
    table: Any = keys()["layers"]
    by_name = {name: kind for kind, names in table["kinds"].items() for name in names}
    for key in table["lists"]:
        stated = own.get(key)
        if not isinstance(stated, list | str) or not stated:
            continue
        numbers = table["numbers"].get(key, {})
        for item in stated:
            if isinstance(item, str) and item != "|":
                yield by_name.get(item, item)
            elif isinstance(item, int):
                yield numbers.get(int(item), str(item))
        return


def _by_interval(own: Config, layers: int) -> Iterable[str]:
    """The kind of each layer, where every n-th one or those in a list have full attention."""
    table: Any = keys()["layers"]
    for key in table["full_lists"]:
        whole = value(own, key)
        if isinstance(whole, list) and whole:
            full = min(len(whole), layers)
            return ["full"] * full + ["state"] * (layers - full)
    for key, kind in table["intervals"].items():
        stated = own.get(key)
        if isinstance(stated, str) and set(stated) == {"L", "G"}:
            full = (stated * layers)[:layers].count("G")
        elif every := count(stated):
            full = layers // every
        else:
            continue
        return ["full"] * full + [kind] * (layers - full)
    return ()


def mixer_parameters(own: Config) -> int | None:
    """Parameters of one layer with a state; None if a size is not stated."""
    sizes = _state_sizes(own)
    return None if sizes is None else (first(own, "hidden_size") or 0) * (3 * sizes[0] + sizes[1])


def _state(own: Config) -> int | None:
    """Elements of the state of one layer; None if a size is not stated."""
    sizes = _state_sizes(own)
    if sizes is None:
        return None
    inner, grouped, state, kernel = sizes
    return (kernel - 1) * (inner + grouped) + inner * state


def _state_sizes(own: Config) -> tuple[int, int, int, int] | None:
    """Inner width, 2 x groups x state, state and kernel; None if a size is not stated."""
    hidden = first(own, "hidden_size") or 0
    for row in keys()["states"]:
        sizes = {
            name: key if isinstance(key, int) else count(value(own, key))
            for name, key in row.items()
            if name != "source"
        }
        known = {name: size for name, size in sizes.items() if size}
        if known.keys() == sizes.keys() and hidden:
            inner = known.get("expand", 0) * hidden or known["heads"] * known["head_dim"]
            state, groups = known.get("state", 0), known.get("groups", 0)
            return inner, 2 * groups * state, state, known["kernel"]
    return None
