"""Reasons of `RepositoryReady`: the model repository on the volume."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.REPOSITORY_READY)


class RepositoryReason(Reason):
    """Reasons of `RepositoryReady`."""

    PUBLISHED = _SECTION.progress("Published", "the model repository is on the volume")
    PUBLISHING = _SECTION.progress("Publishing", "the publish Job is running", "wait")
    VOLUME_DAMAGED = _SECTION.blocked(
        "VolumeDamaged",
        "files on the volume differ from what was published, and a server waits for them; "
        "`Available` has this reason too, and the message names the files",
        "none: the publish Job checks the volume, and the operator restores damaged files",
        also=(Type.AVAILABLE,),
        health=Health.PROGRESSING,
    )
    ENGINE_MISMATCH = _SECTION.failed(
        "EngineMismatch",
        "an engine differs from its plan: other limits than the repository needs, or another "
        "mode, draft length or parallelism than the build requested",
        "if the message names a directory, delete it: the operator builds the engine again; if a "
        "build Job reports the reason, check `engine.extraArgs` and the image; for a prebuilt "
        "engine, set the values of the engine in the spec, or build another engine",
        also=(Type.ENGINES_READY,),
    )
    LIBRARY_MISMATCH = _SECTION.failed(
        "LibraryMismatch",
        "the image of the Job lacks the BLS library, or has another version than the operator "
        "expects",
        "use the same image for the operator and its Jobs: set `SPECDEC_OPERATOR_IMAGE` to "
        "the image that the operator runs, then delete the Job",
    )
    PUBLISH_FAILED = _SECTION.failed(
        "PublishFailed",
        "the Job failed for another reason",
        "read the message, then delete the Job",
    )
