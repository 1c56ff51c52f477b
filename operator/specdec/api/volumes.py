"""Volumes that a resource adds to its server pods, and where containers mount them."""

from pydantic import Field

from specdec.api.value import PodShaped, Value


class Projection(Value):
    """A source of a projected volume; exactly one field is set. No field has account tokens."""

    config_map: PodShaped | None = None
    secret: PodShaped | None = None
    downward_api: PodShaped | None = Field(default=None, alias="downwardAPI")


class Projected(Value):
    """Several sources in one volume."""

    sources: tuple[Projection, ...]
    default_mode: int | None = None


class ExtraVolume(Value):
    """A volume of the server pods: its name, and exactly one source, as in a pod."""

    name: str
    config_map: PodShaped | None = None
    secret: PodShaped | None = None
    empty_dir: PodShaped | None = None
    persistent_volume_claim: PodShaped | None = None
    projected: Projected | None = None
    csi: PodShaped | None = None


class ExtraVolumeMount(Value):
    """Where a container mounts a volume of the resource."""

    name: str
    mount_path: str
    sub_path: str | None = None
    read_only: bool = True
