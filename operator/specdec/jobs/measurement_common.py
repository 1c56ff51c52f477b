"""What the measuring Jobs share: prompts, patience, and how a client's error ends a Job."""

from collections.abc import Mapping
from pathlib import Path

from specdec.api.reasons import CommonReason, Reason, VerificationReason
from specdec.client import dataset
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.jobs.result import JobError

UNREACHABLE = VerificationReason.SERVER_UNREACHABLE
# One answer may take so long.
SECONDS = 120.0


def connection(server: str, tls: Mapping[str, str] | None) -> Connection:
    """The way to a server's endpoint (`host:port`); `tls` is as `desired.tls.plan` writes it.

    A Secret without an authority is that of a public one.

    Raises:
        JobError: SecretMissing, where servers want a client's certificate and there is none.
    """
    if not tls:
        return Connection(server, SECONDS)
    own = [Path(tls[name]) for name in ("certificate", "key") if name in tls]
    missing = [file.name for file in own if not file.is_file()]
    if missing:
        raise JobError(
            CommonReason.SECRET_MISSING,
            f"Secret {tls['clientSecret']} with {' and '.join(missing)} is not there: create it, "
            "or correct spec.serving.tls.clientSecretName",
        )
    authority = Path(tls["authority"])
    known = authority.is_file() and authority.stat().st_size > 0
    return Connection(
        server,
        SECONDS,
        tls=True,
        root_certificates=str(authority) if known else None,
        certificate_chain=tls.get("certificate"),
        private_key=tls.get("key"),
    )


def prompts(file: Path | None, name: str, count: int, field: str) -> list[Entry]:
    """At most `count` prompts: the first of a file, or some of every kind that ships.

    Raises:
        JobError: PromptsInvalid, with what to correct in `spec.<field>`.
    """
    if file is None:
        shipped = dataset.built_in()
        return shipped[:: max(1, len(shipped) // count)][:count]
    if not file.is_file():
        raise JobError(
            VerificationReason.PROMPTS_INVALID,
            f"{name} is not there: create it, or correct spec.{field}.promptsConfigMapRef",
        )
    try:
        return dataset.parse(file.read_text("utf-8"), name)[:count]
    except (BadRequestError, UnicodeDecodeError) as error:
        raise JobError(
            VerificationReason.PROMPTS_INVALID, f"{error}: correct the ConfigMap"
        ) from error


def job_error(error: ClientError, reason: Reason) -> JobError:
    """A client's error as the Job tells it; who is away now may be back for the next try."""
    if isinstance(error, UnreachableError):
        return JobError(UNREACHABLE, str(error), permanent=False)
    return JobError(reason, str(error), permanent=isinstance(error, BadRequestError))
