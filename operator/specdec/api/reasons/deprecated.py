"""Reasons of `Deprecated`: what a later release will not serve. They never block `Ready`."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Reason, Section

_SECTION = Section(Type.DEPRECATED)


class DeprecatedReason(Reason):
    """Reasons of `Deprecated`."""

    ENGINES_REMOVED = _SECTION.progress(
        "EnginesRemoved",
        "the resource is served, but TensorRT-LLM removed engines after 1.2",
        "[move to the backend in the message](migration-pytorch.md)",
    )
