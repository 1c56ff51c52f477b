"""Where files come from: checkpoints, heads, prebuilt engines."""

from specdec.api.value import Reference, SecretKey, Value


class HuggingFaceSource(Value):
    """A repository of the Hugging Face hub at one revision."""

    repo: str
    revision: str = "main"
    endpoint: str | None = None
    token_secret_ref: SecretKey | None = None


class PvcSource(Value):
    """A directory on an existing claim."""

    claim_name: str
    path: str


class S3Source(Value):
    """A prefix of an S3 bucket, `s3://bucket/prefix`.

    The Secret holds `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, if need be,
    `AWS_SESSION_TOKEN`; without one the prefix is read anonymously.
    """

    uri: str
    endpoint: str | None = None
    region: str | None = None
    credentials_secret_ref: Reference | None = None


class GcsSource(Value):
    """A prefix of a Google Cloud Storage bucket, `gs://bucket/prefix`.

    The Secret's key holds a service account's JSON; without one the prefix is read anonymously.
    """

    uri: str
    endpoint: str | None = None
    credentials_secret_ref: SecretKey | None = None


class OciSource(Value):
    """Layers of an OCI artifact; the Secret is of type `kubernetes.io/dockerconfigjson`."""

    reference: str
    pull_secret_ref: Reference | None = None


class NgcSource(Value):
    """A model version of the NGC catalogue, `org/team/model:version`; the key is an API key."""

    resource: str
    endpoint: str | None = None
    auth_secret_ref: SecretKey | None = None


class Source(Value):
    """Exactly one of the members."""

    hugging_face: HuggingFaceSource | None = None
    pvc: PvcSource | None = None
    s3: S3Source | None = None
    gcs: GcsSource | None = None
    oci: OciSource | None = None
    ngc: NgcSource | None = None


class AuthorityRef(Value):
    """One key of a ConfigMap in the resource's own namespace, with certificates as PEM."""

    name: str
    key: str = "ca.crt"


class Fetch(Value):
    """How sources are reached from inside a network of one's own, and for how long (seconds).

    The Secret holds `HTTPS_PROXY` and, if need be, `HTTP_PROXY` and `NO_PROXY`: an address of a
    proxy may carry a password.
    """

    active_deadline_seconds: int = 86400
    ca_config_map_ref: AuthorityRef | None = None
    proxy_secret_ref: Reference | None = None
