"""The GPU memory of a service: the bytes of each model on each GPU, and the tokens of each cache.

Every cache gets an explicit budget. Otherwise two models on one GPU would each take a share of the
memory that is free when they load.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specdec.backends.footprint import BLOCK, Footprint
from specdec.triton.layout import Mode, RankPlan, Server

MIB = 1 << 20
# CUDA context, loaded kernels and library workspaces of one process.
_PROCESS = 1024 * MIB
# CUDA context and memory pool (64 MiB by default) of a process whose kernels run on other GPUs.
_GUEST_CONTEXT = 512 * MIB
# The share of a GPU's memory that the driver reserves.
_DRIVER = 0.01
# Planned caches get at most this share of the free memory, which is the default of
# kv_cache_free_gpu_mem_fraction. The rest is a reserve. Caches that the spec fixes may take more.
_SPENDABLE = 0.9
# The runtime counts the tokens of a cache in 32 bits.
_MOST_TOKENS = (2**31 - 1) // BLOCK * BLOCK
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Budget:
    """The cache size in the spec: tokens, percent of free memory, or neither if it is planned."""

    tokens: int | None = None
    percent: int | None = None


@dataclass(frozen=True)
class Device:
    """One GPU: its models and ordinal ("target+draft:0"), total bytes, and used bytes by part."""

    name: str
    total: int
    parts: Mapping[str, int]

    @property
    def used(self) -> int:
        """Bytes taken, caches included."""
        return sum(self.parts.values())

    @property
    def percent(self) -> int:
        """Percent taken, rounded up."""
        return math.ceil(100 * self.used / self.total)


@dataclass(frozen=True)
class MemoryPlan:
    """How the models and their caches share the GPUs.

    Attributes:
        devices: each GPU of one replica; for a group of pods, those of its leader.
        kv_tokens: tokens of each model's cache, by role; 0 where no memory is left.
        crowded: GPUs that are full without any cache.
        short: roles whose cache cannot hold one sequence of full length.
        overdrawn: GPUs whose fixed caches are larger than the memory that is left for caches.
        tight: roles whose cache cannot hold a full batch of sequences of full length.
    """

    devices: tuple[Device, ...]
    kv_tokens: Mapping[str, int]
    crowded: tuple[Device, ...] = ()
    short: tuple[str, ...] = ()
    overdrawn: tuple[Device, ...] = ()
    tight: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every model loads and can finish its longest sequence."""
        return not (self.crowded or self.short or self.overdrawn)


@dataclass(frozen=True)
class _Gpu:
    """A GPU before its caches: the roles with a rank on it, and bytes by part."""

    name: str
    total: int
    roles: tuple[str, ...]
    parts: Mapping[str, int]

    @property
    def free(self) -> int:
        return max(self.total - sum(self.parts.values()), 0)

    def bytes_of(self, role: str) -> int:
        return sum(size for name, size in self.parts.items() if name.startswith(role))


_Caches = dict[tuple[str, str], int]


def plan(
    gpu_mib: int,
    ranks: RankPlan,
    footprints: Mapping[str, Footprint],
    budgets: Mapping[str, Budget],
    other_gpus: Mapping[str, int] = _NONE,
) -> MemoryPlan:
    """Place every model on its GPUs, and divide the rest of their memory between the caches.

    Models on the same GPU get the same number of tokens, because target and draft process the same
    sequences. If one of them cannot use all of its tokens, the other gets the rest.

    Args:
        gpu_mib: memory of each GPU in MiB, as nvidia-smi shows it.
        ranks: which model has which GPUs.
        footprints, budgets: by role.
        other_gpus: MiB of each GPU of a server on another product, by the role of its model.
    """
    gpus = [
        gpu
        for server in ranks.servers
        for gpu in _gpus(_mib(server, gpu_mib, other_gpus) * MIB, server, footprints)
    ]
    caches = _fixed_caches(gpus, footprints, budgets)
    tokens = _fixed_tokens(gpus, footprints, budgets, caches)
    drawn = {gpu.name: sum(caches.get((gpu.name, r), 0) for r in gpu.roles) for gpu in gpus}
    rooms = {gpu.name: int(gpu.free * _SPENDABLE) - drawn[gpu.name] for gpu in gpus}
    rates = {r: f.kv_per_token for r, f in footprints.items() if r not in tokens}
    caps = {role: _cap(footprints[role]) for role in rates}
    tokens |= _divided(rooms, gpus, rates, caps)
    caches |= {
        (gpu.name, role): tokens[role] * rates[role]
        for gpu in gpus
        for role in gpu.roles
        if role in rates
    }
    devices = {gpu.name: _device(gpu, caches) for gpu in gpus}
    crowded = {gpu.name for gpu in gpus if sum(gpu.parts.values()) >= gpu.total}
    overdrawn = {gpu.name for gpu in gpus if drawn[gpu.name] > gpu.free} - crowded
    return MemoryPlan(
        devices=tuple(devices.values()),
        kv_tokens={role: tokens[role] for role in footprints},
        crowded=tuple(d for d in devices.values() if d.name in crowded),
        overdrawn=tuple(d for d in devices.values() if d.name in overdrawn),
        short=tuple(r for r, f in footprints.items() if tokens[r] < f.sequence),
        tight=tuple(r for r, f in footprints.items() if tokens[r] < f.full_batch),
    )


