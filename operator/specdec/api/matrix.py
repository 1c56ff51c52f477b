"""The support matrix: what each backend supports in which version, read from `support.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from specdec.api.tables import table
from specdec.api.versions import at_least, numbers

# The default of `spec.runtime.frontend`.
_TRITON = "Triton"
# The release in an image's tag: 26.07 in tritonserver:26.07-trtllm-python-py3.
_RELEASE = re.compile(r":(\d{2}\.(?:0[1-9]|1[0-2]))(?![\d.])")


@cache
def _data() -> Any:
    return table("specdec.api", "support.yaml")


if TYPE_CHECKING:

    class Backend(StrEnum):
        """What serves the models: a row of `support.yaml`, and a package of `backends`."""

else:
    Backend = StrEnum("Backend", {name.upper(): name for name in _data()["backends"]})


@dataclass(frozen=True)
class RemovedFormats:
    """Number formats that GPUs of compute capability `since` to below `until` do not support."""

    since: str
    until: str
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Advisory:
    """Publicly known vulnerabilities of Triton that a network client can use.

    Attributes:
        fixed: the first release without them, YY.MM as in the tag of an image.
        faults: a description for people.
        link: the page that publishes them.
    """

    fixed: str
    faults: str
    link: str


@dataclass(frozen=True)
class ImageFolders:
    """Where an image holds conversion scripts, and templates of Triton's models."""

    examples: str
    templates: str


@dataclass(frozen=True)
class Unserved:
    """Releases of a backend that this release of specdec cannot serve, and why."""

    versions: str
    reason: str


@dataclass(frozen=True)
class Support:
    """What a backend supports in this release.

    Attributes:
        served: whether this release can serve the backend.
        default_version: the version if the spec sets none; empty if the backend is not served.
        methods: the first version that supports each method.
        architectures: the model architectures that are known to work.
        method_architectures: the same for a method that is known to work with fewer of them.
        head_layouts: layouts of heads of other libraries that its server loads.
        tries_others: whether the server loads what it can, so that others are tried as well.
        on_gpus: whether weights and caches are in GPU memory, and so have to fit there.
        compute_capability: the lowest that the backend supports; None if it needs no GPU.
        quantization, kv_cache_quantization: the lowest compute capability by number format.
        removed: number formats that newer GPUs do not support.
        images: the server image by version; none where only a front end has one.
        release_image: whether the server image is one of this release, for every version.
        front_images: by version, the server image of each front end that has one of its own.
        image_sources: by version, the public repository and branch that show the image's version.
        folders: folders of scripts and templates in an image; the first that exists is used.
        candidates: versions of which only release candidates exist.
        unserved: releases that the backend does not serve although their images exist.
        fronts: by `spec.runtime.frontend`, the kind of its servers: a package of `servers`.
        triton: the release of Triton in every image; empty if the tag of an image has it.
        deprecation: why a later release will not serve the backend; empty if it will.
        deprecation_link: the link to the announcement of the deprecation.
        replacements: for each method, the method to use in the backend that replaces this backend.
        instead: what serves in place of a method that the backend does not serve, by method.
        one_server: whether every model of a service runs in the target's server.
    """

    served: bool
    default_version: str
    versions: tuple[str, ...]
    methods: Mapping[str, str]
    dtypes: tuple[str, ...]
    architectures: tuple[str, ...]
    method_architectures: Mapping[str, tuple[str, ...]]
    tries_others: bool
    head_layouts: tuple[str, ...]
    on_gpus: bool
    compute_capability: str | None
    quantization: Mapping[str, str]
    kv_cache_quantization: Mapping[str, str]
    removed: RemovedFormats | None
    images: Mapping[str, str]
    release_image: bool
    front_images: Mapping[str, Mapping[str, str]]
    image_sources: Mapping[str, str]
    folders: tuple[ImageFolders, ...]
    candidates: tuple[str, ...]
    unserved: tuple[Unserved, ...]
    fronts: Mapping[str, str]
    triton: str
    deprecation: str
    deprecation_link: str
    replacements: Mapping[str, str]
    one_server: bool
    instead: Mapping[str, str]

    def serves(self, method: str, version: str) -> bool:
        """Whether a method exists in a version; versions are compared by number."""
        first = self.methods.get(method)
        return first is not None and at_least(version, first)

    def front(self, frontend: str = _TRITON) -> str:
        """The kind of server; that of Triton if the backend lacks the given front end."""
        return self.fronts.get(frontend, self.fronts[_TRITON])

    def image(self, version: str, frontend: str = _TRITON) -> str:
        """The server image of a version for a front end; empty if the backend knows none."""
        own = self.front_images.get(version, {})
        return own.get(frontend, self.images.get(version, ""))


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
            tries_others=row.get("triesOtherArchitectures", False),
            head_layouts=tuple(row.get("headLayouts", ())),
            on_gpus=row.get("gpus", True),
            compute_capability=row.get("computeCapability"),
            quantization=row.get("quantization", {}),
            kv_cache_quantization=row.get("kvCacheQuantization", {}),
            removed=_removed(row.get("removedFormats")),
            images={
                v: entry["image"] for v, entry in row.get("images", {}).items() if "image" in entry
            },
            release_image=row.get("releaseImage", False),
            front_images={
                v: entry.get("fronts", {}) for v, entry in row.get("images", {}).items()
            },
            image_sources={v: entry["source"] for v, entry in row.get("images", {}).items()},
            folders=tuple(ImageFolders(**folders) for folders in row.get("folders", ())),
            candidates=tuple(row.get("candidates", ())),
            unserved=tuple(Unserved(**entry) for entry in row.get("unserved", ())),
            fronts=row["fronts"],
            triton=row.get("triton", ""),
            deprecation=row.get("deprecation", ""),
            deprecation_link=row.get("deprecationLink", ""),
            replacements=row.get("replacements", {}),
            one_server=row.get("oneServer", False),
            instead=row.get("instead", {}),
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
    """Publicly known remote faults of Triton, in the order of the releases that fix them."""
    rows = (Advisory(**row) for row in _data()["advisories"])
    return tuple(sorted(rows, key=lambda row: numbers(row.fixed)))


def vulnerable_release(backend: str, image: str) -> tuple[str, str] | None:
    """The Triton release of an image with known vulnerabilities, and the release that fixes them.

    None if the release has no known vulnerabilities, or if neither the backend nor the tag of the
    image names a release.
    """
    tag = _RELEASE.search(image.rpartition("/")[2])
    release = support(backend).triton or (tag[1] if tag else "")
    level = advisories()[-1].fixed
    return (release, level) if release and not at_least(release, level) else None
