"""Everything that differs between backends, and between methods of speculative decoding.

A backend is a package here, and a method is a module of `methods`; the name of the backend or
method locates it. Callers use attributes and never compare the name.
"""

from collections.abc import Mapping
from importlib import import_module

from specdec import servers
from specdec.api import names
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends import programs
from specdec.backends.facts import Checkpoint, Facts, Images
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.protocol import Backend
from specdec.desired.serving import Revision

__all__ = [
    "Backend",
    "default_image",
    "desired_revisions",
    "method",
    "of",
    "programs",
    "sized",
    "warnings",
]


def of(model: SpeculativeModel) -> Backend:
    """The backend of a resource; it must be one that this release serves."""
    name = model.spec.runtime.backend.value.lower()
    backend: Backend = import_module(f"{__name__}.{name}").BACKEND
    return backend


def default_image(model: SpeculativeModel, images: Images, version: str) -> str:
    """The server image of a version for the front end; empty if this release knows none."""
    runtime = model.spec.runtime
    row = support(runtime.backend)
    return images.reference if row.release_image else row.image(version, runtime.frontend)


def warnings(model: SpeculativeModel) -> tuple[str, ...]:
    """Warnings about a spec that is served nevertheless; each is a part of a sentence."""
    return tuple(text for each in of(model).warnings for text in each(model))


def sized(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
) -> SpeculativeModel:
    """The resource with all limits; unchanged if they are built into engines.

    Args:
        model: the resource.
        checkpoints: by role.
        gpu_mib: memory of each GPU of the target in MiB; 0 if it is not known.
    """
    own = of(model).sized
    return model if own is None else own(model, checkpoints, gpu_mib)


def method(model: SpeculativeModel) -> MethodDefinition:
    """The method of a resource, as its backend defines it."""
    return of(model).method(model)


def desired_revisions(model: SpeculativeModel, facts: Facts) -> tuple[Revision, ...]:
    """The desired revision of each server of the service, the target's first."""
    plans, models = of(model).servers(model).servers, servers.of(model).serving.models
    roles = names.servers(model)
    return tuple(
        Revision(
            facts.repository,
            facts.image,
            server.gpus,
            server.launch,
            role,
            folder=role if len(plans) > 1 else "",
            product=model.gpu(role).product,
            # A server of one model has it by the name of the target, whatever its role is.
            engines=tuple(models[each] for each in server.gpu_device_ids if each in models)
            if len(plans) == 1
            else (models["target"],),
        )
        for role, server in zip(roles, plans, strict=True)
    )
