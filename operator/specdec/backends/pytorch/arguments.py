"""`spec.runtime.arguments`: arguments of the LLM API that no field sets, checked by name."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from specdec.api.cause import Cause
from specdec.api.matrix import at_least
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.pytorch import generations
from specdec.backends.rule import invalid, version

_FIELD = "spec.runtime.arguments"
_CODE = "trust_remote_code"
# Bytes of all names and values as JSON.
_LIMIT = 8192


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    text = resources.files(__package__).joinpath("arguments.yaml").read_text("utf-8")
    table: Mapping[str, Mapping[str, str]] = yaml.safe_load(text)
    return table


def known(release: str) -> tuple[str, ...]:
    """Names that a release takes, in alphabetical order."""
    names = _table()["names"]
    return tuple(name for name in sorted(names) if at_least(release, names[name]))


def checked(model: SpeculativeModel, _: Images) -> Cause | None:
    """The release has each argument, and neither a field nor the method sets it."""
    given, release = model.spec.runtime.arguments, version(model)
    names, spelling = known(release), generations.of(release).methods
    own = spelling.get(model.spec.speculation.method)
    for name in sorted(given):
        if name == _CODE:
            return invalid(
                f"{_FIELD} has {_CODE}, which runs code of the checkpoint in the server, and no "
                "Job fetches such code: remove it, and set the source to a checkpoint of an "
                "architecture that TensorRT-LLM has"
            )
        if field := _table()["fields"].get(name):
            return invalid(
                f"{_FIELD} has {name}, which spec.{field} sets: remove it from arguments"
            )
        if own is not None and name in own.arguments:
            return invalid(
                f"{_FIELD} has {name}, which method {model.spec.speculation.method} needs as it "
                "is: remove it"
            )
        if name not in names:
            return invalid(
                f"{_FIELD} has {name[:100]}, which specdec does not pass on to TensorRT-LLM "
                f"{release}: use {', '.join(names)}"
            )
    if len(_json(given)) > _LIMIT:
        return invalid(f"{_FIELD} has more than {_LIMIT} bytes as JSON: remove some")
    return None


def _json(given: Mapping[str, Any]) -> bytes:
    return json.dumps(given).encode()
