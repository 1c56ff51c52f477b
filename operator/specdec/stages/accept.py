"""Accepted: what the schema's rules cannot say, and what they said, once more.

The rules of the CustomResourceDefinition reject most of this earlier; an older definition in the
cluster, or a newer operator, must still not build nonsense.
"""

from collections.abc import Callable
from dataclasses import replace

from specdec.api.conditions import Condition, Type
from specdec.api.matrix import support
from specdec.api.model import Method, SpeculativeModel
from specdec.stages import backends
from specdec.stages.progress import Words
from specdec.stages.stage import Context, Images, Outcome
from specdec.triton.ranks import RankError


def accept(context: Context) -> Outcome:
    """Check the spec and settle version, image and devices."""
    model, images = context.model, context.images
    for rule in _RULES:
        problem = rule(model, images)
        if problem is not None:
            bad = Condition(Type.ACCEPTED, "False", problem.reason, problem.message)
            return Outcome((bad,), context.facts, proceed=False)
    runtime = model.spec.runtime
    version = runtime.version or support(runtime.backend).default_version
    image = runtime.image or backends.strategy(runtime.backend).default_image(images)
    facts = replace(context.facts, version=version, image=image)
    method = model.spec.speculation.method
    message = f"{runtime.backend} {version} serves method {method} with image {image}"
    good = Condition(Type.ACCEPTED, "True", "Valid", message)
    ranks = backends.strategy(runtime.backend).ranks(model)
    plan = {
        "backend": runtime.backend.value,
        "version": version,
        "image": image,
        "method": method.value,
        "draftTokens": backends.draft_tokens(model),
        "maxDraftTokens": backends.max_draft_len(model),
        "devices": {role: list(ids) for role, ids in ranks.devices.items()},
        "gpusPerPod": max(server.gpus for server in ranks.servers),
    }
    return Outcome((good,), facts, proceed=True, status={"plan": plan})


def _backend(model: SpeculativeModel, _: Images) -> Words | None:
    backend = model.spec.runtime.backend
    if support(backend).served:
        return None
    return Words(
        "UnsupportedBackend",
        f"spec.runtime.backend is {backend}, which this release does not serve yet: set it to "
        "Reference",
    )


def _version(model: SpeculativeModel, _: Images) -> Words | None:
    runtime = model.spec.runtime
    versions = support(runtime.backend).versions
    if runtime.version is None or runtime.version in versions:
        return None
    return Words(
        "UnsupportedVersion",
        f"spec.runtime.version is {runtime.version}, and backend {runtime.backend} knows "
        f"{', '.join(versions)}: choose one of them, or leave it out for the default",
    )


def _method(model: SpeculativeModel, _: Images) -> Words | None:
    runtime, method = model.spec.runtime, model.spec.speculation.method
    row = support(runtime.backend)
    version = runtime.version or row.default_version
    if row.serves(method, version):
        return None
    able = sorted(name for name in row.methods if row.serves(name, version))
    return Words(
        "UnsupportedMethod",
        f"spec.speculation.method is {method}, and backend {runtime.backend} {version} serves "
        f"{', '.join(able)}: choose one of them, or another version",
    )


def _image(model: SpeculativeModel, images: Images) -> Words | None:
    runtime = model.spec.runtime
    if runtime.image or backends.strategy(runtime.backend).default_image(images):
        return None
    return Words(
        "ImageMissing",
        f"spec.runtime.image is empty and the operator has no default image for backend "
        f"{runtime.backend}: set spec.runtime.image",
    )


def _speculation(model: SpeculativeModel, _: Images) -> Words | None:
    speculation = model.spec.speculation
    if speculation.method is not Method.DRAFT_TARGET:
        return None
    if speculation.draft_target is None or speculation.max_draft_tokens is None:
        return _invalid(
            "spec.speculation.method is DraftTarget: set draftTarget.draft and maxDraftTokens"
        )
    drafted, most = speculation.draft_tokens or 0, speculation.max_draft_tokens
    if drafted > most:
        return _invalid(
            f"spec.speculation.draftTokens is {drafted}, above maxDraftTokens {most}: lower "
            "draftTokens or raise maxDraftTokens"
        )
    return None


def _dtypes(model: SpeculativeModel, _: Images) -> Words | None:
    backend = model.spec.runtime.backend
    known = support(backend).dtypes
    for role, spec in model.models.items():
        if spec.dtype not in known:
            return _invalid(
                f"dtype of the {role} is {spec.dtype}, and backend {backend} builds "
                f"{', '.join(known)}: choose one of them"
            )
    return None


def _sources(model: SpeculativeModel, _: Images) -> Words | None:
    for role, spec in model.models.items():
        kinds = (spec.source.hugging_face, spec.source.pvc)
        if sum(kind is not None for kind in kinds) != 1:
            return _invalid(f"the source of the {role} must be exactly one of huggingFace and pvc")
        parts = spec.source.pvc.path.split("/") if spec.source.pvc else []
        if ".." in parts:
            return _invalid(
                f"source.pvc.path of the {role} leaves its claim with '..': name a directory "
                "inside the claim"
            )
    return None


def _storage(model: SpeculativeModel, _: Images) -> Words | None:
    storage = model.spec.storage
    if (storage.existing_claim is None) != (storage.size is None):
        return None
    return _invalid("spec.storage needs exactly one of existingClaim and size")


def _ranks(model: SpeculativeModel, _: Images) -> Words | None:
    try:
        backends.strategy(model.spec.runtime.backend).ranks(model)
    except RankError as error:
        return Words("InvalidDevices", str(error))
    return None


def _invalid(message: str) -> Words:
    return Words("InvalidSpec", message)


_Rule = Callable[[SpeculativeModel, Images], Words | None]
_RULES: tuple[_Rule, ...] = (
    _backend,
    _version,
    _method,
    _image,
    _speculation,
    _dtypes,
    _sources,
    _storage,
    _ranks,
)
