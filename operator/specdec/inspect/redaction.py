"""Remove credentials from every file that a command writes about a cluster.

Such a command reads no Secret. Logs of servers and messages of conditions can still quote a token,
and so can the environment of the caller. `specdec certify` and `specdec report` pass every text
through a `Redactor`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

REMOVED = "[removed]"
# Shorter values would match ordinary text.
_LEAST_CHARACTERS = 8
_SECRET_NAME = re.compile(
    r"(?i)(?:token|secret|passw|credential|api_?key|access_?key|private_?key|auth)"
)
# Each pattern keeps its groups, which name what was removed.
_PATTERNS = (
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL),
    # In a log of JSON, the letter of an escape such as \n may stand before a token.
    re.compile(r"()(?:hf_|nvapi-|ghp_|gho_|github_pat_|glpat-|xox[abp]-)[A-Za-z0-9_-]{8,}"),
    re.compile(r"()(?:\b|(?<=\\[nrt]))sk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"()(?:AKIA|ASIA)[A-Z0-9]{16,}"),
    re.compile(r"()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:[a-z]+\s+)?)[^\s\"',]{8,}"),
    re.compile(r"(?i)(bearer(?:\s+|%20))[A-Za-z0-9+/=_.~-]{16,}"),
    re.compile(r"(://)[^\s/@:]*:[^\s/@]+(?=@)"),
    re.compile(
        r"(?i)([?&](?:x-amz-[a-z-]*|x-goog-[a-z-]*|sig|signature|token|key|awsaccesskeyid)=)"
        r"[^&\s\"']+"
    ),
    re.compile(
        r"(?i)(\b[a-z0-9_-]*(?:token|passwd|password|secret|api_?key|access_?key)[\"']?\s*[=:]\s*"
        r"[\"']?)(?!\[removed\])[A-Za-z0-9+/=_.~-]{8,}"
    ),
)


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of variables with the names of credentials, without values that are paths."""
    return [
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and "/" not in value[:1]
    ]


class Redactor:
    """Removes known secrets and what has the form of a credential.

    Args:
        secrets: values that must not be written, whatever their form.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {value for value in secrets if len(value) >= _LEAST_CHARACTERS}
        # A longer value may contain a shorter one.
        self._secrets = sorted(known, key=len, reverse=True)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Redactor":
        """A redactor that knows the values of variables with the names of credentials."""
        return cls(secret_values(environment))

    def text(self, text: str) -> str:
        """The text without credentials."""
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\1{REMOVED}", text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without credentials in its texts; keys are kept."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value
