"""Whether a tree of draft tokens can be decoded: the rules on `choices`, most also in the CRD."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

Choices = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Ceilings:
    """What the engine is built for.

    `depth` is the number of heads (Medusa) or draft steps (EAGLE), `nodes` the number of draft
    tokens. `non_leaves` is how many nodes of one level may have children, None without a limit.
    With `exact` the tree must be exactly `depth` levels deep.
    """

    depth: int
    nodes: int
    non_leaves: int | None = None
    exact: bool = False


# The tree that every release uses if `choices` is empty.
DEFAULT = Ceilings(depth=4, nodes=63, non_leaves=10)


def problem(choices: Choices, built: Ceilings) -> str:
    """What is wrong with a tree, to follow the field's name in a sentence; empty when it is valid.

    Every node needs a path of its own: the C++ runtime does not add the parents of a path.
    """
    paths = set(choices)
    if not choices:
        return _default(built)
    for path in choices:
        if not path or min(path) < 0:
            return f"has the path {list(path)}: write each path as one or more numbers from 0"
        if path[:-1] and path[:-1] not in paths:
            return f"has {list(path)} without its parent {list(path[:-1])}: add the parent"
    if len(paths) < len(choices):
        twice = next(path for path, count in Counter(choices).items() if count > 1)
        return f"has {list(twice)} twice: leave one of them out"
    deepest = max(len(path) for path in paths)
    if deepest > built.depth or (built.exact and deepest != built.depth):
        return (
            f"is {deepest} levels deep, and the engine drafts {built.depth}: change the tree, or "
            "numHeads (Medusa) or numLayers (EAGLE)"
        )
    if len(paths) > built.nodes:
        return (
            f"has {len(paths)} nodes, above maxDraftTokens {built.nodes}: raise maxDraftTokens, "
            "or leave nodes out"
        )
    widest = _widest(paths)
    if built.non_leaves is not None and widest > built.non_leaves:
        return (
            f"has {widest} nodes with children on one level, above maxNonLeavesPerLayer "
            f"{built.non_leaves}: raise maxNonLeavesPerLayer, or leave nodes out"
        )
    return ""


def _default(built: Ceilings) -> str:
    depth = built.depth != DEFAULT.depth if built.exact else built.depth < DEFAULT.depth
    few = built.non_leaves is not None and built.non_leaves < (DEFAULT.non_leaves or 0)
    if not depth and not few:
        return ""
    return (
        f"is empty, and the release's default tree has {DEFAULT.nodes} nodes on {DEFAULT.depth} "
        f"levels, and up to {DEFAULT.non_leaves} nodes of a level have children: raise the "
        "limits of the engine to these numbers, or set choices"
    )


def _widest(paths: Collection[tuple[int, ...]]) -> int:
    """The largest number of nodes with children on one level; at least 1, for the root."""
    parents = {path[:-1] for path in paths}
    return max(Counter(len(parent) for parent in parents).values())


def text(choices: Choices) -> str:
    """Paths as `config.pbtxt` has them: `{0}, {0, 1}`."""
    return ", ".join("{" + ", ".join(str(step) for step in path) + "}" for path in choices)
