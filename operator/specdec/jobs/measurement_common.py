"""Shared by the Jobs that measure a server: connection, prompts and error conversion.

`verify`, `benchmark` and `throughput` call it. Every function raises only `JobError`, with a
documented reason.
"""

from collections.abc import Mapping
from pathlib import Path

from specdec.api.reasons import CommonReason, Reason, VerificationReason
from specdec.client import dataset
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.jobs.result import JobError

UNREACHABLE = VerificationReason.SERVER_UNREACHABLE
REQUEST_TIMEOUT_SECONDS = 120.0
# The limit of a message in a result.
MESSAGE_CHARACTERS = 300


def connection(server: str, tls: Mapping[str, str] | None, path: str = "") -> Connection:
    """The connection to a server's endpoint.

    Args:
        server: `host:port`.
        tls: as `desired.tls.plan` writes it. Without a CA file the system's CAs are trusted.
        path: of an OpenAI endpoint.

    Raises:
        JobError: SecretMissing if the plan needs a client certificate and there is none.
    """
    if not tls:
        return Connection(server, REQUEST_TIMEOUT_SECONDS, path=path)
    client_files = [Path(tls[name]) for name in ("certificate", "key") if name in tls]
    missing = [file.name for file in client_files if not file.is_file()]
    if missing:
        raise JobError(
            CommonReason.SECRET_MISSING,
            f"Secret {tls['clientSecret']} with {' and '.join(missing)} is missing: create it, "
            "or correct spec.serving.tls.clientSecretName",
        )
    authority = Path(tls["authority"])
    has_authority = authority.is_file() and authority.stat().st_size > 0
    return Connection(
        server,
        REQUEST_TIMEOUT_SECONDS,
        tls=True,
        root_certificates=str(authority) if has_authority else None,
        certificate_chain=tls.get("certificate"),
        private_key=tls.get("key"),
        path=path,
    )


def prompts(file: Path | None, name: str, count: int, field: str) -> list[Entry]:
    """At most `count` prompts: the first of a file, or an even selection of the built-in ones.

    Args:
        file: None selects the built-in prompts.
        name: of the file, for messages.
        count: the limit.
        field: the part of the spec that names the file, for messages.

    Raises:
        JobError: PromptsInvalid, with what to correct in `spec.<field>`.
    """
    if file is None:
        entries = dataset.built_in()
        return entries[:: max(1, len(entries) // count)][:count]
    if not file.is_file():
        raise JobError(
            VerificationReason.PROMPTS_INVALID,
            f"{name} is missing: create it, or correct spec.{field}.promptsConfigMapRef",
        )
    try:
        return dataset.parse(file.read_text("utf-8"), name)[:count]
    except (BadRequestError, UnicodeDecodeError) as error:
        raise JobError(
            VerificationReason.PROMPTS_INVALID, f"{error}: correct the ConfigMap"
        ) from error


def job_error(error: ClientError, reason: Reason) -> JobError:
    """The `JobError` for a client's error; an unreachable server is worth another attempt."""
    if isinstance(error, UnreachableError):
        return JobError(UNREACHABLE, str(error), permanent=False)
    return JobError(reason, str(error), permanent=isinstance(error, BadRequestError))
