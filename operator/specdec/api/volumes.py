"""Volumes that a resource adds to its server pods, and where containers mount them.

The sources have the fields of a pod's. No field has tokens of an account or paths of a node.
"""

from pydantic import Field

from specdec.api.value import Reference, Value


class Item(Value):
    """A key that becomes a file."""

    key: str
    path: str
    mode: int | None = None


class ConfigMapVolume(Value):
    """Files from a ConfigMap."""

    name: str | None = None
    items: tuple[Item, ...] | None = None
    default_mode: int | None = None
    optional: bool | None = None


class SecretVolume(Value):
    """Files from a Secret."""

    secret_name: str | None = None
    items: tuple[Item, ...] | None = None
    default_mode: int | None = None
    optional: bool | None = None


class EmptyDir(Value):
    """An empty directory of the pod, on the node's disk or in memory."""

    medium: str | None = None
    size_limit: int | str | None = None


class ClaimVolume(Value):
    """A claim of the namespace."""

    claim_name: str
    read_only: bool | None = None


class ProjectedObject(Value):
    """Files from a ConfigMap or Secret in a projected volume."""

    name: str | None = None
    items: tuple[Item, ...] | None = None
    optional: bool | None = None


class FieldRef(Value):
    """A field of the pod."""

    api_version: str | None = None
    field_path: str


class ResourceFieldRef(Value):
    """A request or limit of a container."""

    container_name: str | None = None
    resource: str
    divisor: int | str | None = None


class DownwardFile(Value):
    """A file with a field of the pod; exactly one reference is set."""

    path: str
    mode: int | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class DownwardFiles(Value):
    """Files with fields of the pod."""

    items: tuple[DownwardFile, ...] = ()


class Projection(Value):
    """A source of a projected volume; exactly one field is set. No field has account tokens."""

    config_map: ProjectedObject | None = None
    secret: ProjectedObject | None = None
    downward_api: DownwardFiles | None = Field(default=None, alias="downwardAPI")


class Projected(Value):
    """Several sources in one volume."""

    sources: tuple[Projection, ...]
    default_mode: int | None = None


class Csi(Value):
    """A volume of a CSI driver that lives as long as the pod."""

    driver: str
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] | None = None
    node_publish_secret_ref: Reference | None = None


class ExtraVolume(Value):
    """A volume of the server pods: its name, and exactly one source, as in a pod."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    empty_dir: EmptyDir | None = None
    persistent_volume_claim: ClaimVolume | None = None
    projected: Projected | None = None
    csi: Csi | None = None


class ExtraVolumeMount(Value):
    """Where a container mounts a volume of the resource."""

    name: str
    mount_path: str
    sub_path: str | None = None
    read_only: bool = True
