"""What the layers of a model keep of a sequence: keys and values, a window of them, or a state."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.jobs.checkpoint_config import INTEGER_LIMIT, Config
from specdec.jobs.model_keys import count, first, keys, value

# More is no model.
_MOST_LAYERS = 10_000
# Elements of an index of one byte that share a scale.
_SCALED, _SCALE_BYTES = 128, 4


def facts(own: Config, layers: int, longest: int | None) -> CheckpointFacts:
    """The facts about layers of several kinds; none if every layer keeps all keys and values.

    Args:
        own: what config.json states about the language model.
        layers: their number.
        longest: positions of the longest sequence. A window of as many has no effect.
    """
    stated = [key for key in keys()["layers"]["unplanned"] if own.get(key)]
    window = _window(own, longest)
    counted = kinds(own, layers, window)
    unknown = sorted(set(counted) - {"full", "window", "state", "none"})
    if stated or unknown:
        return CheckpointFacts(unplanned_caches=", ".join([*stated, *unknown])[:80])
    if set(counted) <= {"full"}:
        return NO_FACTS
    state = _state(own) if counted["state"] else 0
    if state is None or counted["state"] * state >= INTEGER_LIMIT:
        return CheckpointFacts(unplanned_caches="linear attention or state space")
    windowed = counted["window"] > 0
    other_heads, other_width = first(own, "window_kv_heads"), first(own, "window_head_dim")
    if first(own, "full_head_dim"):
        # The usual keys are then those of the windows.
        other_heads, other_width = first(own, "kv_heads"), first(own, "head_dim")
    return CheckpointFacts(
        full_layers=counted["full"],
        window_layers=counted["window"] or None,
        window=window if windowed else None,
        window_kv_heads=other_heads if windowed else None,
        window_head_dim=other_width if windowed else None,
        state_layers=counted["state"] or None,
        state_size=counted["state"] * state or None,
    )


def _window(own: Config, longest: int | None) -> int | None:
    """The tokens of a sliding window; None if no layer has one."""
    window = first(own, "window")
    if own.get("use_sliding_window") is False or not window:
        return None
    return None if longest is not None and window >= longest else window


def kinds(own: Config, layers: int, window: int | None) -> Counter[str]:
    """The number of layers of each kind; the name of a kind that the table lacks is its own.

    Layers with attention and a state count as both.
    """
    table, model_type = keys()["layers"], own.get("model_type")
    if model_type in table["both"]:
        return Counter({"full": layers, "state": layers})
    if model_type in table["two_attentions"]:
        return Counter({"full": 2 * layers, "none": layers})
    by_name = {name: kind for kind, names in table["kinds"].items() for name in names}
    listed = [by_name.get(item, item) for item in _listed(own)][: min(layers, _MOST_LAYERS)]
    listed = listed or list(_by_interval(own, min(layers, _MOST_LAYERS)))
    # The last layers read the keys and values of earlier ones, or of an encoder.
    crossed = own.get("cross_attention_layers")
    shared = count(own.get("num_kv_shared_layers")) or 0
    shared += len(crossed) if isinstance(crossed, list) else 0
    if not listed:
        whole = 0 if window else layers
        if window and own.get("use_sliding_window") is True:
            whole = min(count(own.get("max_window_layers")) or 0, layers)
        listed = ["full"] * min(whole, _MOST_LAYERS) + ["window"] * min(
            layers - whole, _MOST_LAYERS
        )
    counted = Counter(listed[: max(len(listed) - shared, 0)])
    counted["none"] += min(shared, len(listed))
    both = counted.pop("both", 0)
    counted.update(full=both, state=both)
    if not window:
        counted["full"] += counted.pop("window", 0)
    return +counted


def number(own: Config) -> int | None:
    """The number of layers, from the list of their kinds where it is not stated."""
    return first(own, "layers") or min(len(_listed(own)), _MOST_LAYERS) or None


def listed_networks(own: Config, layers: int) -> tuple[int, int] | None:
    """Dense feed-forward networks, and networks of experts, that are layers of their own.

    None where each layer has attention and a network.
    """
    table = keys()["layers"]["networks"]
    counted = Counter(table.get(item) for item in _listed(own)[:layers])
    networks = counted["dense"], counted["mixed"]
    return networks if any(networks) else None


def index_bytes(own: Config) -> int | None:
    """Bytes of a token in the index of sparse attention, in all layers; None without an index."""
    width, table = first(own, "index_head_dim"), keys()["index"]
    if not width:
        return None
    layers = number(own) or 0
    stated = {key: value(own, key) for key in table["lists"]}
    lists = {key: entries for key, entries in stated.items() if isinstance(entries, list)}
    counts = [entries[:layers].count(table["lists"][key]) for key, entries in lists.items()]
    layers = min([layers, *(counted for counted in counts if counted)])
    wide = any(key in own for key in table["wide"])
    each = 2 * width if wide else width + _SCALE_BYTES * -(-width // _SCALED)
    return layers * each if layers * each < INTEGER_LIMIT else None


def _listed(own: Config) -> list[str]:
    """The name of the kind of each layer, from a list of them; a number by its name."""
    table: Any = keys()["layers"]
    for key in table["lists"]:
        stated = own.get(key)
        if not isinstance(stated, list | str) or not stated:
            continue
        numbers = table["numbers"].get(key, {})
        return [
            item if isinstance(item, str) else str(numbers.get(int(item), item))
            for item in stated
            if isinstance(item, int | str) and item != "|"
        ]
    return []


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
            if name not in {"source", "given"}
        }
        if not any(key in own for key in row.get("given", own)):
            continue
        known = {name: size for name, size in sizes.items() if size}
        if known.keys() == sizes.keys() and hidden:
            inner = known.get("expand", 0) * hidden or known["heads"] * known["head_dim"]
            state, groups = known.get("state", 0), known.get("groups", 0)
            return inner, 2 * groups * state, state, known["kernel"]
    return None
