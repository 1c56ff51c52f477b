"""What is fetched for a role, and which files of a source belong to it."""

from collections.abc import Collection
from enum import Enum
from fnmatch import fnmatchcase

_NAME_BYTES = 200
_WORDS = ("*.json", "*.model", "tokenizer*", "merges.txt", "vocab.txt", "*.jinja")
_CHECKPOINT = (*_WORDS, "*.safetensors")


class ArtifactKind(Enum):
    """A checkpoint with or without weights, heads, or a prebuilt engine, by the files that count.

    The same patterns filter every source, so that equal content gets equal digests.
    """

    CHECKPOINT = _CHECKPOINT
    # Beside a prebuilt engine: its configuration and tokenizer, not its hundreds of gigabytes.
    WITHOUT_WEIGHTS = _WORDS
    # Published heads are often pickled; only the build reads those, this process never does.
    HEADS = (*_CHECKPOINT, "*.bin", "*.pt")
    ENGINE = ("*.json", "*.engine")

    @classmethod
    def of(cls, role: str, without_weights: Collection[str] = ()) -> "ArtifactKind":
        """The kind of a role of `SpeculativeModel.sources`, by the roles that need no weights."""
        if role == "heads":
            return cls.HEADS
        if role in without_weights:
            return cls.WITHOUT_WEIGHTS
        return cls.ENGINE if role.endswith("-engine") else cls.CHECKPOINT

    def includes(self, name: str) -> bool:
        """Whether a file directly inside a directory belongs to it.

        Names come from servers that others fill: what could lead elsewhere is no file of ours.
        """
        if name.startswith(".") or "/" in name or not name.isprintable():
            return False
        if len(name.encode()) > _NAME_BYTES:
            return False
        return any(fnmatchcase(name, pattern) for pattern in self.value)
