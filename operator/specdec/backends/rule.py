"""A rule on a spec: it returns a reason and one sentence, or None where the spec is valid."""

from collections.abc import Callable

from specdec.api.cause import Cause
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images

Rule = Callable[[SpeculativeModel, Images], Cause | None]


def invalid(message: str) -> Cause:
    """A spec that contradicts itself or lacks something; `message` names the field and the fix."""
    return Cause(AcceptedReason.INVALID_SPEC, message)


def version(model: SpeculativeModel) -> str:
    """The version that serves the resource: its own, or its backend's default."""
    runtime = model.spec.runtime
    return runtime.version or support(runtime.backend).default_version
