"""The GPU memory of a service: what each model takes of each GPU, and the tokens left for caches.

The caches' budgets are explicit, so that two models on one GPU never race for what is free.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from specdec.backends.footprint import BLOCK, Footprint
from specdec.triton.layout import Mode, RankPlan, Server

MIB = 1 << 20
# CUDA context, loaded kernels and library workspaces of one process.
_PROCESS = 1024 * MIB
# CUDA context and memory pool (64 MiB by default) of a process that runs no kernel here.
_GUEST_CONTEXT = 512 * MIB
# What the driver keeps of a GPU's memory for itself.
_DRIVER = 0.01
# The runtime never gives more than this share of what is free to caches
# (kv_cache_free_gpu_mem_fraction's default); the rest is the plan's safety reserve.
_SPENDABLE = 0.9


@dataclass(frozen=True)
class Budget:
    """What a user fixed for one model's cache: tokens, percent of what is left, or neither."""

    tokens: int | None = None
    percent: int | None = None


@dataclass(frozen=True)
class Device:
    """One GPU: `name` is its models and ordinal ("target+draft:0"); bytes by part."""

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
    """Who gets what.

    Attributes:
        devices: each GPU of one replica; of a group of pods, those of its leader.
        kv_tokens: tokens of each model's cache, by role; 0 where none is left.
        crowded: GPUs that are full before any cache has a token.
        short: roles whose cache does not hold one longest sequence.
        overdrawn: GPUs whose fixed budgets are larger than what is left.
        tight: roles whose cache does not hold a full batch of longest sequences.
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
class _Slot:
    """A GPU before its caches: the roles with a rank on it, and bytes by part."""

    name: str
    total: int
    roles: tuple[str, ...]
    parts: Mapping[str, int]

    @property
    def free(self) -> int:
        return max(self.total - sum(self.parts.values()), 0)

    def of(self, role: str) -> int:
        return sum(size for name, size in self.parts.items() if name.startswith(role))


_Caches = dict[tuple[str, str], int]


def plan(
    gpu_mib: int,
    ranks: RankPlan,
    footprints: Mapping[str, Footprint],
    budgets: Mapping[str, Budget],
) -> MemoryPlan:
    """Load every model on its GPUs and divide what is left between their caches.

    Models of one GPU get as many tokens each, for target and draft see the same sequences; what
    one of them cannot use goes to the other.

    Args:
        gpu_mib: memory of each GPU in MiB, as nvidia-smi shows it.
        ranks: which model has which GPUs.
        footprints, budgets: by role.
    """
    slots = [s for server in ranks.servers for s in _slots(gpu_mib * MIB, server, footprints)]
    tokens, caches = _fixed(slots, footprints, budgets)
    drawn = {slot.name: sum(caches.get((slot.name, r), 0) for r in slot.roles) for slot in slots}
    rooms = {slot.name: int(slot.free * _SPENDABLE) - drawn[slot.name] for slot in slots}
    rates = {r: f.kv_per_token for r, f in footprints.items() if r not in tokens}
    caps = {role: footprints[role].full_batch for role in rates}
    tokens |= _divided(rooms, slots, rates, caps)
    caches |= {
        (slot.name, role): tokens[role] * rates[role]
        for slot in slots
        for role in slot.roles
        if role in rates
    }
    devices = {slot.name: _device(slot, caches) for slot in slots}
    crowded = {slot.name for slot in slots if sum(slot.parts.values()) >= slot.total}
    overdrawn = {slot.name for slot in slots if drawn[slot.name] > slot.free} - crowded
    return MemoryPlan(
        devices=tuple(devices.values()),
        kv_tokens={role: tokens[role] for role in footprints},
        crowded=tuple(d for d in devices.values() if d.name in crowded),
        overdrawn=tuple(d for d in devices.values() if d.name in overdrawn),
        short=tuple(r for r, f in footprints.items() if tokens[r] < f.sequence),
        tight=tuple(r for r, f in footprints.items() if tokens[r] < f.full_batch),
    )


def _slots(total: int, server: Server, footprints: Mapping[str, Footprint]) -> list[_Slot]:
    """The GPUs of a server's pod, each with what its ranks take before caches."""
    ranks: dict[int, list[str]] = {}
    for role, ids in server.gpu_device_ids.items():
        for ordinal in ids:
            ranks.setdefault(ordinal, []).append(role)
    slots = []
    for ordinal, roles in sorted(ranks.items()):
        parts = {f"{r}{part}": size for r in roles for part, size in footprints[r].parts.items()}
        parts["runtime"] = _runtime(total, server, roles)
        slots.append(_Slot(f"{'+'.join(roles)}:{ordinal}", total, tuple(roles), parts))
    return slots


def _runtime(total: int, server: Server, roles: Collection[str]) -> int:
    """The driver, and one process for all models or one for each rank.

    A tritonserver opens a context and a pool of its own on every GPU it sees: the processes of
    other GPUs' ranks, and the orchestrator's, are on this one too.
    """
    launch = server.launch
    if launch.mode is Mode.PLAIN:
        return int(total * _DRIVER) + _PROCESS
    inside = launch.slots[0] if launch.slots else launch.world_size
    guests = (inside - len(roles)) * _GUEST_CONTEXT
    return int(total * _DRIVER) + len(roles) * _PROCESS + guests


def _fixed(
    slots: Collection[_Slot], footprints: Mapping[str, Footprint], budgets: Mapping[str, Budget]
) -> tuple[dict[str, int], _Caches]:
    """Tokens of the caches that the user fixed, and their bytes on each GPU.

    A percentage is of what is free when that model loads: of more, as long as its neighbour is
    not there yet. Bytes are counted for that case, tokens for the other.
    """
    tokens: dict[str, int] = {}
    caches: _Caches = {}
    for role, budget in budgets.items():
        rate, own = footprints[role].kv_per_token, [s for s in slots if role in s.roles]
        if budget.tokens is not None:
            tokens[role] = budget.tokens
            caches |= {(slot.name, role): budget.tokens * rate for slot in own}
        elif budget.percent is not None:
            least = min((slot.free for slot in own), default=0)
            tokens[role] = least * budget.percent // 100 // rate // BLOCK * BLOCK
            for slot in own:
                others = sum(slot.of(other) for other in slot.roles if other != role)
                alone = slot.free + others if slot.free else 0
                caches[slot.name, role] = alone * budget.percent // 100
    return tokens, caches


def _divided(
    rooms: Mapping[str, int],
    slots: Collection[_Slot],
    rates: Mapping[str, int],
    caps: Mapping[str, int],
) -> dict[str, int]:
    """Tokens by role: all rise together, until each reaches its cap or fills a GPU."""
    left, tokens, rising = dict(rooms), dict[str, int](), set(rates)
    while rising:
        tops = dict(caps)
        for slot in slots:
            here = rising.intersection(slot.roles)
            rate = sum(rates[role] for role in here)
            for role in here:
                tops[role] = min(tops[role], max(left[slot.name], 0) // rate)
        level = min(tops[role] for role in rising)
        for role in [role for role in rising if tops[role] == level]:
            tokens[role] = level // BLOCK * BLOCK
            rising.remove(role)
            for slot in slots:
                left[slot.name] -= tokens[role] * rates[role] if role in slot.roles else 0
    return tokens


def _device(slot: _Slot, caches: _Caches) -> Device:
    kept = {f"{role}KvCache": caches[slot.name, role] for role in slot.roles}
    return Device(slot.name, slot.total, {**slot.parts, **kept})
