"""The support matrix: method by backend by version, read from `support.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from specdec.api.model import Backend


@dataclass(frozen=True)
class Support:
    """What a backend can do in this release.

    `default_version` is empty when it serves nothing; `methods` names the first version of each.
    """

    served: bool
    default_version: str
    versions: tuple[str, ...]
    methods: Mapping[str, str]
    dtypes: tuple[str, ...]
    architectures: tuple[str, ...]

    def serves(self, method: str, version: str) -> bool:
        """Whether a method exists in a version; versions are compared by number."""
        first = self.methods.get(method)
        return first is not None and _numbers(version) >= _numbers(first)


@cache
def matrix() -> dict[Backend, Support]:
    """The whole matrix, read once."""
    text = resources.files("specdec.api").joinpath("support.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    return {
        Backend(name): Support(
            served=row["served"],
            default_version=data["defaultVersions"].get(name, ""),
            versions=tuple(row["versions"]),
            methods=dict(row["methods"]),
            dtypes=tuple(row["dtypes"]),
            architectures=tuple(row["architectures"]),
        )
        for name, row in data["backends"].items()
    }


def support(backend: Backend) -> Support:
    """What one backend can do."""
    return matrix()[backend]


def architectures() -> frozenset[str]:
    """Every architecture that some served backend can build."""
    return frozenset(a for row in matrix().values() if row.served for a in row.architectures)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
