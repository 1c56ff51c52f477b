"""Which GPUs and MPI ranks every model gets, and in which mode a server is started on them.

The function `plan` covers all topologies. It is pure. It returns GPUs, ranks and processes.
"""

from collections.abc import Mapping

from specdec.api.methods.draft_target import Placement, Topology
from specdec.triton.layout import Launch, Layout, Mode, RankError, RankPlan, Server, Split
from specdec.triton.spread import refusal


def plan(layout: Layout) -> RankPlan:
    """Give every engine its GPUs and ranks.

    Raises:
        RankError: no server can be started on this layout.
    """
    for role, split in layout.splits.items():
        _check_split(role, split)
    if layout.nodes != 1:
        return RankPlan((_group(layout),))
    _check_together(layout)
    if layout.one_process:
        given = {role: split.device_ids for role, split in layout.splits.items()}
        return RankPlan((Server(_gpus(given), given),))
    if layout.topology is Topology.TWO_SERVERS:
        return RankPlan(
            tuple(
                _server({role: _derived(split)}, layout) for role, split in layout.splits.items()
            )
        )
    return RankPlan((_server(_placed(layout), layout),))


def _server(devices: dict[str, tuple[int, ...]], layout: Layout) -> Server:
    """A server in one pod, with these ordinals by role.

    Engines on one common GPU share one process, unless `fast_logits` is set. A single engine on
    several GPUs runs in leader mode, in which a model's load returns only in the first rank. Two
    engines therefore need an orchestrator, and each engine has its own ranks.
    """
    ranks = sum(len(ids) for ids in devices.values())
    alone = len(devices) == 1
    together = ranks == len(devices) and len(set(devices.values())) == 1
    if together and not layout.fast_logits:
        return Server(_gpus(devices), devices)
    if alone:
        return Server(_gpus(devices), devices, Launch(Mode.LEADER, ranks))
    launch = Launch(Mode.ORCHESTRATOR, 1 + ranks)
    return Server(_gpus(devices), devices, launch, _participants(layout.target, layout.draft))


def _group(layout: Layout) -> Server:
    """A group of pods, each on its own node: the target's ranks fill one pod after the other.

    A draft shares the GPUs of the leader's pod. Then that pod also runs the orchestrator.
    """
    problem = refusal(layout)
    if problem is not None:
        raise RankError(problem)
    target, draft, nodes = layout.target, layout.draft, layout.nodes
    each = target.ranks // nodes
    devices = {"target": tuple(range(each))}
    if draft is None:
        return Server(each, devices, Launch(Mode.LEADER, target.ranks, (each,) * nodes))
    devices["draft"] = tuple(range(draft.ranks))
    slots = (1 + draft.ranks + each, *[each] * (nodes - 1))
    launch = Launch(Mode.ORCHESTRATOR, sum(slots), slots)
    return Server(each, devices, launch, _participants(target, draft))


def _participants(target: Split, draft: Split | None) -> dict[str, tuple[int, ...]]:
    """MPI ranks by role: rank 0 is the orchestrator, then come the draft's, then the target's."""
    first = 1 + (draft.ranks if draft else 0)
    ranks = {"target": tuple(range(first, first + target.ranks)), "draft": tuple(range(1, first))}
    return ranks if draft else {"target": ranks["target"]}


def _placed(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Ordinals of the engines of one server: those in the spec, or else the lowest possible."""
    target, draft = layout.target, layout.draft
    if draft is None:
        return {"target": _derived(target)}
    dedicated = layout.placement is Placement.DEDICATED
    if draft.device_ids and not target.device_ids:
        ids = _beside(draft.device_ids, target.ranks, dedicated=dedicated)
        return {"target": ids, "draft": draft.device_ids}
    first = _derived(target)
    second = draft.device_ids or _beside(first, draft.ranks, dedicated=dedicated)
    return {"target": first, "draft": second}


def _beside(taken: tuple[int, ...], ranks: int, *, dedicated: bool) -> tuple[int, ...]:
    """The ordinals of a second engine: free ones if dedicated, otherwise first the taken ones."""
    free = [i for i in range(len(taken) + ranks) if i not in taken]
    return tuple(free[:ranks]) if dedicated else (*taken, *free)[:ranks]


def _derived(split: Split) -> tuple[int, ...]:
    return split.device_ids or tuple(range(split.ranks))


def _gpus(devices: Mapping[str, tuple[int, ...]]) -> int:
    return max((i + 1 for ids in devices.values() for i in ids), default=0)


def _check_split(role: str, split: Split) -> None:
    for name, value in (("tensor", split.tensor), ("pipeline", split.pipeline)):
        if value < 1:
            raise RankError(f"parallelism.{name} of the {role} is {value}: set it to 1 or more")
    ids = split.device_ids
    if not ids:
        return
    if len(ids) != split.ranks or len(set(ids)) != len(ids) or min(ids) < 0:
        raise RankError(
            f"gpu.deviceIds of the {role} is {list(ids)}: name {split.ranks} different ordinals "
            "from 0, one for each tensor x pipeline rank"
        )


def _check_together(layout: Layout) -> None:
    if layout.one_process:
        _check_one_process(layout)
        return
    if layout.draft is None:
        _check_alone(layout)
        return
    if layout.topology is Topology.TWO_SERVERS:
        _check_two_servers(layout)
        return
    target, draft = set(layout.target.device_ids), set(layout.draft.device_ids)
    if not target or not draft:
        return
    both = f"gpu.deviceIds is {sorted(target)} for the target and {sorted(draft)} for the draft"
    if layout.placement is Placement.DEDICATED and target & draft:
        raise RankError(
            f"{both}, and placement is Dedicated: give each GPU to only one of them, or set "
            "draftTarget.placement to Shared"
        )
    if layout.placement is Placement.SHARED and not (target <= draft or draft <= target):
        raise RankError(
            f"{both}, and placement is Shared: let one of them use only GPUs of the other, or set "
            "draftTarget.placement to Dedicated"
        )


def _check_one_process(layout: Layout) -> None:
    for role, split in layout.splits.items():
        if split.ranks > 1:
            raise RankError(
                f"parallelism of the {role} is {split.tensor} x {split.pipeline}, and this "
                "backend runs in one process: set tensor and pipeline to 1"
            )
    if layout.topology is Topology.TWO_SERVERS:
        raise RankError(
            "draftTarget.topology is TwoServers, and this backend runs both models in one "
            "server: set it to SingleServer"
        )
    if layout.fast_logits:
        raise RankError(
            "draftTarget.fastLogits is true, and this backend has no ranks to pass logits "
            "between: set it to false"
        )


def _check_alone(layout: Layout) -> None:
    if layout.topology is Topology.TWO_SERVERS:
        raise RankError("topology is TwoServers without a draft: set it to SingleServer")
    if layout.fast_logits:
        raise RankError("fastLogits is true without a draft: set it to false")


def _check_two_servers(layout: Layout) -> None:
    if layout.placement is Placement.SHARED:
        raise RankError(
            "draftTarget.placement is Shared, and two servers are two pods with GPUs of their "
            "own: set it to Dedicated, or topology to SingleServer"
        )
    if layout.fast_logits:
        raise RankError(
            "draftTarget.fastLogits is true, and logits pass only between ranks of one server: "
            "set it to false, or topology to SingleServer"
        )
