"""Where checkpoints, heads and prebuilt engines come from, and the Secrets that sources need."""

from dataclasses import dataclass

from specdec.api.value import Reference, SecretKey, Value


@dataclass(frozen=True)
class SecretVariable:
    """An environment variable of the fetch Job, and the key of a Secret that it gets."""

    name: str
    secret: str
    key: str
    optional: bool = False


def _variable(name: str, reference: SecretKey | None) -> tuple[SecretVariable, ...]:
    return (SecretVariable(name, reference.name, reference.key),) if reference else ()


class HuggingFaceSource(Value):
    """A repository of the Hugging Face hub at one revision."""

    repo: str
    revision: str = "main"
    endpoint: str | None = None
    token_secret_ref: SecretKey | None = None

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the source's Secret."""
        return _variable("HF_TOKEN", self.token_secret_ref)


class PvcSource(Value):
    """A directory on an existing claim."""

    claim_name: str
    path: str

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the source's Secret."""
        return ()


class S3Source(Value):
    """A prefix of an S3 bucket, `s3://bucket/prefix`.

    The Secret holds `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, if need be,
    `AWS_SESSION_TOKEN`. Without a Secret, the prefix is read anonymously.
    """

    uri: str
    endpoint: str | None = None
    region: str | None = None
    credentials_secret_ref: Reference | None = None

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the source's Secret."""
        if self.credentials_secret_ref is None:
            return ()
        secret = self.credentials_secret_ref.name
        return (
            SecretVariable("S3_ACCESS", secret, "AWS_ACCESS_KEY_ID"),
            SecretVariable("S3_SECRET", secret, "AWS_SECRET_ACCESS_KEY"),
            SecretVariable("S3_SESSION", secret, "AWS_SESSION_TOKEN", optional=True),
        )


class GcsSource(Value):
    """A prefix of a Google Cloud Storage bucket, `gs://bucket/prefix`.

    The Secret's key holds a service account's JSON. Without a Secret, the prefix is read
    anonymously.
    """

    uri: str
    endpoint: str | None = None
    credentials_secret_ref: SecretKey | None = None

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the source's Secret."""
        return _variable("GCS_KEY", self.credentials_secret_ref)


class OciSource(Value):
    """Layers of an OCI artifact; the Secret is of type `kubernetes.io/dockerconfigjson`."""

    reference: str
    pull_secret_ref: Reference | None = None

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the source's Secret."""
        if self.pull_secret_ref is None:
            return ()
        return (SecretVariable("OCI_CONFIG", self.pull_secret_ref.name, ".dockerconfigjson"),)


class NgcSource(Value):
    """A model version of the NGC catalogue, `org/team/model:version`; the key is an API key."""

    resource: str
    endpoint: str | None = None
    auth_secret_ref: SecretKey | None = None

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the source's Secret."""
        return _variable("NGC_API_KEY", self.auth_secret_ref)


class Source(Value):
    """A source; exactly one of the members is set."""

    hugging_face: HuggingFaceSource | None = None
    pvc: PvcSource | None = None
    s3: S3Source | None = None
    gcs: GcsSource | None = None
    oci: OciSource | None = None
    ngc: NgcSource | None = None

    @property
    def secrets(self) -> tuple[SecretVariable, ...]:
        """What the fetch Job needs of the member's Secret."""
        members = (getattr(self, name) for name in type(self).model_fields)
        return tuple(variable for member in members if member for variable in member.secrets)


class AuthorityRef(Value):
    """One key of a ConfigMap in the resource's own namespace, with certificates as PEM."""

    name: str
    key: str = "ca.crt"


class Fetch(Value):
    """How the fetch Job reaches sources from a private network, and its deadline in seconds.

    The proxy's Secret has `HTTPS_PROXY`, and optionally `HTTP_PROXY` and `NO_PROXY`. It is a
    Secret because the address of a proxy may contain a password.
    """

    active_deadline_seconds: int = 86400
    ca_config_map_ref: AuthorityRef | None = None
    proxy_secret_ref: Reference | None = None
