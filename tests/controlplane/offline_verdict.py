"""Converts the verdict of `specdec plan` to the API server's messages, to compare the two."""

from specdec.api import model
from specdec.tools.dry_run.admission import Admission
from specdec.tools.dry_run.admission.problem import Kind

TYPES = ("object", "array", "string", "integer", "boolean")
Causes = list[tuple[str, str]]


def offline_causes(offline: Admission, server: Causes) -> Causes:
    """Return the problems that `specdec plan` reports, as field and message of this server.

    The server reports all unknown fields in one message. If a rule refuses a value, servers before
    Kubernetes 1.35 report the type of the value, and newer ones report the value.
    """
    unknown = [p for p in offline.problems if p.kind is Kind.UNKNOWN]
    if unknown:
        version = model.API_VERSION.split("/")[1]
        start = f'{model.KIND} in version "{version}" cannot be handled as a {model.KIND}: '
        fields = ", ".join(f'unknown field "{problem.field}"' for problem in unknown)
        return [("", f"{start}strict decoding error: {fields}")]
    causes = []
    for problem in offline.problems:
        typed = [f'{problem.kind.title}: "{name}": {problem.detail}' for name in TYPES]
        older = [message for message in typed if (problem.field, message) in server]
        causes.append((problem.field, older[0] if older else problem.message))
    return causes
