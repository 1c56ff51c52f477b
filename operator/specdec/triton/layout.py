"""The layout of a server on GPUs: how engines are split, and GPUs, ranks and processes.

`rank_plan` makes a `RankPlan` of a `Layout`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specdec.api.methods.draft_target import Placement, Topology


class RankError(ValueError):
    """No server can be started on a layout. The text is a sentence with field, value and fix."""


class Mode(StrEnum):
    """How the processes of a server work together.

    `PLAIN` is one process without MPI. With `LEADER` the first rank of an engine leads the others.
    With `ORCHESTRATOR` rank 0 runs no model, and directs the ranks of several engines.
    """

    PLAIN = "Plain"
    LEADER = "Leader"
    ORCHESTRATOR = "Orchestrator"


@dataclass(frozen=True)
class Launch:
    """How a server is started.

    Attributes:
        mode: how its processes work together.
        world_size: its number of MPI ranks, 1 without MPI.
        slots: ranks of each pod of a group, the leader's first; empty for a server in one pod.
    """

    mode: Mode = Mode.PLAIN
    world_size: int = 1
    slots: tuple[int, ...] = ()


PLAIN = Launch()


@dataclass(frozen=True)
class Split:
    """How one engine is split over GPUs, and its ordinals; `rank_plan` chooses them if empty."""

    tensor: int = 1
    pipeline: int = 1
    device_ids: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """The number of ranks of the engine; each has its own file."""
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class Layout:
    """The input of a rank plan.

    Attributes:
        target, draft: the engines; no draft when the target serves alone.
        fast_logits: the draft sends its logits to the target from GPU to GPU.
        one_process: one process runs all engines, each on one rank. It uses GPUs only if the spec
            names ordinals.
        nodes: the number of pods, each on its own node, over which the target's ranks are spread.
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
        gpus: the number of GPUs of each pod; all ordinals are below it.
        gpu_device_ids: ordinals inside a pod by role, one for each rank in that pod. If the target
            is spread over pods, a draft runs only in the leader's pod.
        participant_ids: MPI ranks by role; only with an orchestrator.
    """

    gpus: int
    gpu_device_ids: Mapping[str, tuple[int, ...]]
    launch: Launch = PLAIN
    participant_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def named_ids(self, role: str) -> tuple[int, ...]:
        """The ordinals for an engine's `config.pbtxt`; empty if it is spread over pods.

        The executor requires one ordinal for each rank and no ordinal twice. Ranks in several pods
        have equal ordinals. Without a list, rank r uses GPU r modulo 8 of its own pod.
        """
        spread = bool(self.launch.slots) and role == "target"
        return () if spread else self.gpu_device_ids[role]


@dataclass(frozen=True)
class RankPlan:
    """The servers of a service: one for all models, or one each for target and draft."""

    servers: tuple[Server, ...]

    @property
    def devices(self) -> dict[str, tuple[int, ...]]:
        """Ordinals by role, each inside the pod of its own server."""
        return {
            role: ids for server in self.servers for role, ids in server.gpu_device_ids.items()
        }
