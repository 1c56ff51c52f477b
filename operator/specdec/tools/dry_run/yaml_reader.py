"""Read YAML as kubectl does.

PyYAML reads some plain texts differently: `1e9` as a text, `12:30` as a number, `2026-01-01` as a
date and `y` as a text. kubectl turns YAML into JSON, where all keys are texts and `2.0` is `2`.
"""

import json
import re
from typing import Any

import yaml

from specdec.api.tables import LOADER

_WITHOUT_FRACTION = 1e21
_INTEGERS = range(-(2**63), 2**63)


class _Loader(LOADER):  # type: ignore[misc]
    """Safe YAML with kubectl's rules for plain texts."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (add_implicit_resolver fills it)


def _resolve(tag: str, pattern: str, first: str) -> None:
    compiled = re.compile(rf"(?:{pattern})\Z")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", compiled, [*first] or [""])


_resolve("bool", "y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF", "yYnNoO")
_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("null", "~|null|Null|NULL", "~nN")
_resolve("null", "", "")
_resolve("merge", "<<", "<")
_resolve(
    "int",
    "[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)",
    "-+0123456789",
)
_resolve(
    "float",
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "-+.0123456789",
)


def _bool(loader: Any, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


_Loader.add_constructor("tag:yaml.org,2002:bool", _bool)


_RESOLVER = _Loader("")


def is_text(plain: str) -> bool:
    """Whether kubectl reads an unquoted text as a text."""
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, plain, (True, False))
    return tag == "tag:yaml.org,2002:str"


def documents(text: str) -> list[Any]:
    """The JSON values of all documents.

    Raises:
        yaml.YAMLError: the text is not YAML.
        TypeError, ValueError, RecursionError: a value has no JSON form.
    """
    read = list(yaml.load_all(text, Loader=_Loader))
    written = json.dumps(read, default=str, allow_nan=False)
    values: list[Any] = json.loads(written, parse_float=_float, parse_int=_integer)
    return values


def _float(text: str) -> float:
    """kubectl writes a float without a fraction as an integer."""
    value = float(text)
    if value.is_integer() and abs(value) < _WITHOUT_FRACTION:
        return _integer(str(int(value)))
    return value


def _integer(text: str) -> float:
    """An integer of 64 bits; the API server reads any other one as a float."""
    value = int(text)
    return value if value in _INTEGERS else float(value)
