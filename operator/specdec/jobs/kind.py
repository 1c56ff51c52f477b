"""What is fetched for a role, and which files of a source belong to it."""

from enum import Enum
from fnmatch import fnmatchcase

_NAME_BYTES = 200
_CHECKPOINT = (
    "*.json",
    "*.safetensors",
    "*.model",
    "tokenizer*",
    "merges.txt",
    "vocab.txt",
    "*.jinja",
)


class Kind(Enum):
    """A whole checkpoint, the heads of one, or a prebuilt engine, by the files that count.

    The same patterns filter every source, so that equal content gets equal digests.
    """

    CHECKPOINT = _CHECKPOINT
    # Published heads are often pickled; only the build reads those, this process never does.
    HEADS = (*_CHECKPOINT, "*.bin", "*.pt")
    ENGINE = ("*.json", "*.engine")

    @classmethod
    def of(cls, role: str) -> "Kind":
        """The kind of a role of `SpeculativeModel.sources`."""
        if role == "heads":
            return cls.HEADS
        return cls.ENGINE if role.endswith("-engine") else cls.CHECKPOINT

    def wants(self, name: str) -> bool:
        """Whether a file directly inside a directory belongs to it.

        Names come from servers that others fill: what could lead elsewhere is no file of ours.
        """
        if name.startswith(".") or "/" in name or not name.isprintable():
            return False
        if len(name.encode()) > _NAME_BYTES:
            return False
        return any(fnmatchcase(name, pattern) for pattern in self.value)
