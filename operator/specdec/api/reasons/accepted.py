"""Reasons of `Accepted`: whether this release can serve the spec."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.ACCEPTED)


class AcceptedReason(Reason):
    """Reasons of `Accepted`."""

    VALID = _SECTION.progress("Valid", "this release can serve the resource")
    BELOW_FIX_LEVEL = _SECTION.blocked(
        "BelowFixLevel",
        "the resource is served, but its Triton has publicly known remote vulnerabilities that "
        "a newer release fixes: [the list](support-matrix.md#known-vulnerabilities-of-triton)",
        "use the version in the message; if there is none, allow only trusted clients to "
        "reach the pods and set `spec.serving.http` to `HealthOnly`",
        health=Health.PROGRESSING,
    )
    NAMESPACE_EXCLUDED = _SECTION.failed(
        "NamespaceExcluded",
        "the installation excludes the namespace of the resource, as it does `kube-system`",
        "create the resource in another namespace; `excludedNamespaces` of the chart lists them",
    )
    UNSUPPORTED_BACKEND = _SECTION.failed(
        "UnsupportedBackend",
        "this release does not serve `spec.runtime.backend`",
        "set it to a backend of the [support matrix](support-matrix.md) that is served",
    )
    UNSUPPORTED_GPU = _SECTION.failed(
        "UnsupportedGpu",
        "the backend or the quantization does not support the generation of `spec.gpu.product`, "
        "or the product is unknown",
        "choose another product or quantization, or set `spec.gpu.computeCapability`",
    )
    UNSUPPORTED_METHOD = _SECTION.failed(
        "UnsupportedMethod",
        "the backend does not support `spec.speculation.method`",
        "set a method from the message",
    )
    UNSUPPORTED_VERSION = _SECTION.failed(
        "UnsupportedVersion",
        "the backend does not support `spec.runtime.version`",
        "set a version from the message, or remove the field",
    )
    IMAGE_MISSING = _SECTION.failed(
        "ImageMissing", "this release knows no image for the backend", "set `spec.runtime.image`"
    )
    INVALID_SPEC = _SECTION.failed(
        "InvalidSpec",
        "a field has an invalid value",
        "correct the field in the message",
        also=(Type.REPOSITORY_READY,),
    )
    INVALID_DEVICES = _SECTION.failed(
        "InvalidDevices",
        "no server supports this combination of GPU ordinals and parallelism",
        "correct the field in the message: `gpu.deviceIds` must be empty, or list one distinct "
        "ordinal for each rank (tensor x pipeline); on a CPU, a model has one rank",
    )
