"""A backend as a strategy: what differs between backends, and nothing else, is in here.

Stages ask the strategy of the resource's backend; none of them asks which backend it is.
"""

from specdec.api import names
from specdec.api.model import Backend, SpeculativeModel
from specdec.backends import programs
from specdec.backends.facts import Facts
from specdec.backends.lengths import draft_ceiling, draft_tokens, max_draft_len
from specdec.backends.protocol import Strategy
from specdec.backends.reference import Reference
from specdec.backends.tensorrt import TensorRT
from specdec.desired.serving import Revision

__all__ = [
    "Strategy",
    "draft_ceiling",
    "draft_tokens",
    "max_draft_len",
    "programs",
    "served",
    "strategy",
]


def strategy(backend: Backend) -> Strategy:
    """The strategy of a backend that this release serves; KeyError for any other."""
    return _STRATEGIES[backend]


def served(model: SpeculativeModel, facts: Facts) -> tuple[Revision, ...]:
    """What each server of the service shall run, the target's first."""
    servers = strategy(model.spec.runtime.backend).ranks(model).servers
    roles = names.servers(model)
    return tuple(
        Revision(
            facts.repository,
            facts.image,
            server.gpus,
            server.launch,
            role,
            folder=role if len(servers) > 1 else "",
            product=model.spec.gpu.product,
        )
        for role, server in zip(roles, servers, strict=True)
    )


_STRATEGIES: dict[Backend, Strategy] = {
    Backend.REFERENCE: Reference(),
    Backend.TENSORRT: TensorRT(),
}
