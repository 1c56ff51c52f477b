"""Which GPUs and which MPI ranks every model gets, and how a server is started on them.

One pure function, `plan`, covers all topologies. Its result has every device, every rank and the
size of the MPI world.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specdec.api.methods.draft_target import Placement, Topology
from specdec.triton.spread import refusal


class RankError(ValueError):
    """One sentence: the field, its value and the fix."""


class Mode(StrEnum):
    """How the processes of a server find each other."""

    PLAIN = "Plain"
    LEADER = "Leader"
    ORCHESTRATOR = "Orchestrator"


@dataclass(frozen=True)
class Launch:
    """How a server is started.

    Attributes:
        mode: how its processes find each other.
        world_size: its number of MPI ranks, 1 without MPI.
        slots: ranks of each pod of a group, the leader's first; empty for a server in one pod.
    """

    mode: Mode = Mode.PLAIN
    world_size: int = 1
    slots: tuple[int, ...] = ()


PLAIN = Launch()


@dataclass(frozen=True)
class Split:
    """How one engine is split over GPUs, and the ordinals it was given; empty means derived."""

    tensor: int = 1
    pipeline: int = 1
    device_ids: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """Rank files of the engine."""
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class Layout:
    """The input of a rank plan.

    Attributes:
        target, draft: the engines; no draft when the target serves alone.
        fast_logits: the draft hands its logits to the target from GPU to GPU.
        one_process: one process runs every engine, as the CPU backend does: a GPU is taken only
            when it is named, and nothing is split.
        nodes: pods, each on a node of its own, over which the target's ranks are spread.
    """

    target: Split
    draft: Split | None = None
    topology: Topology = Topology.SINGLE_SERVER
    placement: Placement = Placement.SHARED
    fast_logits: bool = False
    one_process: bool = False
    nodes: int = 1

    @property
    def splits(self) -> dict[str, Split]:
        """The engines by role, target first."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})


@dataclass(frozen=True)
class Server:
    """One serving pod, or a group of pods that serve as one.

    Attributes:
        gpus: GPUs of each pod; every ordinal below is smaller.
        gpu_device_ids: ordinals inside a pod by role, one per rank that runs there. A draft
            beside a target that is spread over pods runs in the leader's pod alone.
        participant_ids: MPI ranks by role; only a pre-spawned orchestrator has them, and its
            rank 0 runs no model.
    """

    gpus: int
    gpu_device_ids: Mapping[str, tuple[int, ...]]
    launch: Launch = PLAIN
    participant_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def named_ids(self, role: str) -> tuple[int, ...]:
        """The ordinals to write down for an engine; empty for one that is spread over pods.

        The executor takes one ordinal per rank and no ordinal twice, which only an engine inside
        one pod can give; without any, rank r takes GPU r modulo 8 of its own pod.
        """
        spread = bool(self.launch.slots) and role == "target"
        return () if spread else self.gpu_device_ids[role]


@dataclass(frozen=True)
class RankPlan:
    """The servers of a service: one, or that of the target and that of the draft."""

    servers: tuple[Server, ...]

    @property
    def devices(self) -> dict[str, tuple[int, ...]]:
        """Ordinals by role, each inside the pod of its own server."""
        return {
            role: ids for server in self.servers for role, ids in server.gpu_device_ids.items()
        }


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
    """A pod on these devices.

    One engine is led by its first rank. Two engines share one process only on one common GPU:
    in leader mode a rank never returns from loading its first model, so anything larger gets an
    orchestrator, whose models have ranks of their own.
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
    """Pods on nodes of their own: the target's ranks fill one pod after the other.

    A draft shares the leader's GPUs, beside the orchestrator that then holds rank 0.
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
    """MPI ranks behind an orchestrator's: those of the draft, then those of the target."""
    first = 1 + (draft.ranks if draft else 0)
    ranks = {"target": tuple(range(first, first + target.ranks)), "draft": tuple(range(1, first))}
    return ranks if draft else {"target": ranks["target"]}


def _placed(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Devices of the engines of one server; given ordinals stay, the others are the lowest."""
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
    """The ordinals of a second engine: the lowest free ones, after the taken ones if shared."""
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
            f"{both}, and placement is Dedicated: name a GPU for one of them only, or set "
            "draftTarget.placement to Shared"
        )
    if layout.placement is Placement.SHARED and not (target <= draft or draft <= target):
        raise RankError(
            f"{both}, and placement is Shared: name GPUs of the one for the other, or set "
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
            "process: set it to SingleServer"
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
