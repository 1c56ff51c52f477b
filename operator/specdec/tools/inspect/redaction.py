"""Remove credentials from every file that a command writes about a cluster.

Such a command reads no Secret. Logs of servers and messages of conditions can still quote a token,
and so can the environment of the caller. `specdec certify` and `specdec report` pass every text
through a `Redactor`. What it finds is best effort: people read the files before they send them.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from specdec.tools.inspect.credential_forms import REMOVED, without_credentials

# Shorter values would match ordinary text.
_LEAST_CHARACTERS = 8
_SECRET_NAME = re.compile(
    r"(?i)token|secret|passw|credential|api_?key|access_?key|private_?key|auth"
    r"|(?:^|_)(?:jwt|pass|pat|creds?)(?:_|$)"
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
        known = {
            form for value in secrets if len(value) >= _LEAST_CHARACTERS for form in _forms(value)
        }
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
        return without_credentials(text)

    def value(self, value: Any) -> Any:
        """A JSON value without credentials in its texts; keys are kept."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value


def _forms(value: str) -> Iterator[str]:
    """A value as it appears in texts: as it is, in JSON, in a URL, and in base64."""
    yield value
    yield json.dumps(value)[1:-1]
    yield quote(value, safe="")
    yield base64.b64encode(value.encode()).decode().rstrip("=")