def _cap(need: Footprint) -> int:
    """The most tokens of a planned cache; a multiple of a block."""
    return _MOST_TOKENS if need.reuses_blocks else need.full_batch


def _mib(server: Server, gpu_mib: int, others: Mapping[str, int]) -> int:
    """MiB of each GPU of a server; only a server of a single role has a product of its own."""
    (first, *_) = server.gpu_device_ids
    return others.get(first, gpu_mib)


def _gpus(total: int, server: Server, footprints: Mapping[str, Footprint]) -> list[_Gpu]:
    """The GPUs of a server's pod, each with the bytes of its ranks before caches."""
    ranks: dict[int, list[str]] = {}
    for role, ids in server.gpu_device_ids.items():
        for ordinal in ids:
            ranks.setdefault(ordinal, []).append(role)
    gpus = []
    for ordinal, roles in sorted(ranks.items()):
        parts = {f"{r}{part}": size for r in roles for part, size in footprints[r].parts.items()}
        parts["runtime"] = _runtime(total, server, roles)
        gpus.append(_Gpu(f"{'+'.join(roles)}:{ordinal}", total, tuple(roles), parts))
    return gpus


def _runtime(total: int, server: Server, roles: Collection[str]) -> int:
    """Bytes of the driver and of the server's processes on one GPU.

    A plain server is one process; others have one process for each rank. Every process opens a
    context and a memory pool on each GPU of its pod. So this GPU also has the contexts and pools
    of ranks on other GPUs, and of the orchestrator.
    """
    launch = server.launch
    if launch.mode is Mode.PLAIN:
        return int(total * _DRIVER) + _PROCESS
    inside = launch.slots[0] if launch.slots else launch.world_size
    guests = (inside - len(roles)) * _GUEST_CONTEXT
    return int(total * _DRIVER) + len(roles) * _PROCESS + guests


def _fixed_caches(
    gpus: Collection[_Gpu], footprints: Mapping[str, Footprint], budgets: Mapping[str, Budget]
) -> _Caches:
    """The bytes on each GPU of the caches that the spec fixes.

    A percentage applies to the memory that is free when its model loads. Of two models on a GPU,
    the first to load gets the larger cache, and the order is not known. So the bytes are those of
    a model that loads first, which is the worst case for the GPU.
    """
    caches: _Caches = {}
    for role, budget in budgets.items():
        for gpu in (gpu for gpu in gpus if role in gpu.roles):
            if budget.tokens is not None:
                caches[gpu.name, role] = budget.tokens * footprints[role].kv_per_token
            elif budget.percent is not None:
                others = sum(gpu.bytes_of(other) for other in gpu.roles if other != role)
                alone = gpu.free + others if gpu.free else 0
                caches[gpu.name, role] = alone * budget.percent // 100
    return caches


def _fixed_tokens(
    gpus: Collection[_Gpu],
    footprints: Mapping[str, Footprint],
    budgets: Mapping[str, Budget],
    caches: _Caches,
) -> dict[str, int]:
    """The tokens of the caches that the spec fixes.

    With a percentage, they are those of a model that loads last, which is the worst case for it.
    """
    tokens: dict[str, int] = {}
    for role, budget in budgets.items():
        if budget.tokens is not None:
            tokens[role] = budget.tokens
        elif budget.percent is not None:
            least = min((_left(gpu, role, caches) for gpu in gpus if role in gpu.roles), default=0)
            rate = footprints[role].kv_per_token
            tokens[role] = least * budget.percent // 100 // rate // BLOCK * BLOCK
    return tokens


def _left(gpu: _Gpu, role: str, caches: _Caches) -> int:
    """Bytes that are free on a GPU when a role loads after the other roles with fixed caches."""
    others = sum(caches.get((gpu.name, other), 0) for other in gpu.roles if other != role)
    return max(gpu.free - others, 0)


def _divided(
    rooms: Mapping[str, int],
    gpus: Collection[_Gpu],
    rates: Mapping[str, int],
    caps: Mapping[str, int],
) -> dict[str, int]:
    """Tokens by role: an equal number for all, until a role reaches its cap or a GPU is full."""
    left, tokens, rising = dict(rooms), dict[str, int](), set(rates)
    while rising:
        tops = dict(caps)
        for gpu in gpus:
            here = rising.intersection(gpu.roles)
            rate = sum(rates[role] for role in here)
            for role in here:
                tops[role] = min(tops[role], max(left[gpu.name], 0) // rate)
        level = min(tops[role] for role in rising)
        for role in [role for role in rising if tops[role] == level]:
            tokens[role] = level // BLOCK * BLOCK
            rising.remove(role)
            for gpu in gpus:
                left[gpu.name] -= tokens[role] * rates[role] if role in gpu.roles else 0
    return tokens


def _device(gpu: _Gpu, caches: _Caches) -> Device:
    kept = {f"{role}KvCache": caches[gpu.name, role] for role in gpu.roles}
    return Device(gpu.name, gpu.total, {**gpu.parts, **kept})
