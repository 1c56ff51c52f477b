"""The kinds of artifact that a fetch Job copies, and the file patterns of each.

Every source filters its listing by `ArtifactKind.includes`, so that equal content gets the same
digest whichever source it comes from. A role is a key of `SpeculativeModel.sources`.
"""

from collections.abc import Collection
from enum import Enum
from fnmatch import fnmatchcase

_NAME_BYTES = 200
_CONFIGURATION = ("*.json", "*.model", "tokenizer*", "merges.txt", "vocab.txt", "*.jinja")
_CHECKPOINT = (*_CONFIGURATION, "*.safetensors")


class ArtifactKind(Enum):
    """A checkpoint with or without weights, draft heads, or a prebuilt engine.

    A value is the tuple of file name patterns that belong to the kind.
    """

    CHECKPOINT = _CHECKPOINT
    # A prebuilt engine needs configuration and tokenizer, not hundreds of gigabytes of weights.
    WITHOUT_WEIGHTS = _CONFIGURATION
    # Published heads are often pickled. Only the build loads those; this process never does.
    HEADS = (*_CHECKPOINT, "*.bin", "*.pt")
    ENGINE = ("*.json", "*.engine")

    @classmethod
    def of(cls, role: str, without_weights: Collection[str] = ()) -> "ArtifactKind":
        """The kind of artifact of a role; `without_weights` lists roles that need no weights."""
        if role == "heads":
            return cls.HEADS
        if role in without_weights:
            return cls.WITHOUT_WEIGHTS
        return cls.ENGINE if role.endswith("-engine") else cls.CHECKPOINT

    def includes(self, name: str) -> bool:
        """Whether a file at the root of a source belongs to this kind.

        Names come from untrusted servers. A hidden name, a path or a name with control characters
        is excluded.
        """
        if name.startswith(".") or "/" in name or not name.isprintable():
            return False
        if len(name.encode()) > _NAME_BYTES:
            return False
        return any(fnmatchcase(name, pattern) for pattern in self.value)
