"""The operator's settings, from environment variables `SPECDEC_*` of its Deployment.

The process reads them once at start, and `specdec plan` reads the images. An invalid value stops
the start with a message that names the variable.
"""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from specdec.api import released
from specdec.api.networks import Networks
from specdec.backends.facts import Images


class Settings(BaseSettings):
    """One field for each environment variable."""

    model_config = SettingsConfigDict(env_prefix="SPECDEC_", frozen=True)

    operator_image: str = ""
    """The image of all Jobs except engine builds; empty: that of the operator's own pod."""
    reference_image: str = ""
    """The default image of Reference servers.

    Empty: the image `reference` with the registry, organisation and tag of the operator's image.
    """
    pod_namespace: str = ""
    """The namespace of the operator's own pod; empty outside of a pod."""
    pod_name: str = ""
    """The name of the operator's own pod; empty outside of a pod."""
    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces to watch, separated by commas; empty means all."""
    excluded_namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces, separated by commas, whose resources are not accepted."""
    fetch_allowed_networks: Annotated[tuple[str, ...], NoDecode] = ()
    """Networks (CIDR), separated by commas, that fetch Jobs may reach besides public addresses."""
    workers: int = Field(default=8, ge=1, le=64)
    """Number of resources that are reconciled at the same time."""
    metrics_port: int = Field(default=9090, ge=0, le=65535)
    """Port of the operator's own metrics; 0 disables them."""
    resync_seconds: float = Field(default=600, ge=1)
    """Interval at which every resource is reconciled without an event, plus or minus 10 %."""
    watch_check_seconds: float = Field(default=60, ge=1)
    """Shortest interval at which live objects are compared with the events of the watches."""
    watch_check_pause_factor: float = Field(default=20, ge=0)
    """Shortest pause after such a comparison, as a multiple of its duration."""

    lease: str = Field(default="", pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$")
    """`namespace/name` of the Lease for leader election; empty for a single replica."""
    lease_seconds: float = Field(default=15, ge=5, le=300)
    """Seconds without a renewal after which the Lease expires."""
    health_port: int = Field(default=8080, ge=0, le=65535)
    """Port of the probe; 0 disables it."""

    @field_validator("namespaces", "excluded_namespaces", "fetch_allowed_networks", mode="before")
    @classmethod
    def _split_at_commas(cls, value: str | tuple[str, ...]) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(part for part in (p.strip() for p in value.split(",")) if part)
        return value

    @field_validator("fetch_allowed_networks")
    @classmethod
    def _validate_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Networks.parse(value)
        return value

    @property
    def images(self) -> Images:
        """The images of this release, and what the installation allows its resources."""
        operator = self.operator_image or released.OPERATOR_IMAGE
        reference = self.reference_image or released.reference_beside(operator)
        networks, excluded = self.fetch_allowed_networks, self.excluded_namespaces
        return Images(operator, reference, networks, excluded)
