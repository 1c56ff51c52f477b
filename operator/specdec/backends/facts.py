"""What is known of a resource's models while its stages run: checkpoints, engines and images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.desired.pod import Volume

NO_VOLUME = Volume(claim="", identity="", single_node=False)


@dataclass(frozen=True)
class Images:
    """The images of a release: our own Jobs' and the default server of each backend.

    `fetch_networks` (CIDR) are what its fetch Jobs reach beside public addresses.
    """

    operator: str
    reference: str
    fetch_networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """A fetched checkpoint: digest of its content (hex), where it lies, size, small facts."""

    role: str
    digest: str
    revision: str
    bytes: int
    facts: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Directory inside every pod that mounts the volume."""
        return f"/models/checkpoints/{self.digest}"


@dataclass(frozen=True)
class Engine:
    """An engine wanted or built: content key (hex), its build plan and where it lies.

    A prebuilt engine is fetched, not built: `checkpoint` is the digest of its directory.
    """

    role: str
    key: str
    plan: Mapping[str, Any]
    checkpoint: str | None = None

    @property
    def path(self) -> str:
        """Directory inside every pod that mounts the volume."""
        if self.checkpoint is not None:
            return f"/models/checkpoints/{self.checkpoint}"
        return f"/models/engines/{self.key}"


@dataclass(frozen=True)
class Facts:
    """What earlier stages found out, handed down the chain.

    `checkpoints` is by role of `SpeculativeModel.sources`, `engines` and `kv_tokens` (the memory
    plan's KV budget in tokens, empty without a plan) by role of `SpeculativeModel.models`.
    `available` says that the wanted revision answers, `verified` that its verification is over.
    """

    version: str = ""
    image: str = ""
    volume: Volume = NO_VOLUME
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    engines_on_volume: frozenset[str] = frozenset()
    kv_tokens: Mapping[str, int] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    repository: str = ""
    available: bool = False
    verified: bool = False
