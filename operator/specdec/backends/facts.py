"""What the stages of a resource know of its models: checkpoints, engines and images."""

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
    """A fetched checkpoint: content digest (hex), revision, size, and facts from its files."""

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
    """An engine, built or to be built: content key (hex), build plan and place on the volume.

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
    """The results of earlier stages, which each stage passes on.

    `checkpoints` is by role of `SpeculativeModel.sources`, `engines` and `kv_tokens` (the memory
    plan's KV budget in tokens, empty without a plan) by role of `SpeculativeModel.models`.
    `available`: the desired revision serves. `verified`: its verification is over.
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
