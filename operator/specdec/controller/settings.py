"""What the Deployment tells the operator, from environment variables `SPECDEC_*`."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from specdec.api.networks import Networks
from specdec.backends.facts import Images


class Settings(BaseSettings):
    """Read once at start; an impossible value ends the start with the variable's name."""

    model_config = SettingsConfigDict(env_prefix="SPECDEC_", frozen=True)

    operator_image: str = "localhost/specdec/operator:dev"
    """The image of all Jobs but builds: the operator's own."""
    reference_image: str = "localhost/specdec/reference:dev"
    """The default server image of the Reference backend."""
    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces to watch, separated by commas; empty means all."""
    fetch_allowed_networks: Annotated[tuple[str, ...], NoDecode] = ()
    """Networks (CIDR), separated by commas, that fetch Jobs reach beside public addresses."""
    workers: int = Field(default=8, ge=1, le=64)
    """Resources reconciled at the same time; the API server's latency sets the pace."""
    metrics_port: int = Field(default=9090, ge=0, le=65535)
    """Port of the operator's own metrics; 0 serves none."""
    resync_seconds: float = Field(default=600, ge=1)
    """How often every resource is looked at without an event, give or take a tenth."""
    watch_check_seconds: float = Field(default=60, ge=1)
    """How often the objects of watched kinds are held against their events, at most."""

    lease: str = Field(default="", pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$")
    """`namespace/name` of the Lease without which this replica stands by; empty: it is the only
    one."""
    lease_seconds: float = Field(default=15, ge=5, le=300)
    """How long after its last sign of life a holder of the Lease counts as gone."""
    health_port: int = Field(default=8080, ge=0, le=65535)
    """Where a standby answers its probe until kopf does, so that of `--liveness`; 0: nowhere."""

    @field_validator("namespaces", "fetch_allowed_networks", mode="before")
    @classmethod
    def _split(cls, value: str | tuple[str, ...]) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(part for part in (p.strip() for p in value.split(",")) if part)
        return value

    @field_validator("fetch_allowed_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Networks.parse(value)
        return value

    @property
    def images(self) -> Images:
        """The images of this release, and the networks of its fetch Jobs."""
        return Images(self.operator_image, self.reference_image, self.fetch_allowed_networks)
