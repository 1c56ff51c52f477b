"""What earlier stages of a resource pass to later ones: checkpoints, engines and images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.desired.pod import Volume
from specdec.triton.contract import RequestFields

NO_VOLUME = Volume(claim="", identity="", single_node=False)


@dataclass(frozen=True)
class Images:
    """The images of a release: the operator's, which its Jobs run too, and the Reference server's.

    `fetch_networks` (CIDR) are what fetch Jobs may connect to besides public addresses. The
    operator serves nothing in `excluded_namespaces`.
    """

    operator: str
    reference: str
    fetch_networks: tuple[str, ...] = ()
    excluded_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """A fetched checkpoint: content digest (hex), revision, size, and facts from its files."""

    role: str
    digest: str
    revision: str
    bytes: int
    facts: CheckpointFacts

    @property
    def path(self) -> str:
        """Directory inside every pod that mounts the volume."""
        return f"/models/checkpoints/{self.digest}"


@dataclass(frozen=True)
class Engine:
    """An engine that exists or will be built: content key (hex), build plan, path on the volume.

    A prebuilt engine is fetched, not built: `checkpoint` is the digest of its directory. `reads`
    are the bytes of the checkpoints that its build reads.
    """

    role: str
    key: str
    plan: Mapping[str, Any]
    checkpoint: str | None = None
    reads: int = 0

    @property
    def path(self) -> str:
        """Directory inside every pod that mounts the volume."""
        if self.checkpoint is not None:
            return f"/models/checkpoints/{self.checkpoint}"
        return f"/models/engines/{self.key}"


@dataclass(frozen=True)
class Facts:
    """The results of earlier stages, which each stage passes on.

    The keys of `checkpoints` are the roles of `SpeculativeModel.sources`. The keys of `engines`
    and `kv_tokens` are the roles of `SpeculativeModel.models`. `kv_tokens` are the cache sizes of
    the memory plan in tokens, empty without a plan. `request_fields` are the names of request
    fields in the server's image, None if no build read the image. `available` is true if the
    desired revision serves, `verification_ended` if its verification has ended or is not needed.
    """

    version: str = ""
    image: str = ""
    volume: Volume = NO_VOLUME
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    engines_on_volume: frozenset[str] = frozenset()
    kv_tokens: Mapping[str, int] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    request_fields: RequestFields | None = None
    repository: str = ""
    available: bool = False
    verification_ended: bool = False
