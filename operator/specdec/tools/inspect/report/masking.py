"""Remove credentials from Kubernetes objects before they are written to a file.

`masked` knows where objects hold them; the texts of the result must still pass a `Redactor`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specdec.tools.inspect.credential_forms import REMOVED

Json = dict[str, Any]
_VARIABLE = re.compile(
    r"(?i)token|secret|passw|credential|key|auth|jwt|cookie|(?:^|_)(?:pass(?:phrase)?|pw|pat|creds)$"
)
# Options such as --max-tokens and --tokenizer have ordinary values.
_OPTION = re.compile(
    r"(?i)^-[a-z0-9_-]*(?:token(?!s|iz)|secret|passw|credential|key|auth|-pass(?![a-z]))"
)
# Keys of a ConfigMap or of annotations. A plain `key` or `secret` names an object.
_ENTRY = re.compile(
    r"(?i)(?:token|passwd|password|credentials?|(?:api|access|private|secret)[-_]?key|_secret"
    r"|[-_.](?:pass|creds)|dockerconfigjson)$"
)
# The last applied configuration repeats the object as text; `managedFields` only lists its fields.
_LEFT_OUT = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")


def masked(value: Any) -> Any:
    """A copy of a JSON value without literal credentials.

    Masks the values of environment variables and options whose names are those of credentials,
    and entries of maps with such keys. References to Secrets are kept: they contain names only.
    """
    if isinstance(value, Mapping):
        kept = {key: inner for key, inner in value.items() if key not in _LEFT_OUT}
        if _is_secret_variable(kept):
            kept["value"] = REMOVED
        return {
            key: REMOVED if isinstance(inner, str) and _ENTRY.search(key) else masked(inner)
            for key, inner in kept.items()
        }
    if isinstance(value, list | tuple):
        return list(_masked_items(value))
    return value


def literals(value: Any) -> Iterator[str]:
    """The values of environment variables that `masked` removes, which logs may repeat."""
    if isinstance(value, Mapping):
        if _is_secret_variable(value):
            yield str(value["value"])
        for inner in value.values():
            yield from literals(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from literals(inner)


def _is_secret_variable(value: Mapping[str, Any]) -> bool:
    name, text = value.get("name"), value.get("value")
    return isinstance(name, str) and isinstance(text, str) and bool(_VARIABLE.search(name))


def _masked_items(items: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    """The items of a list; arguments of a command may have an option's value in the next item."""
    is_value = False
    for item in items:
        option = _OPTION.match(item) if isinstance(item, str) else None
        if option is not None and "=" in item:
            yield f"{item.partition('=')[0]}={REMOVED}"
        elif is_value and isinstance(item, str) and not item.startswith("-"):
            yield REMOVED
        else:
            yield masked(item)
        is_value = option is not None and "=" not in item
