"""Rules on `spec.runtime`, on sources and on storage."""

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.matrix import matrix, support
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.backends.rule import invalid, version


def namespace(model: SpeculativeModel, images: Images) -> Cause | None:
    """The installation does not exclude the namespace."""
    name = model.metadata.namespace
    if name not in images.excluded_namespaces:
        return None
    return Cause(
        AcceptedReason.NAMESPACE_EXCLUDED,
        f"metadata.namespace is {name}, which this installation excludes: create the resource in "
        "another namespace, or remove this one from excludedNamespaces of the chart "
        "(SPECDEC_EXCLUDED_NAMESPACES)",
    )


def served(model: SpeculativeModel, _: Images) -> Cause | None:
    """The backend is one that this release serves."""
    backend = model.spec.runtime.backend
    if support(backend).served:
        return None
    able = " or ".join(name for name, row in matrix().items() if row.served)
    return Cause(
        AcceptedReason.UNSUPPORTED_BACKEND,
        f"spec.runtime.backend is {backend}, which this release does not serve yet: set it to "
        f"{able}",
    )


def known_version(model: SpeculativeModel, _: Images) -> Cause | None:
    """The version is one that the backend knows."""
    runtime = model.spec.runtime
    versions = support(runtime.backend).versions
    if runtime.version is None or runtime.version in versions:
        return None
    return Cause(
        AcceptedReason.UNSUPPORTED_VERSION,
        f"spec.runtime.version is {runtime.version}, and backend {runtime.backend} knows "
        f"{', '.join(versions)}: choose one of them, or leave it out for the default",
    )


def method(model: SpeculativeModel, _: Images) -> Cause | None:
    """The backend serves the method in that version."""
    runtime, method = model.spec.runtime, model.spec.speculation.method
    row = support(runtime.backend)
    release = version(model)
    if row.serves(method, release):
        return None
    able = sorted(name for name in row.methods if row.serves(name, release))
    return Cause(
        AcceptedReason.UNSUPPORTED_METHOD,
        f"spec.speculation.method is {method}, and backend {runtime.backend} {release} serves "
        f"{', '.join(able)}: choose one of them, or another version",
    )


def image(model: SpeculativeModel, images: Images) -> Cause | None:
    """The spec or the release names a server image."""
    runtime = model.spec.runtime
    default = backends.default_image(model, images, version(model))
    if runtime.image or default:
        return None
    return Cause(
        AcceptedReason.IMAGE_MISSING,
        f"spec.runtime.image is empty and the operator has no default image for backend "
        f"{runtime.backend}: set spec.runtime.image",
    )


def dtypes(model: SpeculativeModel, _: Images) -> Cause | None:
    """The backend serves the dtype."""
    backend = model.spec.runtime.backend
    known = support(backend).dtypes
    for role, spec in model.models.items():
        if spec.dtype not in known:
            return invalid(
                f"dtype of the {role} is {spec.dtype}, and backend {backend} serves "
                f"{', '.join(known)}: choose one of them"
            )
    return None


def limits(model: SpeculativeModel, _: Images) -> Cause | None:
    """A limit does not contradict another one, which may be a default.

    The definition compares only limits that are set.
    """
    effective = backends.sized(model, {}, 0)
    for role, spec in effective.models.items():
        own = spec.limits
        if own.max_input_len >= own.max_seq_len:
            return invalid(
                f"limits.maxInputLen of the {role} is {own.max_input_len} and maxSeqLen "
                f"{own.max_seq_len}, so nothing could be generated: lower maxInputLen or raise "
                "maxSeqLen"
            )
        if own.max_num_tokens < own.max_batch_size:
            return invalid(
                f"limits.maxNumTokens of the {role} is {own.max_num_tokens}, below maxBatchSize "
                f"{own.max_batch_size}: raise maxNumTokens or lower maxBatchSize"
            )
    return None


def parameters(model: SpeculativeModel, _: Images) -> Cause | None:
    """The release reads each name in `spec.runtime.parameters`, and no typed field sets it."""
    release = version(model)
    known = backends.of(model).parameters(release)
    unknown = sorted(name for name in model.spec.runtime.parameters if name not in known)
    if not unknown:
        return None
    fix = f"use {', '.join(known)}" if known else "remove it"
    return invalid(
        f"spec.runtime.parameters has {', '.join(unknown)[:200]}, which release {release} does "
        f"not read or another field sets: {fix}"
    )


def sources(model: SpeculativeModel, _: Images) -> Cause | None:
    """Each source is of exactly one kind, and the path of a PVC source stays inside its claim."""
    for role, source in model.sources.items():
        given = source.model_dump(by_alias=True, exclude_none=True)
        if len(given) != 1:
            kinds = "huggingFace, pvc, s3, gcs, oci and ngc"
            return invalid(f"the source of the {role} must be exactly one of {kinds}")
        parts = source.pvc.path.split("/") if source.pvc else []
        if ".." in parts:
            return invalid(
                f"source.pvc.path of the {role} leaves its claim with '..': name a directory "
                "inside the claim"
            )
    return None


def storage(model: SpeculativeModel, _: Images) -> Cause | None:
    """The spec names exactly one volume."""
    storage = model.spec.storage
    if (storage.existing_claim is None) != (storage.size is None):
        return None
    return invalid("spec.storage needs exactly one of existingClaim and size")
