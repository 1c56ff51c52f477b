"""Reasons of `EnginesReady`: build Jobs and engines on the volume."""

from specdec.api.condition_types import MEASURED, Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.ENGINES_READY)


class EngineReason(Reason):
    """Reasons of `EnginesReady`."""

    BUILT = _SECTION.progress("Built", "all engines are on the volume")
    BUILDING = _SECTION.progress(
        "Building",
        "at least one build Job is running",
        "wait; the message and `status.engines` show phase and percentage",
    )
    ENGINE_MISSING = _SECTION.blocked(
        "EngineMissing",
        "an engine is no longer on the volume",
        "none: the operator builds it again, or fetches a prebuilt engine again",
        also=(Type.MODELS_FETCHED,),
        health=Health.PROGRESSING,
    )
    ENGINE_DAMAGED = _SECTION.blocked(
        "EngineDamaged",
        "an engine on the volume differs from what was built or fetched; the message names "
        "the file",
        "none: the operator removes it and builds it again, or fetches a prebuilt engine again",
        also=(Type.MODELS_FETCHED,),
        health=Health.PROGRESSING,
    )
    ENGINE_UNREADABLE = _SECTION.failed(
        "EngineUnreadable",
        "the publish Job cannot read a file of an engine on the volume; the message names the "
        "file and the error, and the engine is kept",
        "check the volume; if the file stays unreadable, delete the directory in the message; "
        "then delete the publish Job: the operator builds or fetches a missing engine again",
        also=(Type.REPOSITORY_READY,),
    )
    BUILD_FAILED = _SECTION.failed(
        "BuildFailed",
        "a build Job reached `spec.build.backoffLimit`",
        "read the end of the log in the message, then delete the Job",
    )
    OUT_OF_MEMORY = _SECTION.blocked(
        "OutOfMemory",
        "a container exceeded its memory limit, or a build exceeded the memory of the GPU",
        "change the field in the message as it states (more memory, or a smaller limit), then "
        "delete the failed Job",
        also=(Type.MODELS_FETCHED, Type.REPOSITORY_READY, Type.AVAILABLE, *MEASURED),
    )
    DEADLINE_EXCEEDED = _SECTION.failed(
        "DeadlineExceeded",
        "a build exceeded `spec.build.activeDeadlineSeconds`, a fetch exceeded "
        "`spec.fetch.activeDeadlineSeconds` (both include retries), a verification or benchmark "
        "exceeded its `timeoutSeconds`, or publishing took more than six hours",
        "raise the field, then delete the Job; if publishing failed, check the volume",
        also=(Type.MODELS_FETCHED, Type.REPOSITORY_READY, *MEASURED),
    )
    UNSUPPORTED_ARCHITECTURE = _SECTION.failed(
        "UnsupportedArchitecture",
        "the backend has no converter for this model architecture, or for one of its features",
        "choose another model or backend",
    )
    UNSUPPORTED_CHECKPOINT = _SECTION.failed(
        "UnsupportedCheckpoint",
        "the backend cannot convert this checkpoint",
        "choose another checkpoint",
    )
    IMAGE_MISMATCH = _SECTION.failed(
        "ImageMismatch",
        "the server's image differs from what this release of specdec expects of "
        "`runtime.version`: another version, other templates of Triton's models, or programs "
        "with other flags or with imports that fail",
        "set `spec.runtime.image` or `spec.runtime.version` as the message states; `specdec image "
        "check` lists all differences",
    )
    PLAN_INVALID = _SECTION.failed(
        "PlanInvalid",
        "the build program rejects a value of its build plan",
        "correct the field in the message",
    )
    ROTARY_MISMATCH = _SECTION.failed(
        "RotaryMismatch",
        "converting the draft heads lost the rotary scaling of the target, and the converted "
        "checkpoint cannot hold it",
        "choose another target, or a prebuilt engine",
    )
