"""The support matrix: method by backend by version, read from `support.yaml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

# Of tritonserver:26.07-trtllm-python-py3, whichever registry it comes from.
_RELEASE = re.compile(r":(\d{2}\.(?:0[1-9]|1[0-2]))(?![\d.])")


@cache
def _data() -> Any:
    text = resources.files("specdec.api").joinpath("support.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


if TYPE_CHECKING:

    class Backend(StrEnum):
        """What serves the engines: a row of `support.yaml`, and a package of `backends`."""

else:
    Backend = StrEnum("Backend", {name.upper(): name for name in _data()["backends"]})


@dataclass(frozen=True)
class RemovedFormats:
    """Number formats that GPUs lack, from one compute capability to below another."""

    since: str
    until: str
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Advisory:
    """Faults of Triton that are publicly known and can be used from the network.

    Attributes:
        fixed: the first release without them, YY.MM as in the tag of an image.
        faults: what they are, for people.
        link: where they are published.
    """

    fixed: str
    faults: str
    link: str


@dataclass(frozen=True)
class Support:
    """What a backend can do in this release.

    Attributes:
        default_version: empty when it serves nothing.
        methods: the first version of each.
        architectures: those it builds; `method_architectures` those of a method that takes fewer.
        on_gpus: whether weights and caches lie in the memory of GPUs, and have to fit there.
        compute_capability: the least a GPU needs, None without one; `quantization` and
            `kv_cache_quantization` by the format that needs more; `removed` is what newer GPUs
            lack.
        images, examples: server image and folder of the conversion scripts in it, by version.
        front: name of the front end that its servers run.
        triton: release of every server of the backend, empty where an image's tag names it.
        deprecation: why the backend has no future, empty when it has one; `replacements` are the
            methods of the backend that follows it.
    """

    served: bool
    default_version: str
    versions: tuple[str, ...]
    methods: Mapping[str, str]
    dtypes: tuple[str, ...]
    architectures: tuple[str, ...]
    method_architectures: Mapping[str, tuple[str, ...]]
    on_gpus: bool
    compute_capability: str | None
    quantization: Mapping[str, str]
    kv_cache_quantization: Mapping[str, str]
    removed: RemovedFormats | None
    images: Mapping[str, str]
    examples: Mapping[str, str]
    front: str
    triton: str
    deprecation: str
    replacements: Mapping[str, str]

    def serves(self, method: str, version: str) -> bool:
        """Whether a method exists in a version; versions are compared by number."""
        first = self.methods.get(method)
        return first is not None and at_least(version, first)


@cache
def matrix() -> dict[Backend, Support]:
    """The whole matrix, read once."""
    data = _data()
    return {
        Backend(name): Support(
            served=row["served"],
            default_version=data["defaultVersions"].get(name, ""),
            versions=tuple(row["versions"]),
            methods=dict(row["methods"]),
            dtypes=tuple(row["dtypes"]),
            architectures=tuple(row["architectures"]),
            method_architectures={
                method: tuple(names)
                for method, names in row.get("methodArchitectures", {}).items()
            },
            on_gpus=row.get("gpus", True),
            compute_capability=row.get("computeCapability"),
            quantization=row.get("quantization", {}),
            kv_cache_quantization=row.get("kvCacheQuantization", {}),
            removed=_removed(row.get("removedFormats")),
            images=row.get("images", {}),
            examples=row.get("examples", {}),
            front=row.get("front", "Triton"),
            triton=row.get("triton", ""),
            deprecation=row.get("deprecation", ""),
            replacements=row.get("replacements", {}),
        )
        for name, row in data["backends"].items()
    }


def _removed(row: Mapping[str, Any] | None) -> RemovedFormats | None:
    return RemovedFormats(row["since"], row["until"], tuple(row["formats"])) if row else None


def support(backend: str) -> Support:
    """What one backend can do."""
    return matrix()[Backend(backend)]


@cache
def advisories() -> tuple[Advisory, ...]:
    """Publicly known remote faults of Triton, the ones fixed first before the others."""
    rows = (Advisory(**row) for row in _data()["advisories"])
    return tuple(sorted(rows, key=lambda row: _numbers(row.fixed)))


def exposed(backend: str, image: str) -> tuple[str, str] | None:
    """The release of Triton in an image, and the newer one that fixes what is publicly known.

    None where it is new enough, and where neither the backend nor the image's tag names a release.
    """
    tag = _RELEASE.search(image.rpartition("/")[2])
    release = support(backend).triton or (tag[1] if tag else "")
    level = advisories()[-1].fixed
    return (release, level) if release and not at_least(release, level) else None


def architectures() -> frozenset[str]:
    """Every architecture that some served backend can build."""
    return frozenset(a for row in matrix().values() if row.served for a in row.architectures)


def at_least(version: str, floor: str) -> bool:
    """Whether a version or compute capability is `floor` or more; both are dotted numbers."""
    return _numbers(version) >= _numbers(floor)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
