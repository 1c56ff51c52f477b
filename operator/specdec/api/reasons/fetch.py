"""Reasons of `ModelsFetched`: sources and the checkpoints on the volume."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.MODELS_FETCHED)


class FetchReason(Reason):
    """Reasons of `ModelsFetched`."""

    FETCHED = _SECTION.progress("Fetched", "all checkpoints are complete on the volume")
    FETCHING = _SECTION.progress(
        "Fetching",
        "the fetch Job is running",
        "wait; `kubectl logs job/JOB -f` shows the progress",
    )
    NOT_FETCHED = _SECTION.progress(
        "NotFetched",
        "the configurations of the checkpoints do not fit, so no weights are downloaded; the "
        "message of `Compatible` has the finding",
        "follow the resolution of the reason of `Compatible`",
    )
    SOURCE_NOT_FOUND = _SECTION.failed(
        "SourceNotFound",
        "the repository, claim, path, bucket, prefix, artifact or model version does not "
        "exist, or contains no usable file",
        "correct `source`",
    )
    REVISION_NOT_FOUND = _SECTION.failed(
        "RevisionNotFound",
        "the repository does not have this revision",
        "correct `source.huggingFace.revision`",
    )
    AUTH_FAILED = _SECTION.failed(
        "AuthFailed",
        "the source rejected the credentials, or requires credentials",
        "correct the Secret in the message, or accept the terms of the model",
    )
    CHECKPOINT_MISSING = _SECTION.blocked(
        "CheckpointMissing",
        "a checkpoint that servers need, or that the build of a lost engine needs, is no longer "
        "on the volume",
        "none: the operator fetches it again",
        health=Health.PROGRESSING,
    )
    CHECKPOINT_DAMAGED = _SECTION.blocked(
        "CheckpointDamaged",
        "a checkpoint on the volume differs from what was fetched; the message names the file",
        "none: the operator removes it and fetches it again",
        health=Health.PROGRESSING,
    )
    CHECKPOINT_UNREADABLE = _SECTION.failed(
        "CheckpointUnreadable",
        "the publish Job cannot read a file of a checkpoint on the volume; the message names the "
        "file and the error, and the checkpoint is kept",
        "check the volume; if the file stays unreadable, delete the directory in the message; "
        "then delete the publish Job: the operator fetches a missing checkpoint again",
        also=(Type.REPOSITORY_READY,),
    )
    CHECKPOINT_CORRUPT = _SECTION.failed(
        "CheckpointCorrupt",
        "a fetched file is missing, damaged, truncated or does not match its digest; or a "
        "prebuilt engine lacks rank files",
        "replace the file at the source, then delete the Job; if you deleted the checkpoint from "
        "the volume, see "
        "[files on the volume](troubleshooting.md#files-on-the-volume-were-deleted-or-damaged)",
        also=(Type.ENGINES_READY,),
    )
    NETWORK_ERROR = _SECTION.blocked(
        "NetworkError",
        "the source is unreachable, or the connection broke",
        "repair the network or set `endpoint`, then delete the Job",
    )
    ADDRESS_REFUSED = _SECTION.failed(
        "AddressRefused",
        "the source, or one of its redirects, resolves to an address that is not public: a "
        "private, cluster, link-local or loopback address, or the metadata service of a cloud",
        "correct the source; an internal mirror needs its network in the operator's "
        "`fetch.allowedNetworks`",
    )
    VOLUME_FULL = _SECTION.failed(
        "VolumeFull",
        "the volume has no space left; build, publish and benchmark Jobs can report this too",
        "grow the claim or free space, then delete the Job",
        also=(Type.ENGINES_READY, Type.REPOSITORY_READY, Type.BENCHMARK_COMPLETED),
    )
    VOLUME_UNUSABLE = _SECTION.failed(
        "VolumeUnusable",
        "the Job cannot read or write a file on a volume; build, publish and benchmark Jobs can "
        "report this too",
        "check the permissions for user and group 10001, or the storage if the message has "
        "another error, then delete the Job",
        also=(Type.ENGINES_READY, Type.REPOSITORY_READY, Type.BENCHMARK_COMPLETED),
    )
    FETCH_FAILED = _SECTION.failed(
        "FetchFailed",
        "the Job failed for another reason",
        "read the message and the Job's log, then delete the Job",
    )
